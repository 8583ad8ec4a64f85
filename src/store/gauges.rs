//! How the table stands, for monitoring: every question reads a bounded number of rows or index entries, however
//! large the table is.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::purge::{Ttl, due, no_row};
use super::{Answer, Executor, Sql, Store};
use crate::error::{Error, Result};
use crate::time::Timestamp;

const GAUGES_PING: Sql = Sql {
    name: "gauges_ping",
    text: "-- idemctl:gauges_ping
select 1 as one",
    types: &[],
};

/// In the order of the partial index, so that the oldest are met first: where the count is cut, those that are
/// stuck for longest have been counted.
const GAUGES_EXPIRED: Sql = Sql {
    name: "gauges_expired",
    text: "-- idemctl:gauges_expired
select count(*) as expired,
       count(*) filter (where locked_until <= now() - make_interval(secs => $1)) as stuck,
       extract(epoch from now() - min(locked_until) filter (where isfinite(locked_until)))::float8 as oldest
  from (select locked_until from {keys}
         where status = 'in_progress' and locked_until <= now()
         order by locked_until
         limit $2) found",
    types: &[Type::FLOAT8, Type::INT8],
};

const GAUGES_LIVE: Sql = Sql {
    name: "gauges_live",
    text: "-- idemctl:gauges_live
select count(*) as live
  from (select 1 from {keys}
         where status = 'in_progress' and locked_until > now()
         limit $1) found",
    types: &[Type::INT8],
};

/// Of the oldest rows that are old enough to be due, those that are. What is bounded are the rows that are looked
/// at, not those that are found: old rows that are not due (in progress, completed late) would make it long.
const GAUGES_BACKLOG: Sql = Sql {
    name: "gauges_backlog",
    text: concat!(
        "-- idemctl:gauges_backlog
select count(*) filter (where due) as due,
       count(*) as seen,
       extract(epoch from now() - min(due_at) filter (where due and isfinite(due_at)))::float8 as oldest
  from (select ",
        due!(),
        " as due,
               coalesce(completed_at, greatest(created_at, locked_until))
                   + case when status = 'done' then make_interval(secs => $1) else make_interval(secs => $2) end as due_at
          from {keys}
         where created_at >= $4 and created_at < now() - make_interval(secs => least($1, $2))
         order by created_at
         limit $3) found"
    ),
    types: &[Type::FLOAT8, Type::FLOAT8, Type::INT8, Type::TIMESTAMPTZ],
};

const GAUGES_RECENT: Sql = Sql {
    name: "gauges_recent",
    text: "-- idemctl:gauges_recent
select count(*) filter (where status = 'in_progress' and locked_until > now()) as in_progress,
       count(*) filter (where status = 'in_progress' and locked_until <= now()) as expired,
       count(*) filter (where status = 'done') as done,
       count(*) filter (where status = 'failed') as failed,
       count(*) as all
  from (select status, locked_until from {keys} order by created_at desc limit $1) newest",
    types: &[Type::INT8],
};

/// The planner's estimate; the leaves', where the table is partitioned, since the parent has none.
const GAUGES_ESTIMATE: Sql = Sql {
    name: "gauges_estimate",
    text: "-- idemctl:gauges_estimate
select sum(leaf.reltuples::float8) filter (where leaf.reltuples >= 0) as rows
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_class leaf on leaf.relkind = 'r'
       and (leaf.oid = c.oid or leaf.oid in (select relid from pg_partition_tree(c.oid) where isleaf))
 where n.nspname = $1 and c.relname = 'idempotency'",
    types: &[Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[
    GAUGES_PING,
    GAUGES_EXPIRED,
    GAUGES_LIVE,
    GAUGES_BACKLOG,
    GAUGES_RECENT,
    GAUGES_ESTIMATE,
];

/// Rows whose lease is over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expired {
    pub(crate) rows: u64,
    /// Of these, those whose lease ended some time ago.
    pub(crate) stuck: u64,
    /// Seconds since the oldest lease ended.
    pub(crate) oldest: Option<f64>,
}

/// Rows that are due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    pub(crate) rows: u64,
    /// How many were looked at.
    pub(crate) seen: u64,
    /// Seconds since the oldest of them became due.
    pub(crate) oldest: Option<f64>,
}

/// The newest rows, by state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recent {
    pub(crate) in_progress: u64,
    pub(crate) expired: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) all: u64,
}

impl Store {
    /// An answer, whatever the tables are like.
    pub(crate) async fn gauges_ping(&self, executor: &impl Executor) -> Result<()> {
        executor.run(self.statement(&GAUGES_PING), &[]).await.map(drop)
    }

    /// Expired rows, counted up to `limit`; those that have been for `older_than` are stuck.
    pub(crate) async fn gauges_expired(
        &self,
        executor: &impl Executor,
        older_than: Duration,
        limit: i64,
    ) -> Result<Expired> {
        let statement = self.statement(&GAUGES_EXPIRED);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [
            /* older_than, seconds */ &older_than.as_secs_f64(),
            /* limit */ &limit,
        ];
        let answer = executor.run(statement, &params).await?;
        Ok(Expired {
            rows: number(&answer, "expired", statement.name)?,
            stuck: number(&answer, "stuck", statement.name)?,
            oldest: answer.rows.first().and_then(|row| row.get("oldest")),
        })
    }

    /// Rows in progress whose lease is alive, counted up to `limit`.
    pub(crate) async fn gauges_live(&self, executor: &impl Executor, limit: i64) -> Result<u64> {
        let statement = self.statement(&GAUGES_LIVE);
        let answer = executor.run(statement, &[/* limit */ &limit]).await?;
        number(&answer, "live", statement.name)
    }

    /// What is due among the oldest `limit` rows that are old enough, of those created at or after `from`.
    pub(crate) async fn gauges_backlog(
        &self,
        executor: &impl Executor,
        ttl: Ttl,
        limit: i64,
        from: Timestamp,
    ) -> Result<Due> {
        let statement = self.statement(&GAUGES_BACKLOG);
        let (done, failed) = ttl.seconds();
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [
            /* done */ &done, /* failed */ &failed, /* limit */ &limit, /* from */ &from,
        ];
        let answer = executor.run(statement, &params).await?;
        Ok(Due {
            rows: number(&answer, "due", statement.name)?,
            seen: number(&answer, "seen", statement.name)?,
            oldest: answer.rows.first().and_then(|row| row.get("oldest")),
        })
    }

    /// The states of the newest `limit` rows.
    pub(crate) async fn gauges_recent(&self, executor: &impl Executor, limit: i64) -> Result<Recent> {
        let statement = self.statement(&GAUGES_RECENT);
        let answer = executor.run(statement, &[/* limit */ &limit]).await?;
        let count = |column| number(&answer, column, statement.name);
        Ok(Recent {
            in_progress: count("in_progress")?,
            expired: count("expired")?,
            done: count("done")?,
            failed: count("failed")?,
            all: count("all")?,
        })
    }

    /// How many rows the planner believes in; `None` where the table was never analyzed, or where a node of Citus that
    /// has some of them does not answer.
    pub(crate) async fn gauges_estimate(&self, executor: &impl Executor) -> Result<Option<f64>> {
        if let Some(spread) = self.spread(executor, "idempotency").await? {
            return Ok(spread.estimate.filter(|_| spread.missing == 0));
        }
        let statement = self.statement(&GAUGES_ESTIMATE);
        let answer = executor.run(statement, &[/* schema */ &self.schema()]).await?;
        Ok(answer.rows.first().and_then(|row| row.get("rows")))
    }
}

fn number(answer: &Answer, column: &'static str, statement: &str) -> Result<u64> {
    let row = answer.rows.first().ok_or_else(|| no_row(statement))?;
    let count: i64 = row.get(column);
    u64::try_from(count).map_err(|_| Error::Inconsistent {
        what: format!("{statement} counted {count} rows"),
    })
}
