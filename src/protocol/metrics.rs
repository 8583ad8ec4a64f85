//! What the service's own metrics recorder is told, through the `metrics` facade.
//!
//! | name | kind | labels |
//! | --- | --- | --- |
//! | `idemctl_reserve_total` | counter | `outcome`: acquired, `taken_over`, replay, `in_progress`, mismatch, expired, error |
//! | `idemctl_reserve_seconds` | histogram | `outcome` |
//! | `idemctl_settle_total` | counter | `action`: complete, renew, abandon, `outcome_unknown`; `outcome`: done, lost, error |
//! | `idemctl_connection_wait_seconds` | histogram | none; by the tower layer (feature `http`), for each statement |
//!
//! The share of losers (M17) is `in_progress / all` of `idemctl_reserve_total`.

use std::time::{Duration, Instant};

use super::{Lease, Reservation};
use crate::error::{Error, Result};

/// Tells the recorder what the numbers mean (`# HELP` in Prometheus' form). Call it once, after the recorder is
/// installed; without it everything is counted all the same.
pub fn describe_metrics() {
    metrics::describe_counter!(
        "idemctl_reserve_total",
        "Requests by what became of their claim; losers are in_progress"
    );
    metrics::describe_histogram!(
        "idemctl_reserve_seconds",
        metrics::Unit::Seconds,
        "How long a claim took, the work not included"
    );
    metrics::describe_counter!(
        "idemctl_settle_total",
        "What holders did with their leases; outcome lost: somebody else had the key by then"
    );
    metrics::describe_histogram!(
        "idemctl_connection_wait_seconds",
        metrics::Unit::Seconds,
        "How long a statement waited for a connection of the pool"
    );
}

/// Counts one reserve. The process's monotonic clock only measures; it decides nothing.
pub(super) fn reserved(started: Instant, result: &Result<Reservation>) {
    let outcome = match result {
        Ok(Reservation::Acquired(lease)) => acquired(lease),
        Ok(Reservation::Replay(_)) => "replay",
        Ok(Reservation::InProgress(_)) => "in_progress",
        Ok(Reservation::Mismatch(_)) => "mismatch",
        Ok(Reservation::Expired(_)) => "expired",
        Err(_) => "error",
    };
    metrics::counter!("idemctl_reserve_total", "outcome" => outcome).increment(1);
    metrics::histogram!("idemctl_reserve_seconds", "outcome" => outcome).record(since(started));
}

fn acquired(lease: &Lease) -> &'static str {
    if lease.is_takeover() {
        "taken_over"
    } else {
        "acquired"
    }
}

/// Counts one action of a holder.
pub(super) fn settled<T>(action: &'static str, result: &Result<T>) {
    let outcome = match result {
        Ok(_) => "done",
        Err(Error::LeaseLost { .. }) => "lost",
        Err(_) => "error",
    };
    metrics::counter!("idemctl_settle_total", "action" => action, "outcome" => outcome).increment(1);
}

fn since(started: Instant) -> Duration {
    started.elapsed()
}
