//! Expired rows as whole records, in the order in which their leases ended.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::key_row::{place, record, record_columns};
use super::{Executor, Sql, Store};
use crate::error::Result;
use crate::key::KeyId;
use crate::record::Record;
use crate::time::Timestamp;

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

/// By the leases of the rows in progress: no index begins with the key.
const UNFINISHED_NAMESAKES: Sql = Sql {
    name: "unfinished_namesakes",
    text: "-- idemctl:unfinished_namesakes
select k.client_id
  from {keys} k
 where k.status = 'in_progress' and k.key = $1
 order by k.locked_until, k.client_id
 limit $2",
    types: &[Type::TEXT, Type::INT8],
};

pub(crate) const STATEMENTS: &[Sql] = &[STUCK, UNFINISHED_NAMESAKES];

/// The place of a row in the order, where that much can be read; and the row.
pub(crate) type Found = (Option<(Timestamp, KeyId)>, Result<Record>);

impl Store {
    /// Whose rows in progress have this key, longest over first, at most `limit`.
    pub(crate) async fn unfinished_namesakes(
        &self,
        executor: &impl Executor,
        key: &str,
        limit: u32,
    ) -> Result<Vec<String>> {
        let answer = executor
            .run(
                self.statement(&UNFINISHED_NAMESAKES),
                &[/* key */ &key, /* limit */ &i64::from(limit)],
            )
            .await?;
        Ok(answer.rows.iter().map(|row| row.get("client_id")).collect())
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
    ) -> Result<Vec<Found>> {
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
        Ok(answer
            .rows
            .iter()
            .map(|row| (place(row).ok(), record(row)))
            .collect())
    }
}
