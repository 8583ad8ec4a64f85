//! What one turn saw.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::error::{Error, Result};

/// Longest time that is told apart: an hour, in microseconds.
const LONGEST_US: u64 = 3_600_000_000;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It did the work.
    Worked,
    /// It got the stored answer.
    Replayed,
    /// Somebody else was at work.
    Busy,
}

/// Counts and times.
#[derive(Debug)]
pub(super) struct Meter {
    /// From having a connection to knowing who does the work, in microseconds.
    pub(super) claim: Histogram<u64>,
    /// For a connection, in microseconds.
    pub(super) wait: Histogram<u64>,
    pub(super) worked: u64,
    pub(super) replayed: u64,
    pub(super) busy: u64,
    pub(super) errors: u64,
    /// The first of them.
    pub(super) error: Option<String>,
    /// How often the work was begun, whatever became of the request.
    pub(super) works: u64,
    /// How often it should have been begun.
    pub(super) due: u64,
    pub(super) elapsed: Duration,
    /// How long the pool had no connection to give.
    pub(super) empty: Duration,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self {
            claim: histogram(),
            wait: histogram(),
            worked: 0,
            replayed: 0,
            busy: 0,
            errors: 0,
            error: None,
            works: 0,
            due: 0,
            elapsed: Duration::ZERO,
            empty: Duration::ZERO,
        }
    }

    /// It is decided who does the work.
    pub(super) fn claimed(&mut self, since: Instant) {
        // It only fails where memory ends.
        let _grown = self.claim.record(micros(since.elapsed()));
    }

    pub(super) fn waited(&mut self, time: Duration) {
        let _grown = self.wait.record(micros(time));
    }

    /// Counts an answer. An error is one too, unless nothing more can be done on this connection.
    pub(super) fn record(&mut self, result: Result<Outcome>) -> Result<()> {
        match result {
            Ok(Outcome::Worked) => self.worked += 1,
            Ok(Outcome::Replayed) => self.replayed += 1,
            Ok(Outcome::Busy) => self.busy += 1,
            Err(error) if is_fatal(&error) => return Err(error),
            Err(error) => {
                self.errors += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
        Ok(())
    }

    /// Requests that got an answer.
    pub(super) fn answers(&self) -> u64 {
        self.worked + self.replayed + self.busy
    }

    pub(super) fn add(&mut self, other: Self) {
        // Both grow as they need to.
        let _grown = self.claim.add(&other.claim);
        let _grown = self.wait.add(&other.wait);
        self.worked += other.worked;
        self.replayed += other.replayed;
        self.busy += other.busy;
        self.errors += other.errors;
        self.error = self.error.take().or(other.error);
        self.works += other.works;
        self.due += other.due;
        self.elapsed += other.elapsed;
        self.empty += other.empty;
    }
}

/// A strategy's own trouble (a violated key, a lock timeout) is a figure; a database that is gone or full is not.
fn is_fatal(error: &Error) -> bool {
    match error {
        Error::Database(_) => {
            let code = error.sqlstate().unwrap_or_default();
            // 53: no more disk, memory or connections; 42: a statement that cannot work here.
            error.needs_reconnect() || code.starts_with("53") || code.starts_with("42")
        }
        Error::LeaseLost { .. } | Error::Contended { .. } => false,
        _ => true,
    }
}

/// It grows with its largest time, so that those of many short turns stay small.
fn histogram() -> Histogram<u64> {
    // Unwrap safety: the crate allows 0 to 5 digits.
    #[expect(clippy::expect_used, reason = "a constant that is allowed")]
    Histogram::new(3).expect("3 digits are allowed")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros())
        .unwrap_or(u64::MAX)
        .min(LONGEST_US)
}
