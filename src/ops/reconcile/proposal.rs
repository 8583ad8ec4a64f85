//! What a provider's answer means for a row.

use std::fmt;
use std::time::Duration;

use crate::key::KeyId;
use crate::ops::ask::Chosen;
use crate::provider::{Payment, ProviderStatus, Verdict};
use crate::record::{Record, State};
use crate::response::Response;
use crate::time::Stopwatch;

/// What would be done with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Store this response: every repeat gets it.
    Complete(Response),
    /// Delete the row: the next request starts afresh.
    Release,
    /// Nothing; why.
    Nothing(Obstacle),
}

/// Why nothing is done with a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// Its lease is alive.
    Live,
    /// It holds a final answer already.
    Final(State),
    /// Its status is a word that we do not know.
    UnknownStatus(String),
    /// It names no provider, and none is configured.
    NoProvider,
    /// Its provider cannot be asked as things are configured.
    Settings(String),
    /// The provider is still at it.
    Pending,
    /// The money is held: somebody has to capture it or give it back.
    Authorized,
    /// The provider cannot tell: why, and how long it makes no sense to ask again, where that is known.
    Unknown {
        /// Why.
        reason: String,
        /// From now.
        not_before: Option<Duration>,
    },
    /// The provider was not asked, because it did not answer before, or because we were told to stop.
    NotAsked(String),
    /// It was charged, but the configuration does not say what to store.
    NoResponse,
    /// It was charged, but what the configuration says cannot be stored.
    BadResponse(String),
    /// The payment that was found is that of another key, which this run completed with it.
    SamePayment(KeyId),
    /// Another key would be asked about under the same order id.
    SameOrder(KeyId),
}

impl Obstacle {
    /// Whether it may pass by itself, so that asking again later makes sense; otherwise a person is needed.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Live | Self::Pending | Self::Unknown { .. } | Self::NotAsked(_) => true,
            Self::Final(_)
            | Self::UnknownStatus(_)
            | Self::NoProvider
            | Self::Settings(_)
            | Self::Authorized
            | Self::NoResponse
            | Self::BadResponse(_)
            | Self::SamePayment(_)
            | Self::SameOrder(_) => false,
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live => f.write_str("the lease is alive: its holder may be at work"),
            Self::Final(state) => write!(f, "the row is {state}: repeats get the stored answer"),
            Self::UnknownStatus(status) => {
                write!(
                    f,
                    "the column status holds {status:?}, which idemctl does not know"
                )
            }
            Self::NoProvider => f.write_str("nobody can be asked: no provider is configured"),
            Self::Settings(problem) => write!(f, "the provider could not be asked: {problem}"),
            Self::Pending => f.write_str("the provider is still at it"),
            Self::Authorized => {
                f.write_str("the money is held, not taken: capture it or give it back at the provider")
            }
            Self::Unknown { reason, .. } => write!(f, "the provider cannot tell: {reason}"),
            Self::NotAsked(why) => write!(f, "not asked: {why}"),
            Self::NoResponse => f.write_str("charged, but the provider's section has no `response` to store"),
            Self::SamePayment(other) => write!(
                f,
                "the payment was taken for that of {other} already: two keys share an order id at the provider"
            ),
            Self::SameOrder(other) => write!(
                f,
                "the stuck key {other} has the same order id at this provider: which of them a payment belongs to, \
                 a person has to tell"
            ),
            Self::BadResponse(problem) => write!(f, "charged, but no response can be stored: {problem}"),
        }
    }
}

impl Action {
    /// The action's name: `complete`, `release`, `wait`, `leave`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Complete(_) => "complete",
            Self::Release => "release",
            Self::Nothing(obstacle) if obstacle.may_pass() => "wait",
            Self::Nothing(_) => "leave",
        }
    }

    /// Whether the row would be changed.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Complete(_) | Self::Release)
    }
}

/// A row, what its provider says, and what that means.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The row as it was seen.
    pub seen: Record,
    /// What the provider said, if it was asked.
    pub status: Option<ProviderStatus>,
    /// What would be done.
    pub action: Action,
    /// Since the provider answered.
    pub answered: Stopwatch,
}

impl Proposal {
    /// What the row itself says, before anybody is asked; `None` where asking makes sense.
    pub(super) fn without_asking(seen: &Record) -> Option<Obstacle> {
        match seen.state {
            Some(State::Expired) => None,
            Some(State::InProgress) => Some(Obstacle::Live),
            Some(state @ (State::Done | State::Failed)) => Some(Obstacle::Final(state)),
            None => Some(Obstacle::UnknownStatus(seen.status.clone())),
        }
    }

    /// Nothing is done, and nobody was asked.
    pub(super) fn nothing(seen: Record, obstacle: Obstacle) -> Self {
        Self {
            seen,
            status: None,
            action: Action::Nothing(obstacle),
            answered: Stopwatch::start(),
        }
    }

    /// What a provider's answer means.
    pub(super) fn of(seen: Record, mut status: ProviderStatus, whom: &Chosen) -> Self {
        let action = match status.verdict {
            Verdict::Charged => charged(whom, status.payment.as_ref()),
            Verdict::NotCharged => Action::Release,
            Verdict::Authorized => Action::Nothing(Obstacle::Authorized),
            Verdict::Pending => Action::Nothing(Obstacle::Pending),
            Verdict::Unknown => Action::Nothing(Obstacle::Unknown {
                reason: status
                    .reason
                    .clone()
                    .unwrap_or_else(|| "no reason given".to_owned()),
                not_before: status.not_before,
            }),
        };
        // It has served its purpose, and many of them would not fit into memory.
        status.payment = None;
        Self {
            seen,
            status: Some(status),
            action,
            answered: Stopwatch::start(),
        }
    }
}

fn charged(whom: &Chosen, payment: Option<&Payment>) -> Action {
    let response = match payment {
        Some(payment) => whom.provider.response(payment),
        None => Ok(None),
    };
    match response {
        Ok(Some(response)) if response.body().len() > crate::response::DEFAULT_MAX_BODY_BYTES => {
            let size = response.body().len();
            Action::Nothing(Obstacle::BadResponse(format!("its body has {size} bytes")))
        }
        Ok(Some(response)) => Action::Complete(response),
        Ok(None) => Action::Nothing(Obstacle::NoResponse),
        Err(error) => Action::Nothing(Obstacle::BadResponse(error.to_string())),
    }
}
