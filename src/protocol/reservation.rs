//! What a caller gets: outcomes, not errors.

use std::time::Duration;

use uuid::Uuid;

use super::Lease;
use crate::response::Response;
use crate::store::Seen;
use crate::time::Timestamp;

/// The answer to a reserve.
#[derive(Debug)]
#[must_use = "an acquired lease that is dropped leaves the key stuck until the lease runs out"]
pub enum Reservation {
    /// The key is ours: do the work, then settle the lease.
    Acquired(Lease),
    /// The work was done before: answer with the stored response.
    Replay(Replay),
    /// Somebody is at work: HTTP 409 with Retry-After.
    InProgress(Busy),
    /// The key was used for something else: HTTP 422.
    Mismatch(Difference),
    /// The lease of an earlier attempt is over, and the caller asked not to take it over
    /// ([`super::OnExpired::Return`]), or names another provider or order id than that attempt: ask the provider
    /// of that attempt, then [`super::Request::take_over_only`].
    Expired(ExpiredLease),
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Exactly what was stored.
    pub response: Response,
    /// From when the retention counts; the row may be deleted one TTL later.
    pub retained_from: Option<Timestamp>,
}

/// Somebody else holds the lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Busy {
    /// When to try again: the rest of the lease, at most a few seconds of it, with jitter.
    pub retry_after: Duration,
    /// How many times the key was acquired.
    pub attempt: i32,
    /// Who holds it, if known.
    pub owner: Option<String>,
}

/// What differs from the request that used the key first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Another operation, such as another path.
    Operation,
    /// The same operation with another body.
    Body,
}

/// A row whose lease is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredLease {
    /// How many times the key was acquired.
    pub attempt: i32,
    /// Token of the last holder, for fencing what is decided about it.
    pub token: Option<Uuid>,
    /// When its lease ended.
    pub locked_until: Timestamp,
    /// Why the last attempt ended, where its holder could say.
    pub last_error: Option<String>,
    /// Which provider was called.
    pub provider: Option<String>,
    /// Under which id; the key when absent.
    pub order_id: Option<String>,
}

impl ExpiredLease {
    /// Whether a row is still as it was judged: nobody has acquired, renewed or ended it since.
    pub(super) fn is_still(&self, seen: &Seen) -> bool {
        (self.attempt, self.token, self.locked_until) == (seen.attempt, seen.token, seen.locked_until)
    }
}
