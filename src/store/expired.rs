//! Rows in progress whose lease ended long ago: finding them, and ending one by a policy.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::event::{parse_row_json, row_json};
use super::lease::headers_text;
use super::{Executor, Sql, Store, one_row};
use crate::error::Result;
use crate::key::KeyId;
use crate::response::Response;
use crate::time::Timestamp;

/// In progress, and the lease ended more than `$1` seconds ago. `-infinity` counts as ended, `infinity` never.
macro_rules! stuck {
    () => {
        "status = 'in_progress' and locked_until <= now() - make_interval(secs => $1)"
    };
}

/// The row as it was seen: key `$2`, `$3`, token `$4`, attempt `$5`, and still stuck with
/// the same end of its lease `$6`: whatever its holder or another program did since, moved that. (`$1` null: in
/// progress, whatever its lease; only for an operator who takes a live lease away.) A retry that took the row
/// over changed the token (or, knowing only the old columns, the lease), so its row is not met.
macro_rules! as_seen {
    () => {
        concat!(
            "client_id = $2 and key = $3
   and lease_token is not distinct from $4 and attempt = $5 and status = 'in_progress'
   and ($1::float8 is null or locked_until = $6 and locked_until <= now() - make_interval(secs => $1))"
        )
    };
}

const EXPIRED_PAGE: Sql = Sql {
    name: "expired_page",
    text: concat!(
        "-- idemctl:expired_page
select client_id, key, locked_until, lease_token, attempt, provider
  from {keys}
 where ",
        stuck!(),
        "
   and (locked_until, client_id, key) > ($2, $3, $4)
 order by locked_until, client_id, key
 limit $5"
    ),
    types: &[
        Type::FLOAT8,
        Type::TIMESTAMPTZ,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
    ],
};

const EXPIRED_COUNT: Sql = Sql {
    name: "expired_count",
    text: concat!(
        "-- idemctl:expired_count
select count(*) as stuck,
       extract(epoch from now() - min(locked_until) filter (where isfinite(locked_until)))::float8 as oldest
  from (select locked_until from {keys} where ",
        stuck!(),
        " order by locked_until limit $2) found"
    ),
    types: &[Type::FLOAT8, Type::INT8],
};

const EXPIRED_LOCK: Sql = Sql {
    name: "expired_lock",
    text: concat!(
        "-- idemctl:expired_lock
select ",
        row_json!(),
        " as row from {keys} k where ",
        as_seen!(),
        " for update"
    ),
    types: &[
        Type::FLOAT8,
        Type::TEXT,
        Type::TEXT,
        Type::UUID,
        Type::INT4,
        Type::TIMESTAMPTZ,
    ],
};

/// The row keeps its last error where it is marked as failed; a row that is done has none.
const EXPIRED_FINISH: Sql = Sql {
    name: "expired_finish",
    text: concat!(
        "-- idemctl:expired_finish
update {keys}
   set status = $12, status_code = $7, response = $8::json, response_headers = $9::jsonb,
       response_body = $10, completed_at = now(),
       last_error = case when $12 = 'failed' then coalesce(last_error, $11) end
 where ",
        as_seen!()
    ),
    types: &[
        Type::FLOAT8,
        Type::TEXT,
        Type::TEXT,
        Type::UUID,
        Type::INT4,
        Type::TIMESTAMPTZ,
        Type::INT4,
        Type::TEXT,
        Type::TEXT,
        Type::BYTEA,
        Type::TEXT,
        Type::TEXT,
    ],
};

const EXPIRED_RELEASE: Sql = Sql {
    name: "expired_release",
    text: concat!(
        "-- idemctl:expired_release\ndelete from {keys} where ",
        as_seen!()
    ),
    types: EXPIRED_LOCK.types,
};

pub(crate) const STATEMENTS: &[Sql] = &[
    EXPIRED_PAGE,
    EXPIRED_COUNT,
    EXPIRED_LOCK,
    EXPIRED_FINISH,
    EXPIRED_RELEASE,
];

/// What a stuck row ends with.
#[derive(Debug)]
pub(crate) enum Finish<'a> {
    /// `done` with this response.
    Done(&'a Response),
    /// `failed` with this response, and the reason that is written where no attempt left one.
    Failed(&'a Response, &'static str),
}

/// A stuck row as it was seen in a page.
#[derive(Debug, Clone)]
pub(crate) struct Stuck {
    pub(crate) id: KeyId,
    pub(crate) locked_until: Timestamp,
    pub(crate) token: Option<Uuid>,
    pub(crate) attempt: i32,
    pub(crate) provider: Option<String>,
}

impl Stuck {
    fn from_row(row: &Row) -> Self {
        Self {
            id: KeyId::from_row(row.get("client_id"), row.get("key")),
            locked_until: row.get("locked_until"),
            token: row.get("lease_token"),
            attempt: row.get("attempt"),
            provider: row.get("provider"),
        }
    }
}

impl From<&crate::record::Record> for Stuck {
    fn from(record: &crate::record::Record) -> Self {
        Self {
            id: record.id.clone(),
            locked_until: record.locked_until,
            token: record.lease_token,
            attempt: record.attempt,
            provider: record.provider.clone(),
        }
    }
}

impl Store {
    /// The next stuck rows, oldest lease end first, after a place in that order.
    pub(crate) async fn expired_page(
        &self,
        executor: &impl Executor,
        older_than: Duration,
        after: (Timestamp, &str, &str),
        rows: u32,
    ) -> Result<Vec<Stuck>> {
        let (locked_until, client_id, key) = after;
        let answer = executor
            .run(
                self.statement(&EXPIRED_PAGE),
                &[
                    /* older_than */ &older_than.as_secs_f64(),
                    /* locked_until */ &locked_until,
                    /* client_id */ &client_id,
                    /* key */ &key,
                    /* rows */ &i64::from(rows),
                ],
            )
            .await?;
        Ok(answer.rows.iter().map(Stuck::from_row).collect())
    }

    /// How many rows are stuck, counted up to `limit`, and how many seconds ago the oldest (finite) lease ended.
    pub(crate) async fn expired_count(
        &self,
        executor: &impl Executor,
        older_than: Duration,
        limit: i64,
    ) -> Result<(u64, Option<f64>)> {
        let statement = self.statement(&EXPIRED_COUNT);
        let answer = executor
            .run(
                statement,
                &[
                    /* older_than */ &older_than.as_secs_f64(),
                    /* limit */ &limit,
                ],
            )
            .await?;
        let row = answer
            .rows
            .first()
            .ok_or_else(|| super::purge::no_row(statement.name))?;
        // A count is never negative.
        Ok((
            u64::try_from(row.get::<_, i64>("stuck")).unwrap_or(0),
            row.get("oldest"),
        ))
    }

    /// Locks a row that is still as it was seen, and gives it as the event log keeps it; `None` when it is not.
    pub(crate) async fn expired_lock(
        &self,
        tx: &impl Executor,
        older_than: Option<Duration>,
        seen: &Stuck,
    ) -> Result<Option<serde_json::Value>> {
        let answer = tx
            .run(
                self.statement(&EXPIRED_LOCK),
                &[
                    /* older_than */ &older_than.map(|age| age.as_secs_f64()),
                    /* client_id */ &seen.id.client_id(),
                    /* key */ &seen.id.key(),
                    /* lease_token */ &seen.token,
                    /* attempt */ &seen.attempt,
                    /* locked_until */ &seen.locked_until,
                ],
            )
            .await?;
        answer
            .rows
            .first()
            .map(|row| parse_row_json(row.get("row")))
            .transpose()
    }

    /// Stores a final answer on a row that is still as it was seen; `false` when it is not.
    pub(crate) async fn expired_finish(
        &self,
        tx: &impl Executor,
        older_than: Option<Duration>,
        seen: &Stuck,
        finish: &Finish<'_>,
    ) -> Result<bool> {
        let statement = self.statement(&EXPIRED_FINISH);
        let (status, response, last_error) = match finish {
            Finish::Done(response) => ("done", response, None),
            Finish::Failed(response, last_error) => ("failed", response, Some(*last_error)),
        };
        let (json, bytes) = self.columns_for(response.body());
        let headers = (!response.headers().is_empty()).then(|| headers_text(response));
        let answer = tx
            .run(
                statement,
                &[
                    /* older_than */ &older_than.map(|age| age.as_secs_f64()),
                    /* client_id */ &seen.id.client_id(),
                    /* key */ &seen.id.key(),
                    /* lease_token */ &seen.token,
                    /* attempt */ &seen.attempt,
                    /* locked_until */ &seen.locked_until,
                    /* status_code */ &i32::from(response.status_code()),
                    /* response */ &json,
                    /* response_headers */ &headers,
                    /* response_body */ &bytes,
                    /* last_error */ &last_error,
                    /* status */ &status,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// Deletes a row that is still as it was seen; `false` when it is not.
    pub(crate) async fn expired_release(
        &self,
        tx: &impl Executor,
        older_than: Option<Duration>,
        seen: &Stuck,
    ) -> Result<bool> {
        let statement = self.statement(&EXPIRED_RELEASE);
        let answer = tx
            .run(
                statement,
                &[
                    /* older_than */ &older_than.map(|age| age.as_secs_f64()),
                    /* client_id */ &seen.id.client_id(),
                    /* key */ &seen.id.key(),
                    /* lease_token */ &seen.token,
                    /* attempt */ &seen.attempt,
                    /* locked_until */ &seen.locked_until,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }
}
