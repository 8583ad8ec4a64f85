//! Keyset paging over `(created_at, client_id, key)`.

use std::time::Duration;

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

/// `$only` narrows further, `$age` is the first column of the order.
macro_rules! list {
    ($name:literal, $compare:literal, $direction:literal, $only:literal, $age:literal) => {
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
 order by ",
            $age,
            " ",
            $direction,
            ", k.client_id ",
            $direction,
            ", k.key ",
            $direction,
            "
 limit $10"
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
    Type::INT8,
];

const LIST_NEWEST: Sql = Sql {
    name: "list_newest",
    text: list!("list_newest", "<", "desc", "", "k.created_at"),
    types: TYPES,
};

const LIST_OLDEST: Sql = Sql {
    name: "list_oldest",
    text: list!("list_oldest", ">", "asc", "", "k.created_at"),
    types: TYPES,
};

/// Only expired rows, by the partial index over the leases, and then sorted.
///
/// The planner takes the lease's end to be independent of the status, so it believes nearly every row in progress
/// expired; and then, where many are in progress and few of them stuck, it walks the whole table by age to find
/// those few. An order that no index has leaves it the right index alone, and the cost is that of the stuck rows.
const LIST_EXPIRED_NEWEST: Sql = Sql {
    name: "list_expired_newest",
    text: list!(
        "list_expired_newest",
        "<",
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
        "asc",
        "\n   and k.status = 'in_progress' and k.locked_until <= now()",
        "k.created_at + interval '0'"
    ),
    types: TYPES,
};

const STUCK: Sql = Sql {
    name: "stuck",
    text: concat!(
        "-- idemctl:stuck
select ",
        record_columns!(),
        "
  from {keys} k
 where k.status = 'in_progress' and k.locked_until <= now() - make_interval(secs => $1)
   and ($2::text is null or k.client_id = $2)
   and (k.locked_until, k.client_id, k.key) > ($3, $4, $5)
 order by k.locked_until, k.client_id, k.key
 limit $6"
    ),
    types: &[
        Type::FLOAT8,
        Type::TEXT,
        Type::TIMESTAMPTZ,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
    ],
};

pub(crate) const STATEMENTS: &[Sql] = &[
    LIST_NEWEST,
    LIST_OLDEST,
    LIST_EXPIRED_NEWEST,
    LIST_EXPIRED_OLDEST,
    STUCK,
];

impl Store {
    /// At most `limit` rows after a place, in an order.
    pub(crate) async fn list(
        &self,
        executor: &impl Executor,
        filter: &Filter,
        order: Order,
        after: Option<&Cursor>,
        limit: u32,
    ) -> Result<Vec<Record>> {
        let sql = match (filter.states.as_slice(), order) {
            ([State::Expired], Order::Newest) => &LIST_EXPIRED_NEWEST,
            ([State::Expired], Order::Oldest) => &LIST_EXPIRED_OLDEST,
            (_, Order::Newest) => &LIST_NEWEST,
            (_, Order::Oldest) => &LIST_OLDEST,
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
                    /* limit */ &i64::from(limit),
                ],
            )
            .await?;
        answer.rows.iter().map(record).collect()
    }

    /// Expired rows, oldest lease end first, after a place in that order. Each by itself, so that one which holds
    /// something unreadable keeps no other from its turn.
    pub(crate) async fn stuck(
        &self,
        executor: &impl Executor,
        older_than: Duration,
        client_id: Option<&str>,
        after: (Timestamp, &str, &str),
        limit: u32,
    ) -> Result<Vec<Result<Record>>> {
        let (locked_until, after_client, after_key) = after;
        let answer = executor
            .run(
                self.statement(&STUCK),
                &[
                    /* older_than, seconds */ &older_than.as_secs_f64(),
                    /* client_id */ &client_id,
                    /* after locked_until */ &locked_until,
                    /* after client_id */ &after_client,
                    /* after key */ &after_key,
                    /* limit */ &i64::from(limit),
                ],
            )
            .await?;
        Ok(answer.rows.iter().map(record).collect())
    }
}
