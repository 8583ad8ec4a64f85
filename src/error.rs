//! The library's one error type: a variant for each thing that a caller may react to.

use std::time::Duration;

use crate::record::State;

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Expected answers (in progress, mismatch, not found) are not errors but outcomes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument breaks a rule; nothing was sent to the database.
    #[error("{field} {reason}")]
    Invalid {
        /// Which argument.
        field: &'static str,
        /// What is wrong with it and what is allowed.
        reason: String,
    },
    /// The lease is no longer ours: nothing was changed.
    #[error("the lease on {id} is lost: {found}")]
    LeaseLost {
        /// The key.
        id: String,
        /// What stands in the table now.
        found: Found,
    },
    /// The response is larger than the limit; nothing was stored and the lease is still held.
    #[error("the response has {size} bytes, over the limit of {limit}; store a reference to it instead")]
    ResponseTooLarge {
        /// Size of the body in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The row changed under every attempt; nothing was claimed. Try again.
    #[error("gave up after {attempts} attempts because the row kept changing; try again")]
    Contended {
        /// How often it was tried.
        attempts: u32,
    },
    /// The table is absent, or not of the shape that is needed.
    #[error("{what}; run `idemctl migrate`")]
    Schema {
        /// What is missing or different.
        what: String,
    },
    /// A migration cannot be applied as things are; nothing was changed.
    #[error("{what}")]
    Migration {
        /// What stands in the way, and what to do.
        what: String,
    },
    /// The connection's settings cannot be used.
    #[error("{what}")]
    Settings {
        /// Which setting, where it came from, and what is allowed. Never a password.
        what: String,
    },
    /// No connection could be had, or it broke.
    #[error("the database is unreachable: {what}")]
    Unreachable {
        /// The causes, innermost last. Never a password.
        what: String,
    },
    /// The database did not answer within the client's own deadline. A write may or may not have happened.
    #[error("no answer from the database within {}", seconds(*after))]
    Deadline {
        /// The deadline.
        after: Duration,
    },
    /// The server that was found is read-only: nothing was written.
    #[error(
        "{host} is read-only (a standby?); give every host in the database URL, with target_session_attrs=read-write"
    )]
    ReadOnly {
        /// Which host of the list it is, with its port.
        host: String,
    },
    /// The database answered with an error.
    #[error("{}", describe(.0))]
    Database(#[source] tokio_postgres::Error),
    /// A row holds something that cannot be read.
    #[error("{what}")]
    Inconsistent {
        /// Which row, which column, and what stands there.
        what: String,
    },
    /// A local file or process that is needed could not be used.
    #[error("{what}")]
    Local {
        /// What was tried, on what, and why it failed.
        what: String,
    },
    /// The work was asked to stop and did so before it was done.
    #[error("interrupted")]
    Interrupted,
}

/// What a holder that lost its lease found in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// No row: it was released or purged.
    Gone,
    /// Somebody else's row.
    Other {
        /// Its state.
        state: State,
        /// How many times the key was acquired.
        attempt: i32,
        /// Who holds or held it, if known.
        owner: Option<String>,
    },
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gone => f.write_str("the row is gone (released or purged)"),
            Self::Other {
                state,
                attempt,
                owner,
            } => {
                let owner = owner.as_deref().unwrap_or("unknown").escape_debug();
                write!(f, "the row is {state}, attempt {attempt}, owner {owner}")
            }
        }
    }
}

impl Error {
    /// The SQLSTATE, where the database gave one.
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Database(error) => error.code().map(tokio_postgres::error::SqlState::code),
            _ => None,
        }
    }

    /// Whether the same statement may succeed when it is simply sent again: serialization failure (40001) and
    /// deadlock (40P01).
    pub fn is_retryable(&self) -> bool {
        matches!(self.sqlstate(), Some("40001" | "40P01"))
    }

    /// Whether a server that we reached could not reach another one for us, as a coordinator of Citus its worker: what
    /// lies there can neither be read nor written for now, everything else can.
    pub fn is_remote(&self) -> bool {
        match self {
            Self::Database(error) => error.as_db_error().is_some_and(|db| {
                // Its own connection to us did not fail, since it tells us so; a pooler's word about that is fatal.
                db.code().code().starts_with("08")
                    && db.code().code() != "08P01"
                    && db.parsed_severity() == Some(tokio_postgres::error::Severity::Error)
            }),
            _ => false,
        }
    }

    /// Whether the connection is of no more use: broken, closed, the server going away (08xxx, 57P01 to
    /// 57P03) or read-only because it is not the primary any more (25006).
    pub fn needs_reconnect(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::ReadOnly { .. } => true,
            Self::Database(error) => match error.code() {
                None => error.is_closed() || error.as_db_error().is_none(),
                Some(code) => {
                    let code = code.code();
                    code.starts_with("08") || matches!(code, "57P01" | "57P02" | "57P03" | "25006")
                }
            },
            _ => false,
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.code().map(tokio_postgres::error::SqlState::code) {
            Some("42P01" | "42703" | "3F000") => Self::Schema {
                what: describe(&error),
            },
            None if error.is_closed() || is_io(&error) => Self::Unreachable {
                what: describe(&error),
            },
            _ => Self::Database(error),
        }
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error + 'static>::is::<std::io::Error>)
}

/// An error of the driver with its causes: its own text is only "db error" or "error connecting to server".
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        // The server quotes what stands in the row.
        let mut text = format!("{} (SQLSTATE {})", masked(db.message()), db.code().code());
        // A constraint's detail is the whole row, with bodies in hex that no mask reads.
        let detail = db
            .detail()
            .filter(|detail| !detail.starts_with("Failing row contains"));
        for part in [detail, db.hint()].into_iter().flatten() {
            text.push_str("; ");
            text.push_str(&masked(part));
        }
        return text;
    }
    chain(error)
}

#[cfg(feature = "operate")]
fn masked(text: &str) -> std::borrow::Cow<'_, str> {
    crate::mask::text(text)
}

/// A service knows its own requests, and masking them is its own affair.
#[cfg(not(feature = "operate"))]
fn masked(text: &str) -> std::borrow::Cow<'_, str> {
    text.into()
}

/// An error and its causes in one line, without saying the same thing twice.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = inner.source();
    }
    text
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}
