//! Stuck rows: in progress, and the lease ended long ago. What to do with them is a policy.
//!
//! | policy | what it does |
//! | --- | --- |
//! | report | nothing but count them and name the first |
//! | fail | stores a final error that says that the outcome is unknown |
//! | release | deletes the row, so that the next request starts afresh |
//! | reconcile | here the same as report: [`super::reconcile`] asks the provider about each |
//!
//! Money first: a row that names a provider may stand for a charge, so `release` leaves it alone and says so,
//! unless the configuration accepts that it may be charged twice.

mod apply;

use std::fmt;
use std::time::{Duration, Instant};

use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::ops::Failure;
use crate::ops::actor::Actor;
pub use crate::ops::stuck::Cursor;
use crate::stop::Stop;
use crate::store::Store;

/// Shortest and longest time after the lease's end: 1 second and 10 years (of 365.25 days).
pub const OLDER_THAN_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(87_660));

/// Most rows looked at in one run.
pub const MAX_LIMIT: u32 = 10_000;

/// Where counting ends.
pub const COUNT_CAP: u64 = 1_000_000;

/// What to do with stuck rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Change nothing.
    #[default]
    Report,
    /// Change nothing here either: whoever follows this policy asks the provider about each row with
    /// [`super::reconcile`].
    Reconcile,
    /// Store a final error, replayed like any other answer: no second charge, and the client knows that
    /// somebody must look.
    Fail,
    /// Delete the row.
    Release {
        /// Also rows that name a provider, without asking it: the customer may be charged twice.
        accept_double_charge: bool,
    },
}

impl Policy {
    /// The policy's name in configuration and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Reconcile => "reconcile",
            Self::Fail => "fail",
            Self::Release { .. } => "release",
        }
    }

    /// Whether the policy may be configured beside providers: `release` would give up what a provider could
    /// still tell, and `reconcile` needs one. Returns [`Error::Invalid`] otherwise.
    pub fn check(self, providers_configured: bool) -> Result<()> {
        if self == Self::Reconcile && !providers_configured {
            return Err(Error::Invalid {
                field: "janitor.expired.policy",
                reason: "= \"reconcile\" needs somebody to ask; configure [providers.NAME]".to_owned(),
            });
        }
        if providers_configured
            && matches!(
                self,
                Self::Release {
                    accept_double_charge: false
                }
            )
        {
            let reason = "= \"release\" beside configured providers gives up rows that may have been charged; \
                          use \"report\", \"reconcile\" or \"fail\", or add `accept_double_charge = true`";
            return Err(Error::Invalid {
                field: "janitor.expired.policy",
                reason: reason.to_owned(),
            });
        }
        Ok(())
    }
}

/// Which rows, and what to do with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub policy: Policy,
    /// How long after the lease's end a row counts as stuck: gives the client's own retry the first chance.
    pub older_than: Duration,
    /// Most rows looked at, 1 to [`MAX_LIMIT`].
    pub limit: u32,
    /// Where the last run stopped; `None` starts with the oldest. Rows that stay as they are (left for the
    /// provider, failing) thus never keep later ones from their turn.
    pub after: Option<Cursor>,
    /// Say what would be done and change nothing.
    pub dry_run: bool,
    /// Who acts, for the event log.
    pub actor: Actor,
}

impl Request {
    /// Up to 500 rows whose lease ended more than 10 minutes ago.
    pub fn new(policy: Policy, actor: Actor) -> Self {
        let older_than = Duration::from_mins(10);
        Self {
            policy,
            older_than,
            limit: 500,
            after: None,
            dry_run: false,
            actor,
        }
    }

    /// Checks every limit; [`Error::Invalid`] names the first that is broken.
    pub fn check(&self) -> Result<()> {
        if !(OLDER_THAN_RANGE.0..=OLDER_THAN_RANGE.1).contains(&self.older_than) {
            let reason = format!(
                "is {} s; 1 second to 10 years are allowed",
                self.older_than.as_secs_f64()
            );
            return Err(Error::Invalid {
                field: "older_than",
                reason,
            });
        }
        if !(1..=MAX_LIMIT).contains(&self.limit) {
            let reason = format!("is {}; 1 to {MAX_LIMIT} rows are allowed", self.limit);
            return Err(Error::Invalid {
                field: "limit",
                reason,
            });
        }
        Ok(())
    }
}

/// What became of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A final error is stored.
    Failed,
    /// The row is gone.
    Released,
    /// Left alone: it names this provider, which must be asked first.
    LeftForProvider(String),
    /// Left alone: it changed after it was seen (a retry took it, its holder came back, somebody resolved it).
    Changed,
    /// Left alone for an error, which is told; the other rows go on.
    Error(String),
    /// The commit was not answered: changed or not, the database knows.
    Unknown,
}

/// One row and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The key.
    pub id: KeyId,
    /// What became of it.
    pub outcome: Outcome,
}

/// What there was and what was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The policy that was followed.
    pub policy: Policy,
    /// Stuck rows before anything was done, counted up to [`COUNT_CAP`].
    pub stuck: u64,
    /// Whether the count ended at the cap.
    pub capped: bool,
    /// Seconds since the oldest lease ended.
    pub oldest_seconds: Option<f64>,
    /// The keys whose leases ended first.
    pub first: Vec<KeyId>,
    /// One for each row that was looked at; empty with the policy `report`.
    pub items: Vec<Item>,
    /// Where to go on; `None` when the end was reached.
    pub next: Option<Cursor>,
    /// How long it took.
    pub elapsed: Duration,
    /// Whether it was asked to stop before it was done.
    pub interrupted: bool,
    /// Whether nothing was changed on purpose.
    pub dry_run: bool,
}

impl Report {
    /// Rows that were changed; with a dry run those that would be.
    pub fn changed(&self) -> usize {
        self.items
            .iter()
            .filter(|i| matches!(i.outcome, Outcome::Failed | Outcome::Released))
            .count()
    }

    /// Rows that were left alone for an error, or of which nobody knows.
    pub fn errors(&self) -> usize {
        self.items
            .iter()
            .filter(|i| matches!(i.outcome, Outcome::Error(_) | Outcome::Unknown))
            .count()
    }

    /// Rows that were left alone because their provider must be asked first.
    pub fn left_for_provider(&self) -> usize {
        self.items
            .iter()
            .filter(|i| matches!(i.outcome, Outcome::LeftForProvider(_)))
            .count()
    }
}

impl fmt::Display for Report {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match (self.policy, self.dry_run) {
            (Policy::Report | Policy::Reconcile, _) => return write!(f, "{} stuck rows", self.stuck),
            (Policy::Fail, false) => "marked as failed",
            (Policy::Fail, true) => "would mark as failed",
            (Policy::Release { .. }, false) => "released",
            (Policy::Release { .. }, true) => "would release",
        };
        let (changed, left, errors) = (self.changed(), self.left_for_provider(), self.errors());
        write!(
            f,
            "{} stuck rows, {verb} {changed}, left {left} for their provider, {errors} errors",
            self.stuck
        )
    }
}

/// Looks at the stuck rows and follows the policy, each row in its own transaction with its event.
///
/// A lost race or an error of one row never stops the others; a broken connection does, and the failure
/// carries the report so far. A soft stop ends it after the row under way, a hard one at once.
pub async fn run(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    stop: &Stop,
) -> Result<Report, Failure<Report>> {
    let started = Instant::now();
    let mut report = Report {
        policy: request.policy,
        stuck: 0,
        capped: false,
        oldest_seconds: None,
        first: Vec::new(),
        items: Vec::new(),
        next: None,
        elapsed: Duration::ZERO,
        interrupted: false,
        dry_run: request.dry_run,
    };
    let result = tokio::select! {
        biased;
        () = stop.hard() => {
            report.interrupted = true;
            Err(Error::Interrupted)
        }
        result = apply::all(conn, store, request, stop, &mut report) => result,
    };
    report.elapsed = started.elapsed();
    match result {
        Ok(()) => Ok(report),
        Err(cause) => Err(Failure {
            report: Box::new(report),
            cause,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_beside_providers_must_be_accepted_by_name() {
        let (careful, bold) = (
            Policy::Release {
                accept_double_charge: false,
            },
            Policy::Release {
                accept_double_charge: true,
            },
        );
        assert!(careful.check(false).is_ok() && bold.check(true).is_ok());
        let error = careful.check(true).unwrap_err().to_string();
        assert!(error.contains("accept_double_charge"), "{error}");
    }
}
