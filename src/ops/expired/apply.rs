//! Following the policy, row by row.

use std::time::Duration;

use serde_json::json;

use super::{COUNT_CAP, Cursor, Item, Outcome, Policy, Report, Request};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::response::Response;
use crate::stop::Stop;
use crate::store::Store;
use crate::store::event::NewEvent;
use crate::store::expired::Stuck;
use crate::time::Timestamp;

/// How many keys the report names.
const FIRST: u32 = 10;

/// How often one row is tried again after a serialization failure or a deadlock.
const RETRIES: u32 = 3;

/// HTTP status of the final error: the service cannot tell what became of the request (RFC 9110, section
/// 15.6.1).
const STATUS_CODE: u16 = 500;

/// Written where no attempt left a reason.
const LAST_ERROR: &str = "no result before the lease ended; marked as failed by policy";

pub(super) async fn all(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    stop: &Stop,
    report: &mut Report,
) -> Result<()> {
    request.check()?;
    // One more than the cap tells "exactly the cap" from "more".
    let limit = i64::try_from(COUNT_CAP + 1).unwrap_or(i64::MAX);
    let (stuck, oldest) = store.expired_count(conn, request.older_than, limit).await?;
    (report.stuck, report.capped) = (stuck.min(COUNT_CAP), stuck > COUNT_CAP);
    report.oldest_seconds = oldest;
    let start = (Timestamp::NEG_INFINITY, "", "");
    let first = store.expired_page(conn, request.older_than, start, FIRST).await?;
    report.first = first.into_iter().map(|row| row.id).collect();
    if request.policy == Policy::Report {
        return Ok(());
    }
    let after = request.after.as_ref();
    let after = after.map_or(start, |cursor| {
        (cursor.locked_until, cursor.id.client_id(), cursor.id.key())
    });
    let rows = store
        .expired_page(conn, request.older_than, after, request.limit)
        .await?;
    let full = u32::try_from(rows.len()).is_ok_and(|len| len == request.limit);
    for row in &rows {
        if stop.is_soft() {
            report.interrupted = true;
            return Ok(());
        }
        let outcome = one(conn, store, request, row, report).await?;
        report.items.push(Item {
            id: row.id.clone(),
            outcome,
        });
        report.next = Some(Cursor {
            locked_until: row.locked_until,
            id: row.id.clone(),
        });
    }
    if !full {
        report.next = None;
    }
    Ok(())
}

/// One row; only an error that concerns the whole connection comes back as one.
async fn one(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    row: &Stuck,
    report: &mut Report,
) -> Result<Outcome> {
    let done = match request.policy {
        Policy::Report => return Ok(Outcome::Changed),
        Policy::Fail => Outcome::Failed,
        Policy::Release { accept_double_charge } => match &row.provider {
            Some(provider) if !accept_double_charge => {
                return Ok(Outcome::LeftForProvider(provider.clone()));
            }
            _ => Outcome::Released,
        },
    };
    if request.dry_run {
        return Ok(done);
    }
    let mut tries = 0;
    loop {
        let mut committing = false;
        match change(conn, store, request, row, &mut committing).await {
            Ok(true) => return Ok(done),
            Ok(false) => return Ok(Outcome::Changed),
            Err(error) if error.needs_reconnect() => {
                let outcome = if committing {
                    Outcome::Unknown
                } else {
                    Outcome::Error(error.to_string())
                };
                report.items.push(Item {
                    id: row.id.clone(),
                    outcome,
                });
                return Err(error);
            }
            Err(error) if error.is_retryable() && tries < RETRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=20 << tries))).await;
            }
            // The table itself is not as expected: no other row will fare better.
            Err(error @ Error::Schema { .. }) => return Err(error),
            Err(error) => {
                tracing::warn!(client_id = row.id.client_id(), key = row.id.key(), %error, "stuck row left alone");
                return Ok(Outcome::Error(error.to_string()));
            }
        }
    }
}

/// The change and its event in one transaction; `false` when the row is not any more as it was seen.
async fn change(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    row: &Stuck,
    committing: &mut bool,
) -> Result<bool> {
    let older_than = request.older_than;
    let tx = conn.begin().await?;
    store.short_lock_timeout(&tx).await?;
    let Some(before) = store.expired_lock(&tx, older_than, row).await? else {
        return Ok(false);
    };
    let (action, changed) = match request.policy {
        Policy::Report => return Ok(false),
        Policy::Fail => (
            "fail",
            store
                .expired_fail(&tx, older_than, row, &final_error()?, LAST_ERROR)
                .await?,
        ),
        Policy::Release { .. } => ("release", store.expired_release(&tx, older_than, row).await?),
    };
    if !changed {
        return Ok(false);
    }
    let event = NewEvent {
        id: Some(&row.id),
        action,
        before: Some(before),
        after: store.snapshot(&tx, &row.id).await?,
        details: Some(json!({
            "policy": request.policy.as_str(),
            "older_than_seconds": older_than.as_secs_f64(),
            "accept_double_charge": request.policy == Policy::Release { accept_double_charge: true },
        })),
    };
    store.append_event(&tx, &request.actor, &event).await?;
    *committing = true;
    tx.commit().await?;
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
