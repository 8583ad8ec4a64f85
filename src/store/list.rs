//! Keyset paging over `(created_at, client_id, key)`.

use tokio_postgres::types::Type;

use super::key_row::{record, record_columns};
use super::{Executor, Sql, Store};
use crate::error::Result;
use crate::ops::list::{Cursor, Filter, Order};
use crate::record::{Record, State};
use crate::time::Timestamp;

/// Conditions that are always there and say nothing while their parameter is null, so that no text of a user
/// ever becomes SQL. With its values known, the planner folds the idle ones away and takes the fitting index.
macro_rules! filtered {
    () => {
        "($1::text is null or k.client_id = $1)
   and ($2::text is null or starts_with(k.key, $2))
   and ($3::text[] is null
        or 'done' = any($3) and k.status = 'done'
        or 'failed' = any($3) and k.status = 'failed'
        or 'in_progress' = any($3) and k.status = 'in_progress' and k.locked_until > now()
        or 'expired' = any($3) and k.status = 'in_progress' and k.locked_until <= now())
   and ($4::float8 is null or k.created_at < now() - make_interval(secs => $4))
   and ($5::float8 is null or k.created_at >= now() - make_interval(secs => $5))
   and ($6::text is null or k.provider = $6)"
    };
}

/// `$only` narrows further, `$age` is the first column of the order, `$until` compares with the last creation time
/// that is looked at.
macro_rules! list {
    ($name:literal, $compare:literal, $until:literal, $direction:literal, $only:literal, $age:literal) => {
        concat!(
            "-- idemctl:",
            $name,
            "
select ",
            record_columns!(),
            "
  from {keys} k
 where ",
            filtered!(),
            $only,
            "
   and ($7::timestamptz is null or (k.created_at, k.client_id, k.key) ",
            $compare,
            " ($7, $8, $9))
   and ($10::timestamptz is null or k.created_at ",
            $until,
            " $10)
 order by ",
            $age,
            " ",
            $direction,
            ", k.client_id ",
            $direction,
            ", k.key ",
            $direction,
            "
 limit $11"
        )
    };
}

const TYPES: &[Type] = &[
    Type::TEXT,
    Type::TEXT,
    Type::TEXT_ARRAY,
    Type::FLOAT8,
    Type::FLOAT8,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::TEXT,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::INT8,
];

const LIST_NEWEST: Sql = Sql {
    name: "list_newest",
    text: list!("list_newest", "<", ">=", "desc", "", "k.created_at"),
    types: TYPES,
};

const LIST_OLDEST: Sql = Sql {
    name: "list_oldest",
    text: list!("list_oldest", ">", "<=", "asc", "", "k.created_at"),
    types: TYPES,
};

/// An order that no index has leaves the planner the primary key alone. It does not know how the clients are spread
/// over time, and would walk by age through the whole table for one whose few rows are all old.
const LIST_CLIENT_NEWEST: Sql = Sql {
    name: "list_client_newest",
    text: list!(
        "list_client_newest",
        "<",
        ">=",
        "desc",
        "",
        "k.created_at + interval '0'"
    ),
    types: TYPES,
};

const LIST_CLIENT_OLDEST: Sql = Sql {
    name: "list_client_oldest",
    text: list!(
        "list_client_oldest",
        ">",
        "<=",
        "asc",
        "",
        "k.created_at + interval '0'"
    ),
    types: TYPES,
};

/// Only rows in progress, by the partial index over the leases, and then sorted: the cost is that of the rows in
/// progress. By age the planner would go through the whole table where those few are old.
const LIST_UNFINISHED_NEWEST: Sql = Sql {
    name: "list_unfinished_newest",
    text: list!(
        "list_unfinished_newest",
        "<",
        ">=",
        "desc",
        "\n   and k.status = 'in_progress'",
        "k.created_at + interval '0'"
    ),
    types: TYPES,
};

const LIST_UNFINISHED_OLDEST: Sql = Sql {
    name: "list_unfinished_oldest",
    text: list!(
        "list_unfinished_oldest",
        ">",
        "<=",
        "asc",
        "\n   and k.status = 'in_progress'",
        "k.created_at + interval '0'"
    ),
    types: TYPES,
};

/// Only expired rows, by the same index and at the cost of the stuck rows. The planner takes the lease's end to be
/// independent of the status, so it believes nearly every row in progress expired.
const LIST_EXPIRED_NEWEST: Sql = Sql {
    name: "list_expired_newest",
    text: list!(
        "list_expired_newest",
        "<",
        ">=",
        "desc",
        "\n   and k.status = 'in_progress' and k.locked_until <= now()",
        "k.created_at + interval '0'"
    ),
    types: TYPES,
};

const LIST_EXPIRED_OLDEST: Sql = Sql {
    name: "list_expired_oldest",
    text: list!(
        "list_expired_oldest",
        ">",
        "<=",
        "asc",
        "\n   and k.status = 'in_progress' and k.locked_until <= now()",
        "k.created_at + interval '0'"
    ),
    types: TYPES,
};

/// Creation time of the row behind the next `$4` rows, of those that the conditions on the age leave.
macro_rules! window {
    ($name:literal, $from:literal, $direction:literal) => {
        concat!(
            "-- idemctl:",
            $name,
            "
select created_at
  from {keys}
 where ($1::float8 is null or created_at < now() - make_interval(secs => $1))
   and ($2::float8 is null or created_at >= now() - make_interval(secs => $2))
   and ($3::timestamptz is null or created_at ",
            $from,
            " $3)
 order by created_at ",
            $direction,
            "
offset $4
 limit 1"
        )
    };
}

const LIST_WINDOW_NEWEST: Sql = Sql {
    name: "list_window_newest",
    text: window!("list_window_newest", "<=", "desc"),
    types: &[Type::FLOAT8, Type::FLOAT8, Type::TIMESTAMPTZ, Type::INT8],
};

const LIST_WINDOW_OLDEST: Sql = Sql {
    name: "list_window_oldest",
    text: window!("list_window_oldest", ">=", "asc"),
    types: &[Type::FLOAT8, Type::FLOAT8, Type::TIMESTAMPTZ, Type::INT8],
};

const LIST_CLIENT_COUNT: Sql = Sql {
    name: "list_client_count",
    text: "-- idemctl:list_client_count
select count(*) as found
  from (select 1 from {keys} where client_id = $1 limit $2) found",
    types: &[Type::TEXT, Type::INT8],
};

pub(crate) const STATEMENTS: &[Sql] = &[
    LIST_NEWEST,
    LIST_OLDEST,
    LIST_CLIENT_NEWEST,
    LIST_CLIENT_OLDEST,
    LIST_UNFINISHED_NEWEST,
    LIST_UNFINISHED_OLDEST,
    LIST_EXPIRED_NEWEST,
    LIST_EXPIRED_OLDEST,
    LIST_WINDOW_NEWEST,
    LIST_WINDOW_OLDEST,
    LIST_CLIENT_COUNT,
];

/// By which index rows are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// Their age.
    Age,
    /// The primary key, which begins with the client.
    Client,
    /// The leases of all rows in progress.
    Unfinished,
    /// The leases that are over.
    Expired,
}

/// A part of a list.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) filter: &'a Filter,
    pub(crate) order: Order,
    pub(crate) by: By,
    pub(crate) after: Option<&'a Cursor>,
    /// The last creation time of the part; `None`: to the end.
    pub(crate) until: Option<Timestamp>,
    pub(crate) limit: u32,
}

impl Store {
    /// At most `limit` rows after a place, in an order.
    pub(crate) async fn list(&self, executor: &impl Executor, part: &Part<'_>) -> Result<Vec<Record>> {
        let Part { filter, after, .. } = part;
        let sql = match (part.by, part.order) {
            (By::Age, Order::Newest) => &LIST_NEWEST,
            (By::Age, Order::Oldest) => &LIST_OLDEST,
            (By::Client, Order::Newest) => &LIST_CLIENT_NEWEST,
            (By::Client, Order::Oldest) => &LIST_CLIENT_OLDEST,
            (By::Unfinished, Order::Newest) => &LIST_UNFINISHED_NEWEST,
            (By::Unfinished, Order::Oldest) => &LIST_UNFINISHED_OLDEST,
            (By::Expired, Order::Newest) => &LIST_EXPIRED_NEWEST,
            (By::Expired, Order::Oldest) => &LIST_EXPIRED_OLDEST,
        };
        let states: Option<Vec<&str>> =
            (!filter.states.is_empty()).then(|| filter.states.iter().copied().map(State::as_str).collect());
        let created_at: Option<Timestamp> = after.map(|cursor| cursor.created_at);
        let answer = executor
            .run(
                self.statement(sql),
                &[
                    /* client_id */ &filter.client_id,
                    /* key prefix */ &filter.key_prefix,
                    /* states */ &states,
                    /* older than, seconds */ &filter.older_than.map(|age| age.as_secs_f64()),
                    /* newer than, seconds */ &filter.newer_than.map(|age| age.as_secs_f64()),
                    /* provider */ &filter.provider,
                    /* after created_at */ &created_at,
                    /* after client_id */ &after.map(|cursor| &cursor.client_id),
                    /* after key */ &after.map(|cursor| &cursor.key),
                    /* until */ &part.until,
                    /* limit */ &i64::from(part.limit),
                ],
            )
            .await?;
        answer.rows.iter().map(record).collect()
    }

    /// Creation time of the row that follows the next `rows` rows of the ages that are asked for, whatever else they
    /// are; `None` when no more than that are left. `from` is the first creation time that counts.
    pub(crate) async fn list_window(
        &self,
        executor: &impl Executor,
        filter: &Filter,
        order: Order,
        from: Option<Timestamp>,
        rows: u32,
    ) -> Result<Option<Timestamp>> {
        let sql = match order {
            Order::Newest => &LIST_WINDOW_NEWEST,
            Order::Oldest => &LIST_WINDOW_OLDEST,
        };
        let answer = executor
            .run(
                self.statement(sql),
                &[
                    /* older than, seconds */ &filter.older_than.map(|age| age.as_secs_f64()),
                    /* newer than, seconds */ &filter.newer_than.map(|age| age.as_secs_f64()),
                    /* from */ &from,
                    /* rows */ &i64::from(rows),
                ],
            )
            .await?;
        Ok(answer.rows.first().map(|row| row.get("created_at")))
    }

    /// How many rows a client has, counted up to `limit`.
    pub(crate) async fn list_client_count(
        &self,
        executor: &impl Executor,
        client_id: &str,
        limit: u32,
    ) -> Result<u64> {
        let statement = self.statement(&LIST_CLIENT_COUNT);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &client_id,
                    /* limit */ &i64::from(limit),
                ],
            )
            .await?;
        let row = answer
            .rows
            .first()
            .ok_or_else(|| super::purge::no_row(statement.name))?;
        // A count is never negative.
        Ok(u64::try_from(row.get::<_, i64>("found")).unwrap_or(0))
    }
}
