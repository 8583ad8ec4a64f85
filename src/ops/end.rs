//! Ending one row in progress from outside: the change and its event in one transaction.

use std::time::Duration;

use serde_json::{Value, json};

use crate::connect::{Connection, Tx};
use crate::error::{Error, Result};
use crate::ops::actor::Actor;
use crate::response::Response;
use crate::store::Store;
use crate::store::event::NewEvent;
use crate::store::expired::{Finish, Stuck};

/// HTTP status of the final error: the service cannot tell what became of the request (RFC 9110, section
/// 15.6.1).
const STATUS_CODE: u16 = 500;

/// Written where no attempt left a reason.
const LAST_ERROR: &str = "no result before the lease ended; marked as failed, see the event log";

/// How a row in progress is ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Delete it: the next request starts afresh.
    Release,
    /// Keep it as `failed` with a final error, which is replayed. `None` stores one that says that the outcome
    /// is unknown.
    Fail(Option<Response>),
    /// Keep it as `done` with the response that the client should have got, which is replayed.
    Complete(Response),
}

impl End {
    /// The verb in the event log, where the verb of the command is not a better one.
    pub(crate) fn action(&self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Fail(_) => "fail",
            Self::Complete(_) => "complete",
        }
    }
}

/// Everything about the change but the row.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    pub(crate) how: &'a End,
    /// The verb in the event log.
    pub(crate) action: &'static str,
    /// How long ago the lease must have ended; `None` takes a live lease too.
    pub(crate) older_than: Option<Duration>,
    pub(crate) actor: &'a Actor,
    pub(crate) details: Value,
}

/// Ends a row that is still as it was seen; `false` when it is not, and nothing was changed.
///
/// `committing` is set before the commit is sent: an error after that leaves the outcome open.
pub(crate) async fn end_row(
    conn: &mut Connection,
    store: &Store,
    ending: &Ending<'_>,
    row: &Stuck,
    committing: &mut bool,
) -> Result<bool> {
    let tx = conn.begin().await?;
    store.short_lock_timeout(&tx).await?;
    if !end_row_in(&tx, store, ending, row).await? {
        return Ok(false);
    }
    *committing = true;
    tx.commit().await?;
    Ok(true)
}

/// The same within a transaction, which the caller commits: change and event.
pub(crate) async fn end_row_in(tx: &Tx<'_>, store: &Store, ending: &Ending<'_>, row: &Stuck) -> Result<bool> {
    let older_than = ending.older_than;
    let Some(before) = store.expired_lock(tx, older_than, row).await? else {
        return Ok(false);
    };
    let changed = match ending.how {
        End::Complete(response) => {
            let finish = Finish::Done(response);
            store.expired_finish(tx, older_than, row, &finish).await?
        }
        End::Fail(Some(response)) => {
            let finish = Finish::Failed(response, LAST_ERROR);
            store.expired_finish(tx, older_than, row, &finish).await?
        }
        End::Fail(None) => {
            let response = final_error()?;
            let finish = Finish::Failed(&response, LAST_ERROR);
            store.expired_finish(tx, older_than, row, &finish).await?
        }
        End::Release => store.expired_release(tx, older_than, row).await?,
    };
    if !changed {
        // The row is locked and as it was seen, so nobody else can have been quicker.
        return Err(Error::Inconsistent {
            what: format!(
                "the server did not apply the change to {}: a rule, a trigger or row-level security swallowed it; \
                 nothing was changed",
                row.id
            ),
        });
    }
    let event = NewEvent {
        id: Some(&row.id),
        action: ending.action,
        before: Some(before),
        after: store.snapshot(tx, &row.id).await?,
        details: Some(ending.details.clone()),
    };
    store.append_event(tx, ending.actor, &event).await?;
    Ok(true)
}

/// A problem document (RFC 9457): the client must neither read it as a refusal nor try under a new key.
fn final_error() -> Result<Response> {
    let body = json!({
        "type": "about:blank",
        "title": "Outcome unknown",
        "status": STATUS_CODE,
        "detail": "The request was accepted but its processing did not end, and whether it took effect is unknown \
                   to this service. Do not repeat it under a new idempotency key; contact support.",
    });
    Response::new(STATUS_CODE, body.to_string())?.with_header("content-type", "application/problem+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_error_is_json_and_says_what_its_status_is() {
        let response = final_error().unwrap();
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["status"], response.status_code());
        assert_eq!(response.header("content-type"), Some("application/problem+json"));
    }
}
