//! Reasons to leave a row alone.

use std::fmt;

use super::Asking;

/// Why nothing is done with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Its lease is alive.
    Live,
    /// It holds a final answer already; which.
    Final(String),
    /// Its status is a word that we do not know.
    UnknownStatus(String),
    /// The provider says otherwise; how.
    Contradiction(String),
    /// The row's provider was asked and cannot say, and the decision says that nothing was charged; how.
    CannotTell(String),
    /// A provider may know, but cannot be asked as things are configured.
    CannotAsk(String),
    /// It was the same person who asked for it.
    SamePerson(Asking),
    /// Two persons were asked for about this row, and the configuration in force knows nothing of that.
    Pending(Asking),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("the lease is alive: its holder may be at work"),
            Self::Final(stored) => write!(f, "the row holds a final answer, which repeats get: {stored}"),
            Self::UnknownStatus(status) => {
                write!(
                    f,
                    "the column status holds {status:?}, which idemctl does not know"
                )
            }
            Self::Contradiction(how) | Self::CannotTell(how) => f.write_str(how),
            Self::CannotAsk(why) => write!(f, "the provider could not be asked: {why}"),
            Self::Pending(asking) => write!(
                f,
                "{asking} asked for it to be confirmed by another person, which this configuration does not know of; \
                 use the one with [audit] approval, or wait until the request is 24 hours old"
            ),
            Self::SamePerson(asking) => {
                write!(
                    f,
                    "it was asked for by {asking}, and it takes another person to confirm it"
                )
            }
        }
    }
}
