//! What operators and the janitor do to the table: one module per verb, each `run(.., Request) -> Report`.
//! Nothing here prints, asks or reads the environment.

pub mod actor;
pub mod adopt;
pub mod ask;
pub mod bench;
pub mod compare;
pub mod doctor;
pub mod end;
pub mod expired;
pub mod gauges;
pub mod history;
pub mod inspect;
pub mod list;
pub mod migrate;
pub mod purge;
pub mod reconcile;
pub mod release;
pub mod resolve;
mod scratch;
pub mod selftest;
pub mod stats;
pub mod stuck;
pub mod top;

use std::fmt;

use crate::error::Error;

/// Work on many rows that an error ended. What was committed before stays committed, and is told here.
#[derive(Debug)]
pub struct Failure<R> {
    /// What was done until then.
    pub report: Box<R>,
    /// What ended it.
    pub cause: Error,
}

impl<R: fmt::Display> fmt::Display for Failure<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; before that: {}", self.cause, self.report)
    }
}

impl<R: fmt::Debug + fmt::Display> std::error::Error for Failure<R> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

impl<R> From<Failure<R>> for Error {
    /// Keeps only the cause.
    fn from(failure: Failure<R>) -> Self {
        failure.cause
    }
}
