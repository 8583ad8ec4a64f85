//! How the table stands, for monitoring: cheap at any size, and honest about where counting ended.
//!
//! Each question stands by itself: where one is not answered (a time limit, a missing table or privilege), the others
//! still are, and the answer says which one is missing and why.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::ops::purge::Retention;
use crate::store::purge::Ttl;
use crate::store::{JobRow, Store};
use crate::time::Timestamp;

/// Where every count ends.
pub const CAP: u64 = 10_000;

/// What the gauges mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How long after the lease's end a row counts as stuck.
    pub older_than: Duration,
    /// After which time rows are due for the purge.
    pub retention: Retention,
    /// Names of the janitor's jobs whose last success is asked for.
    pub jobs: Vec<&'static str>,
    /// Up to which creation time a purge has left nothing that was due
    /// ([`Report::cleared_before`](crate::ops::purge::Report::cleared_before)): the backlog is looked for from there,
    /// since stepping over the index entries of millions of deleted rows takes longer than everything else. `None`
    /// begins with the oldest row.
    pub cleared_before: Option<Timestamp>,
}

/// What is asked, in this order: that which pages somebody comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// [`Gauges::expired`].
    Expired,
    /// [`Gauges::jobs`].
    Jobs,
    /// [`Gauges::in_progress`].
    InProgress,
    /// [`Gauges::backlog`].
    Backlog,
    /// [`Gauges::recent`].
    Recent,
    /// [`Gauges::estimate`].
    Estimate,
}

impl Question {
    /// Every question.
    pub const ALL: [Self; 6] = [
        Self::Expired,
        Self::Jobs,
        Self::InProgress,
        Self::Backlog,
        Self::Recent,
        Self::Estimate,
    ];

    /// The question's name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Jobs => "jobs",
            Self::InProgress => "in_progress",
            Self::Backlog => "backlog",
            Self::Recent => "recent",
            Self::Estimate => "estimate",
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A question that was not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Which.
    pub question: Question,
    /// Why; no password, and nothing of a row.
    pub why: String,
}

/// When a job last came to its end, whoever ran it; by the database's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct JobGauges {
    /// Its name.
    pub job: &'static str,
    /// When; seconds since 1970. `None`: never yet.
    pub last_success: Option<f64>,
    /// How many seconds ago; where there was none yet, since a janitor first saw the job.
    pub since_success: f64,
}

/// A count that ends at [`CAP`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub rows: u64,
    /// Whether counting ended early: there may be more.
    pub capped: bool,
}

impl Count {
    /// One more than the cap was looked for, which tells "exactly the cap" from "more".
    pub(crate) fn new(rows: u64) -> Self {
        Self {
            rows: rows.min(CAP),
            capped: rows > CAP,
        }
    }
}

/// Rows in progress whose lease is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expired {
    /// How many.
    pub all: Count,
    /// Of these, those that are stuck.
    pub stuck: Count,
    /// Seconds since the oldest lease ended; `None` where none is over.
    pub oldest_seconds: Option<f64>,
}

/// Rows that the purge would delete.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backlog {
    /// How many, among the oldest [`CAP`] rows that are old enough to be looked at.
    pub due: Count,
    /// Seconds since the oldest of them became due; `None` where none is.
    pub oldest_seconds: Option<f64>,
}

/// How the table stands. What was asked and not answered is `None`, and stands in [`Gauges::failed`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Gauges {
    /// Rows in progress with a lease that is alive.
    pub in_progress: Option<Count>,
    /// Rows in progress whose lease is over.
    pub expired: Option<Expired>,
    /// Rows that are due for the purge.
    pub backlog: Option<Backlog>,
    /// The newest [`CAP`] rows by state: `in_progress`, `expired`, `done`, `failed`, `unknown`.
    pub recent: Option<[(&'static str, u64); 5]>,
    /// The planner's estimate of all rows; `None`, without a failure, where the table was never analyzed.
    pub estimate: Option<f64>,
    /// The jobs that a janitor has seen.
    pub jobs: Option<Vec<JobGauges>>,
    /// The questions that were not answered, in the order of [`Question::ALL`].
    pub failed: Vec<Failed>,
}

impl Gauges {
    /// Nothing is known, for the same reason throughout: for instance a table that is not there.
    pub fn unknown(why: &Error) -> Self {
        let mut gauges = Self::default();
        for question in Question::ALL {
            gauges.fail(question, why.to_string());
        }
        gauges
    }

    /// Whether this question was not answered.
    pub fn has_failed(&self, question: Question) -> bool {
        self.failed.iter().any(|failed| failed.question == question)
    }

    fn fail(&mut self, question: Question, why: String) {
        self.failed.push(Failed { question, why });
    }
}

/// Whether the server answers at all: the least that can be asked.
pub async fn ping(conn: &Connection, store: &Store) -> Result<()> {
    store.gauges_ping(conn).await
}

/// Reads the gauges: one short statement for each question, and one for each job.
///
/// Each is asked in a transaction of its own, so that the server keeps the connection's time limits behind a pooler,
/// too. Nothing is asked after `deadline`; a statement that runs then is cancelled, and the connection is of no more
/// use.
pub async fn read(conn: &mut Connection, store: &Store, request: &Request, deadline: Instant) -> Gauges {
    let mut gauges = Gauges::default();
    for question in Question::ALL {
        let asked = async {
            // A timeout that is over lets its future begin all the same.
            if Instant::now() >= deadline {
                return std::future::pending().await;
            }
            ask(conn, store, request, question, &mut gauges).await
        };
        let why = match tokio::time::timeout_at(deadline, asked).await {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "there was no time left to ask".to_owned(),
        };
        gauges.fail(question, why);
    }
    gauges
}

async fn ask(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    question: Question,
    gauges: &mut Gauges,
) -> Result<()> {
    let most = i64::try_from(CAP).unwrap_or(i64::MAX);
    let tx = conn.begin().await?;
    match question {
        Question::Expired => {
            let found = store.gauges_expired(&tx, request.older_than, most + 1).await?;
            gauges.expired = Some(Expired {
                all: Count::new(found.rows),
                // The oldest are counted first: one that is not stuck among them means that no further one is.
                stuck: Count::new(found.stuck),
                oldest_seconds: found.oldest,
            });
        }
        Question::Jobs => {
            let mut jobs = Vec::new();
            for job in &request.jobs {
                let row = store.job_look(&tx, job).await?;
                jobs.extend(row.map(|row| JobGauges::new(job, &row)));
            }
            gauges.jobs = Some(jobs);
        }
        Question::InProgress => {
            gauges.in_progress = Some(Count::new(store.gauges_live(&tx, most + 1).await?));
        }
        Question::Backlog => {
            let ttl = Ttl::new(request.retention.done, request.retention.failed);
            let from = request.cleared_before.unwrap_or(Timestamp::NEG_INFINITY);
            let found = store.gauges_backlog(&tx, ttl, most + 1, from).await?;
            gauges.backlog = Some(Backlog {
                due: Count {
                    rows: found.rows.min(CAP),
                    capped: found.seen > CAP,
                },
                oldest_seconds: found.oldest,
            });
        }
        Question::Recent => {
            let recent = store.gauges_recent(&tx, most).await?;
            let known = recent.in_progress + recent.expired + recent.done + recent.failed;
            gauges.recent = Some([
                ("in_progress", recent.in_progress),
                ("expired", recent.expired),
                ("done", recent.done),
                ("failed", recent.failed),
                ("unknown", recent.all.saturating_sub(known)),
            ]);
        }
        Question::Estimate => gauges.estimate = store.gauges_estimate(&tx).await?,
    }
    // Nothing was written: it is rolled back when dropped, and nobody waits for that, lest an answer that is there be
    // called missing.
    Ok(())
}

impl JobGauges {
    fn new(job: &'static str, row: &JobRow) -> Self {
        // Prometheus counts from 1970.
        let seconds = |at: Timestamp| at.to_utc().map(|at| micros_as_seconds(at.timestamp_micros()));
        let last = row.last_success_at.unwrap_or(row.known_since);
        Self {
            job,
            last_success: row.last_success_at.and_then(seconds),
            since_success: micros_as_seconds(row.now.to_micros().saturating_sub(last.to_micros())),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a double holds microseconds exactly for 285 years"
)]
fn micros_as_seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}
