//! Following the policy, row by row.

use std::time::Duration;

use serde_json::json;

use super::{COUNT_CAP, Cursor, Item, Outcome, Policy, Report, Request};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::ops::end::{End, Ending, end_row};
use crate::stop::Stop;
use crate::store::Store;
use crate::store::expired::Stuck;

/// How many keys the report names.
const FIRST: u32 = 10;

/// How often one row is tried again after a serialization failure or a deadlock.
const RETRIES: u32 = 3;

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
    let start = Cursor::place(None);
    let first = store.expired_page(conn, request.older_than, start, FIRST).await?;
    report.first = first.into_iter().map(|row| row.id).collect();
    if matches!(request.policy, Policy::Report | Policy::Reconcile) {
        return Ok(());
    }
    let after = Cursor::place(request.after.as_ref());
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
    let (end, done) = match request.policy {
        Policy::Report | Policy::Reconcile => return Ok(Outcome::Changed),
        Policy::Fail => (End::Fail(None), Outcome::Failed),
        Policy::Release { accept_double_charge } => match &row.provider {
            Some(provider) if !accept_double_charge => {
                return Ok(Outcome::LeftForProvider(provider.clone()));
            }
            _ => (End::Release, Outcome::Released),
        },
    };
    if request.dry_run {
        return Ok(done);
    }
    let mut tries = 0;
    loop {
        let mut committing = false;
        let ending = Ending {
            how: &end,
            action: end.action(),
            older_than: Some(request.older_than),
            actor: &request.actor,
            details: json!({
                "policy": request.policy.as_str(),
                "older_than_seconds": request.older_than.as_secs_f64(),
                "accept_double_charge": request.policy == Policy::Release { accept_double_charge: true },
            }),
        };
        match end_row(conn, store, &ending, row, &mut committing).await {
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
