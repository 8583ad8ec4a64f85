//! What a run leaves behind: who asked for what and heard what, whose money moved, and what the table says.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Whose key: the pair that decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Id {
    pub(super) client: String,
    pub(super) key: String,
}

impl Id {
    pub(super) fn new(client: &str, key: &str) -> Self {
        Self {
            client: client.to_owned(),
            key: key.to_owned(),
        }
    }

    /// Under which the provider knows it.
    pub(super) fn order(&self) -> String {
        let id = idemctl::key::KeyId::new(self.client.as_str(), self.key.as_str()).expect("a key");
        idemctl::provider_key::derive(&id, Some("POST /payments"))
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.client, self.key)
    }
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) id: Id,
    pub(super) amount: u64,
    /// The card is one that the provider declines.
    pub(super) declined: bool,
    /// Asked for after the key had got its answer for another amount: it must be refused for ever.
    pub(super) wrong: bool,
}

/// What a client heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// An answer, complete.
    Answer {
        status: u16,
        /// It said that it was stored earlier.
        replayed: bool,
        body: Vec<u8>,
    },
    /// Time-out, connection refused or broken: anything may have happened.
    Nothing(String),
}

impl Heard {
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Answer { status, .. } => Some(*status),
            Self::Nothing(_) => None,
        }
    }

    /// The payment was made, or the card declined: an answer that must never change.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.status(), Some(201 | 402))
    }

    /// There is nothing to be had by asking for the same again.
    pub(super) fn is_definite(&self) -> bool {
        matches!(self.status(), Some(201 | 402 | 422))
    }
}

/// One request and what came of it.
#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) wish: Wish,
    pub(super) heard: Heard,
    /// Which of the services was asked.
    pub(super) service: usize,
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

impl Exchange {
    /// How long it took.
    pub(super) fn took(&self) -> Duration {
        self.ended - self.started
    }
}

/// One time that the provider was told to charge, also where it charged nothing.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(super) struct Call {
    pub(super) order_id: String,
    /// By the provider's clock, in microseconds.
    pub(super) started_us: u64,
    /// `None`: the caller hung up, and when it stopped waiting is not known to the provider.
    pub(super) ended_us: Option<u64>,
}

/// Money that moved.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub(super) struct Charge {
    pub(super) id: String,
    pub(super) order_id: String,
    pub(super) idempotency_key: Option<String>,
    pub(super) amount: u64,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: Id,
    pub(super) status: String,
    pub(super) status_code: Option<i32>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) attempt: i32,
}

/// Everything that is known in the end.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    pub(super) exchanges: Vec<Exchange>,
    pub(super) ledger: Vec<Charge>,
    pub(super) rows: Vec<Row>,
    /// In the order in which they came.
    pub(super) calls: Vec<Call>,
    /// Keys that an operator gave up: their next attempt is counted as the first again.
    pub(super) released: BTreeSet<Id>,
    /// The service that asks the database once for equal requests of one moment.
    pub(super) shares_flights: Option<usize>,
    /// No service stood still or died, and the database was there all the time: no lease ran out under its holder.
    pub(super) calm: bool,
}
