//! One run of a job: taken in the database, kept while it lasts, and its end written down.
//!
//! Whoever runs a job holds its row in `idempotency_job` for [`TERM`] and renews that at a third. A holder that dies
//! renews nothing: once its term is over, by the database's clock, somebody else takes the job. A holder that learns
//! that it lost the job, or cannot renew for a whole term, stops after the batch under way. That two work at once
//! for a batch is harmless: each statement that changes a row repeats its whole condition.

mod due;
mod keep;

use std::time::Duration;

use uuid::Uuid;

use super::{Done, Job};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::pulse::Pulse;
use crate::store::job::{End, NewRun, Renewal};
use crate::store::{JobRow, Store};
use crate::time::{Stopwatch, Timestamp};

pub(super) use due::Due;
pub use keep::WhenLost;

/// How long a run's holder may be silent before somebody else may take the job: 60 seconds.
pub const TERM: Duration = Duration::from_mins(1);

/// How often a job is tried to be taken while others keep taking it first.
const TRIES: u32 = 5;

/// Longest summary of a run in the row, in characters.
const MAX_SUMMARY: usize = 500;

/// Somebody runs the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which job.
    pub job: Job,
    /// Host, process id and a nonce of the process; as it stands in the row, so perhaps with control characters.
    pub by: String,
    /// Since when, by the database's clock.
    pub since: Option<Timestamp>,
    /// Until when, unless it is renewed, by the database's clock.
    pub until: Timestamp,
    /// How long that is.
    pub left: Duration,
    pub(super) token: Option<Uuid>,
}

impl std::fmt::Display for Held {
    /// For people: who and since when.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} runs the job {}", self.by.escape_debug(), self.job)?;
        if let Some(since) = self.since {
            write!(f, " since {since}")?;
        }
        Ok(())
    }
}

/// What came of wanting a job.
#[derive(Debug)]
pub enum Taken {
    /// It is ours.
    Ours(Turn),
    /// Somebody else runs it.
    Held(Held),
}

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Ok,
    /// Some of its items failed.
    Partial,
    /// An error ended it. It counts as the run all the same: the next is at the next scheduled time.
    Failed,
    /// Whoever began it by hand stopped it.
    Interrupted,
    /// A daemon was asked to stop in mid-run: whichever daemon looks next goes on at once.
    HandedOn,
}

impl Outcome {
    /// The name in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::HandedOn => "handed_on",
        }
    }

    /// Of a run that came to an end; `stopped`: what it is where it was asked to stop.
    pub(super) fn of(done: &Done, stopped: Self) -> Self {
        if done.is_interrupted() {
            stopped
        } else if done.cause().is_some() {
            Self::Failed
        } else if done.is_partial() {
            Self::Partial
        } else {
            Self::Ok
        }
    }
}

/// A run of a job that is ours. Dropped without [`Turn::finish`], it counts as unfinished once its term is over, and
/// a daemon runs the job again.
#[derive(Debug)]
pub struct Turn {
    job: Job,
    token: Uuid,
    renewal: Renewal,
    /// Since before the term was last written.
    renewed: Stopwatch,
    /// While this is overdue the term is not renewed.
    pulse: Option<Pulse>,
}

impl Turn {
    /// Takes a job now, whatever its schedule says.
    ///
    /// Returns the database's error; SQLSTATE 42501 where the role may not write to `idempotency_job`, and
    /// [`Error::Schema`] where that table is missing.
    pub async fn take(conn: &Connection, store: &Store, job: Job) -> Result<Taken> {
        let token = Uuid::new_v4();
        for _ in 0..TRIES {
            let row = match look(conn, store, job).await {
                // Under REPEATABLE READ and SERIALIZABLE somebody else may have made the row just now.
                Err(error) if error.is_retryable() => continue,
                row => row?,
            };
            if let Some(held) = due::held(&row, job, token) {
                return Ok(Taken::Held(held));
            }
            match Self::take_seen(conn, store, job, token, &row, None).await {
                Ok(Some(turn)) => return Ok(Taken::Ours(turn)),
                Ok(None) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Contended { attempts: TRIES })
    }

    /// Takes the job if its row is still the one that was seen; `None`: somebody was faster.
    pub(super) async fn take_seen(
        conn: &Connection,
        store: &Store,
        job: Job,
        token: Uuid,
        seen: &JobRow,
        scheduled_at: Option<Timestamp>,
    ) -> Result<Option<Self>> {
        let renewed = Stopwatch::start();
        let holder = crate::protocol::owner::default_owner();
        let run = NewRun {
            holder: &holder,
            token,
            term: TERM,
            scheduled_at,
            seen: seen.token,
            furthest: due::FURTHEST,
        };
        let ours = store.job_take(conn, job.as_str(), &run).await?;
        Ok(ours.then(|| Self {
            job,
            token,
            renewal: store.job_renewal(job.as_str(), token, TERM),
            renewed,
            pulse: None,
        }))
    }

    /// Goes on with a run of ours whose connection broke; `None`: somebody else has the job by now.
    pub(super) async fn resume(
        conn: &Connection,
        store: &Store,
        job: Job,
        token: Uuid,
    ) -> Result<Option<Self>> {
        let renewed = Stopwatch::start();
        let renewal = store.job_renewal(job.as_str(), token, TERM);
        let ours = renewal.send(conn).await?;
        Ok(ours.then_some(Self {
            job,
            token,
            renewal,
            renewed,
            pulse: None,
        }))
    }

    /// Has [`Turn::keep`] renew the term only while this is not overdue: work that hangs must not keep the job from
    /// everybody else.
    #[must_use]
    pub fn watched(mut self, pulse: Pulse) -> Self {
        self.pulse = Some(pulse);
        self
    }

    /// Writes down how the run went, and lets the job go. `false`: it was not ours any more, and nothing was changed.
    pub async fn finish(
        &self,
        conn: &Connection,
        store: &Store,
        outcome: Outcome,
        summary: &str,
    ) -> Result<bool> {
        let summary: String = summary
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(MAX_SUMMARY)
            .collect();
        let end = End {
            outcome: outcome.as_str(),
            summary: &summary,
            success: matches!(outcome, Outcome::Ok | Outcome::Partial),
        };
        let mut tries = 0;
        loop {
            match store.job_finish(conn, self.job.as_str(), self.token, &end).await {
                Err(error) if error.is_retryable() && tries < TRIES => tries += 1,
                other => return other,
            }
        }
    }
}

/// The job's row, which is made where there is none: from then on the job is known.
///
/// Returns [`Error::ReadOnly`] where the job could not be taken, since nothing can be written there.
pub async fn look(conn: &Connection, store: &Store, job: Job) -> Result<JobRow> {
    if let Some(row) = store.job_look(conn, job.as_str()).await? {
        if row.read_only {
            let host = conn.facts().host.clone();
            return Err(Error::ReadOnly { host });
        }
        return Ok(row);
    }
    store.job_make(conn, job.as_str()).await?;
    store
        .job_look(conn, job.as_str())
        .await?
        .ok_or_else(|| Error::Inconsistent {
            what: format!(
                "the row of job {job} in {}.idempotency_job was made and is not there; is there a trigger or a row \
                 security policy on the table?",
                store.schema()
            ),
        })
}

/// Says what to do where the role may not use the jobs' table, which older scripts of roles do not know.
pub fn explain(error: Error) -> Error {
    match error.sqlstate() {
        Some("42501") => Error::Inconsistent {
            what: format!(
                "this database role may not use the table idempotency_job, which says who runs the janitor's jobs \
                 ({error}); have it granted: `idemctl migrate --roles` prints the SQL"
            ),
        },
        _ => error,
    }
}
