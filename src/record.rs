//! A row of the table as people and programs see it, and its states.
//!
//! | state | stored as | who may change it |
//! | --- | --- | --- |
//! | in progress | `in_progress`, lease alive | its holder: complete, renew, abandon, outcome unknown |
//! | expired (stuck) | `in_progress`, lease over | a retry (takeover), its late holder, an operator, the janitor |
//! | done | `done` | nobody; the purge deletes it after the TTL |
//! | failed | `failed` | nobody; the purge deletes it after the TTL |

use std::fmt;

use serde::Serialize;
use uuid::Uuid;

use crate::key::KeyId;
use crate::time::{Stopwatch, Timestamp};

/// State of a row by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Somebody holds a lease that has not run out.
    InProgress,
    /// In progress, but the lease is over: stuck, unless a retry comes.
    Expired,
    /// The work ended; its response is replayed.
    Done,
    /// The janitor or an operator wrote a final error; it is replayed like `Done`.
    Failed,
}

impl State {
    /// Every state, in the order of a row's life.
    pub const ALL: [Self; 4] = [Self::InProgress, Self::Expired, Self::Done, Self::Failed];

    /// The state's name in schema, code, command line and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Expired => "expired",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// Whether the row holds a final answer.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }

    /// From the column `status` and whether the lease is over; `None` for a status we do not know.
    pub(crate) fn from_row(status: &str, lease_over: bool) -> Option<Self> {
        match (status, lease_over) {
            ("in_progress", false) => Some(Self::InProgress),
            ("in_progress", true) => Some(Self::Expired),
            ("done", _) => Some(Self::Done),
            ("failed", _) => Some(Self::Failed),
            _ => None,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One row, without the bytes of its response.
#[derive(Debug, Clone)]
pub struct Record {
    /// Primary key.
    pub id: KeyId,
    /// 64 hex digits, SHA-256 of the canonical request.
    pub fingerprint: String,
    /// The column `status` as it stands.
    pub status: String,
    /// State by the database's clock; `None` where `status` holds a word that we do not know.
    pub state: Option<State>,
    /// End of the lease while in progress.
    pub locked_until: Timestamp,
    /// Seconds until the lease ends, negative when it is over; `None` unless in progress, and for an infinite lease.
    pub lease_remaining_seconds: Option<f64>,
    /// When the key was first claimed.
    pub created_at: Timestamp,
    /// Seconds since `created_at`; `None` for an infinite time.
    pub age_seconds: Option<f64>,
    /// When the work ended; absent while in progress, and where a program that knows only the old columns ended it.
    pub completed_at: Option<Timestamp>,
    /// From when the TTL of a terminal row counts: `completed_at`, else the later of creation and lease end.
    pub retained_from: Option<Timestamp>,
    /// How many times the key was acquired.
    pub attempt: i32,
    /// Fencing token of the last acquisition; `None` where a program that knows only the old columns claimed it.
    pub lease_token: Option<Uuid>,
    /// Host, process and boot nonce of the holder.
    pub owner: Option<String>,
    /// Such as `POST /payments`.
    pub operation: Option<String>,
    /// Which provider to ask.
    pub provider: Option<String>,
    /// Under which of our ids to ask it; the key when absent.
    pub order_id: Option<String>,
    /// Why the last attempt ended without a result.
    pub last_error: Option<String>,
    /// Summary of the stored response.
    pub response: Option<ResponseSummary>,
    /// The database's time at which the row was read.
    pub as_of: Timestamp,
    /// Since the row was read: by so much the ages above have grown.
    pub read: Stopwatch,
}

impl Record {
    /// The id under which the provider knows the operation: `order_id`, or the key.
    pub fn order_id(&self) -> &str {
        self.order_id.as_deref().unwrap_or(self.id.key())
    }
}

/// What may be shown of a stored response without showing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseSummary {
    /// HTTP status.
    pub status_code: Option<i32>,
    /// The header `content-type`.
    pub content_type: Option<String>,
    /// Size of the body in bytes; `None` where the connection's role may not read bodies.
    pub body_bytes: Option<i64>,
    /// Hex SHA-256 of the body's bytes; `None` where the connection's role may not read bodies.
    pub body_sha256: Option<String>,
}
