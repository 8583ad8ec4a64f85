//! Giving up the lease of one key.

use serde_json::json;

use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::ops::actor::Actor;
use crate::ops::end::{End, Ending, end_row};
use crate::record::{Record, State};
use crate::store::Store;
use std::time::Duration;

/// What to do with one row, as somebody saw it.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// The row as it was shown; it is changed only while it is still so (token, attempt, state).
    pub seen: &'a Record,
    /// Delete it, or keep it as a final error.
    pub end: &'a End,
    /// Take a live lease away too: its holder may be at work this moment.
    pub steal: bool,
    /// What was known of the charge and accepted, for the event log.
    pub evidence: serde_json::Value,
    /// Change nothing.
    pub dry_run: bool,
    /// Who acts, and why.
    pub actor: Actor,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The row is gone (with a dry run: would be).
    Released,
    /// The row holds a final error (with a dry run: would hold).
    Failed,
    /// Nothing was changed: the lease is alive.
    RefusedLive,
    /// Nothing was changed: the row holds a final answer already.
    RefusedFinal,
    /// Nothing was changed: `status` holds a word that we do not know.
    RefusedUnknown,
    /// Nothing was changed: the row is not any more as it was seen.
    Changed,
    /// The commit was not answered: changed or not, the database knows.
    Unknown,
}

/// Why a row in this state may not be released; `None` when it may.
pub fn refusal(state: Option<State>, steal: bool) -> Option<Outcome> {
    match state {
        None => Some(Outcome::RefusedUnknown),
        Some(State::Done | State::Failed) => Some(Outcome::RefusedFinal),
        Some(State::InProgress) if !steal => Some(Outcome::RefusedLive),
        Some(State::InProgress | State::Expired) => None,
    }
}

/// Releases the row, with its event, in one transaction.
///
/// A commit that is not answered leaves the outcome open ([`Outcome::Unknown`]): look again with `inspect`.
pub async fn run(conn: &mut Connection, store: &Store, request: &Request<'_>) -> Result<Outcome> {
    if let Some(refused) = refusal(request.seen.state, request.steal) {
        return Ok(refused);
    }
    let done = match request.end {
        End::Release => Outcome::Released,
        End::Fail(_) => Outcome::Failed,
        // A release never invents a result.
        End::Complete(_) => {
            return Err(Error::Invalid {
                field: "end",
                reason: "= complete is for `reconcile` and `resolve`".to_owned(),
            });
        }
    };
    if request.dry_run {
        return Ok(done);
    }
    let live = request.seen.state == Some(State::InProgress);
    let ending = Ending {
        how: request.end,
        action: request.end.action(),
        // A row that was seen expired must still be: a lease that came to life again is not stolen unasked.
        older_than: if live { None } else { Some(Duration::ZERO) },
        actor: &request.actor,
        details: json!({ "steal": live, "evidence": request.evidence }),
    };
    let mut tries = 0;
    loop {
        let mut committing = false;
        match end_row(conn, store, &ending, &request.seen.into(), &mut committing).await {
            Ok(true) => return Ok(done),
            Ok(false) => return Ok(Outcome::Changed),
            Err(error) if error.is_retryable() && tries < 5 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=20 << tries))).await;
            }
            Err(error) if committing && error.needs_reconnect() => return Ok(Outcome::Unknown),
            Err(error) => return Err(error),
        }
    }
}
