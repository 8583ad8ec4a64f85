//! Two persons for one change: finding what the first of them asked for.
//!
//! A request is nothing but an event, `resolve_requested`, whose details hold the row as it was and a digest of
//! what is to be stored. The newest one of a key counts; whether it still does is decided here, in SQL.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::expired::Stuck;
use super::{Executor, Sql, Store};
use crate::error::Result;
use crate::time::Timestamp;

/// The verb of a request in the event log.
pub(crate) const REQUESTED: &str = "resolve_requested";

/// The newest request about a key, and what is still true of it. All the details are compared as the text that
/// we wrote, because a cast would fail on what somebody else may have put there.
///
/// Sorted as the history of one key is: by something that no index has, so that the index over the keys is used.
/// An unknown user of the operating system is nobody else: the comparison is null then, and counts as false.
const RESOLVE_REQUEST: Sql = Sql {
    name: "resolve_request",
    text: "-- idemctl:resolve_request
select e.id, e.at, e.db_user::text as db_user, e.os_user, e.reason, e.details ->> 'evidence' as evidence,
       e.at > now() - interval '24 hours' and e.at <= clock_timestamp() as fresh,
       coalesce(e.details ->> 'lease_token' is not distinct from $3 and e.details ->> 'attempt' = $4
                and e.details ->> 'locked_until' = $5, false) as same_row,
       coalesce(e.details ->> 'decision' = $6 and e.details ->> 'response_sha256' = $7
                and (e.details ->> 'against_provider' = 'true' or not $8), false) as same_decision,
       coalesce(e.db_user <> session_user or $10 and e.os_user <> $9, false) as other_person
  from {events} e
 where e.client_id = $1 and e.key = $2 and e.action = 'resolve_requested'
 order by e.id + 0 desc
 limit 1",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::BOOL,
        Type::TEXT,
        Type::BOOL,
    ],
};

pub(crate) const STATEMENTS: &[Sql] = &[RESOLVE_REQUEST];

/// What somebody wants to be done now, to be compared with what was asked for.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) row: &'a Stuck,
    pub(crate) decision: &'a str,
    /// Of status, headers and body together.
    pub(crate) response_sha256: String,
    /// Whether the provider's word is overridden.
    pub(crate) against_provider: bool,
    pub(crate) os_user: Option<&'a str>,
    /// Whether another user of the operating system is another person.
    pub(crate) os_user_counts: bool,
}

/// What was asked for, by whom, and what is still true of it.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an answer of its own; which one counts first is for the operation to say"
)]
pub(crate) struct Asked {
    pub(crate) event: i64,
    pub(crate) at: Timestamp,
    pub(crate) db_user: String,
    pub(crate) os_user: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) evidence: Option<String>,
    /// Not older than 24 hours.
    pub(crate) fresh: bool,
    /// Token, attempt and end of the lease are as they were.
    pub(crate) same_row: bool,
    /// The same is wanted again, and no more than was asked for.
    pub(crate) same_decision: bool,
    /// Another session user of the database, or, where that counts, another user of the operating system.
    pub(crate) other_person: bool,
}

impl Asked {
    fn from_row(row: &Row) -> Self {
        Self {
            event: row.get("id"),
            at: row.get("at"),
            db_user: row.get("db_user"),
            os_user: row.get("os_user"),
            reason: row.get("reason"),
            evidence: row.get("evidence"),
            fresh: row.get("fresh"),
            same_row: row.get("same_row"),
            same_decision: row.get("same_decision"),
            other_person: row.get("other_person"),
        }
    }
}

impl Store {
    /// The newest request about a row; `None` when there is none.
    pub(crate) async fn resolve_request(
        &self,
        executor: &impl Executor,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Asked>> {
        let row = wanted.row;
        let (token, attempt, locked_until) = row_texts(row);
        let answer = executor
            .run(
                self.statement(&RESOLVE_REQUEST),
                &[
                    /* client_id */ &row.id.client_id(),
                    /* key */ &row.id.key(),
                    /* lease_token */ &token,
                    /* attempt */ &attempt,
                    /* locked_until */ &locked_until,
                    /* decision */ &wanted.decision,
                    /* response_sha256 */ &wanted.response_sha256,
                    /* against_provider */ &wanted.against_provider,
                    /* os_user */ &wanted.os_user,
                    /* os_user counts */ &wanted.os_user_counts,
                ],
            )
            .await?;
        Ok(answer.rows.first().map(Asked::from_row))
    }
}

/// Token, attempt and end of the lease as a request keeps them.
pub(crate) fn row_texts(row: &Stuck) -> (Option<String>, String, String) {
    (
        row.token.map(|token| token.to_string()),
        row.attempt.to_string(),
        row.locked_until.to_string(),
    )
}
