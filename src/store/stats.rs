//! Counts of rows: by one look at them all or at a sample of the pages, or by the partial index up to a limit.

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::purge::{Ttl, due};
use super::{Executor, Sql, Statement, Store};
use crate::error::Result;

mod storage;

pub(crate) use storage::{OldestRow, STATEMENTS as STORAGE_STATEMENTS, StorageRow};

/// A row's state by the database's clock, as one of the words of [`crate::record::State`], or `unknown`.
macro_rules! state {
    () => {
        "case when status = 'in_progress' and locked_until > now() then 'in_progress'
            when status = 'in_progress' then 'expired'
            when status in ('done', 'failed') then status::text
            else 'unknown' end"
    };
}

/// By state and age. `$from` is the table, whole or sampled.
macro_rules! states {
    ($name:literal, $from:literal) => {
        concat!(
            "-- idemctl:",
            $name,
            "
select ",
            state!(),
            " as state,
       case when isfinite(created_at)
            then width_bucket(extract(epoch from now() - created_at)::float8, $3)
            else cardinality($3) end as bucket,
       count(*) as found,
       count(*) filter (where coalesce(attempt, 1) > 1) as again,
       count(*) filter (where ",
            due!(),
            ") as due
  from ",
            $from,
            "
 group by 1, 2"
        )
    };
}

/// The most frequent values of a column, and how many values there are.
macro_rules! top {
    ($name:literal, $column:literal, $from:literal) => {
        concat!(
            "-- idemctl:",
            $name,
            "
select ",
            $column,
            "::text as name,
       count(*) as found,
       count(*) filter (where status = 'in_progress' and locked_until <= now()) as expired,
       count(*) filter (where coalesce(attempt, 1) > 1) as again,
       count(*) over () as names
  from ",
            $from,
            "
 group by 1
 order by 2 desc, 1
 limit $1"
        )
    };
}

const STATS_STATES: Sql = Sql {
    name: "stats_states",
    text: states!("stats_states", "{keys}"),
    types: &[Type::FLOAT8, Type::FLOAT8, Type::FLOAT8_ARRAY],
};

const STATS_STATES_SAMPLED: Sql = Sql {
    name: "stats_states_sampled",
    text: states!(
        "stats_states_sampled",
        "{keys} tablesample system ($4) repeatable ($5)"
    ),
    types: &[
        Type::FLOAT8,
        Type::FLOAT8,
        Type::FLOAT8_ARRAY,
        Type::FLOAT4,
        Type::FLOAT8,
    ],
};

const STATS_CLIENTS: Sql = Sql {
    name: "stats_clients",
    text: top!("stats_clients", "client_id", "{keys}"),
    types: &[Type::INT8],
};

const STATS_CLIENTS_SAMPLED: Sql = Sql {
    name: "stats_clients_sampled",
    text: top!(
        "stats_clients_sampled",
        "client_id",
        "{keys} tablesample system ($2) repeatable ($3)"
    ),
    types: &[Type::INT8, Type::FLOAT4, Type::FLOAT8],
};

const STATS_PROVIDERS: Sql = Sql {
    name: "stats_providers",
    text: top!("stats_providers", "provider", "{keys}"),
    types: &[Type::INT8],
};

const STATS_PROVIDERS_SAMPLED: Sql = Sql {
    name: "stats_providers_sampled",
    text: top!(
        "stats_providers_sampled",
        "provider",
        "{keys} tablesample system ($2) repeatable ($3)"
    ),
    types: &[Type::INT8, Type::FLOAT4, Type::FLOAT8],
};

/// The order, which nobody needs, keeps the planner on the partial index: where it believes that many rows are in
/// progress and few are, it would read the whole table in search of `$1` of them.
const STATS_LIVE: Sql = Sql {
    name: "stats_live",
    text: "-- idemctl:stats_live
select count(*) as due
  from (select 1 from {keys}
         where status = 'in_progress' and locked_until > now()
         order by locked_until
         limit $1) found",
    types: &[Type::INT8],
};

const STATS_EXPIRED: Sql = Sql {
    name: "stats_expired",
    text: "-- idemctl:stats_expired
select count(*) as due
  from (select 1 from {keys}
         where status = 'in_progress' and locked_until <= now() - make_interval(secs => $2)
         order by locked_until
         limit $1) found",
    types: &[Type::INT8, Type::FLOAT8],
};

pub(crate) const STATEMENTS: &[Sql] = &[
    STATS_STATES,
    STATS_STATES_SAMPLED,
    STATS_CLIENTS,
    STATS_CLIENTS_SAMPLED,
    STATS_PROVIDERS,
    STATS_PROVIDERS_SAMPLED,
    STATS_LIVE,
    STATS_EXPIRED,
];

/// Rows of one state and one bucket of ages.
#[derive(Debug)]
pub(crate) struct StateRow {
    pub(crate) state: String,
    pub(crate) bucket: usize,
    pub(crate) found: u64,
    /// Acquired more than once.
    pub(crate) again: u64,
    /// Past their retention.
    pub(crate) due: u64,
}

/// Rows of one client or provider.
#[derive(Debug)]
pub(crate) struct NameRow {
    pub(crate) name: Option<String>,
    pub(crate) found: u64,
    pub(crate) expired: u64,
    pub(crate) again: u64,
    /// How many names there are altogether.
    pub(crate) names: u64,
}

/// A random choice of the table's pages. The same seed chooses the same pages, so that several looks fit each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) percent: f32,
    pub(crate) seed: f64,
}

/// What rows are grouped by.
#[derive(Debug, Clone, Copy)]
pub(crate) enum By {
    Client,
    Provider,
}

/// Counts and sizes are never negative; a sum over nothing is null, and 0.
pub(in crate::store) fn unsigned(row: &Row, column: &str) -> u64 {
    u64::try_from(row.get::<_, Option<i64>>(column).unwrap_or(0)).unwrap_or(0)
}

impl Store {
    /// Rows by state and age, of all of them or of a sample.
    pub(crate) async fn stats_states(
        &self,
        executor: &impl Executor,
        ttl: Ttl,
        ages: &[f64],
        sample: Option<Sample>,
    ) -> Result<Vec<StateRow>> {
        let (done, failed) = ttl.seconds();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            /* done */ &done, /* failed */ &failed, /* ages */ &ages,
        ];
        let statement = if let Some(Sample { percent, seed }) = &sample {
            params.extend([
                /* percent */ percent as &(dyn ToSql + Sync),
                /* seed */ seed,
            ]);
            self.statement(&STATS_STATES_SAMPLED)
        } else {
            self.statement(&STATS_STATES)
        };
        let answer = executor.run(statement, &params).await?;
        let read = |row: &Row| StateRow {
            state: row.get("state"),
            bucket: usize::try_from(row.get::<_, i32>("bucket")).unwrap_or(0),
            found: unsigned(row, "found"),
            again: unsigned(row, "again"),
            due: unsigned(row, "due"),
        };
        Ok(answer.rows.iter().map(read).collect())
    }

    /// The `limit` clients or providers with most rows, of all of them or of a sample.
    pub(crate) async fn stats_names(
        &self,
        executor: &impl Executor,
        by: By,
        limit: u32,
        sample: Option<Sample>,
    ) -> Result<Vec<NameRow>> {
        let limit = i64::from(limit);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![/* limit */ &limit];
        if let Some(Sample { percent, seed }) = &sample {
            params.extend([
                /* percent */ percent as &(dyn ToSql + Sync),
                /* seed */ seed,
            ]);
        }
        let statement: &Statement = self.statement(match (by, sample) {
            (By::Client, None) => &STATS_CLIENTS,
            (By::Client, Some(_)) => &STATS_CLIENTS_SAMPLED,
            (By::Provider, None) => &STATS_PROVIDERS,
            (By::Provider, Some(_)) => &STATS_PROVIDERS_SAMPLED,
        });
        let answer = executor.run(statement, &params).await?;
        let read = |row: &Row| NameRow {
            name: row.get("name"),
            found: unsigned(row, "found"),
            expired: unsigned(row, "expired"),
            again: unsigned(row, "again"),
            names: unsigned(row, "names"),
        };
        Ok(answer.rows.iter().map(read).collect())
    }

    /// Rows in progress whose lease is alive, counted up to `limit`.
    pub(crate) async fn stats_live(&self, executor: &impl Executor, limit: i64) -> Result<u64> {
        let statement = self.statement(&STATS_LIVE);
        let answer = executor.run(statement, &[/* limit */ &limit]).await?;
        super::purge::count(&answer, statement.name)
    }

    /// Rows in progress whose lease has been over for so many seconds, counted up to `limit`.
    pub(crate) async fn stats_expired(
        &self,
        executor: &impl Executor,
        over_seconds: f64,
        limit: i64,
    ) -> Result<u64> {
        let statement = self.statement(&STATS_EXPIRED);
        let answer = executor
            .run(statement, &[/* limit */ &limit, /* over_seconds */ &over_seconds])
            .await?;
        super::purge::count(&answer, statement.name)
    }
}
