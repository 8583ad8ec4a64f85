//! How the table stands, for monitoring: cheap at any size, and honest about where counting ended.

use std::time::Duration;

use crate::connect::Connection;
use crate::error::Result;
use crate::ops::purge::Retention;
use crate::store::Store;
use crate::store::purge::Ttl;
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
    fn new(rows: u64) -> Self {
        Self {
            rows: rows.min(CAP),
            capped: rows > CAP,
        }
    }
}

/// How the table stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Gauges {
    /// Rows in progress with a lease that is alive.
    pub in_progress: Count,
    /// Rows in progress whose lease is over.
    pub expired: Count,
    /// Of these, those that are stuck.
    pub stuck: Count,
    /// Seconds since the oldest lease ended.
    pub oldest_expired_seconds: Option<f64>,
    /// Rows that the purge would delete, among the oldest [`CAP`] rows that are old enough to be looked at.
    pub backlog: Count,
    /// Seconds since the oldest of them became due.
    pub backlog_oldest_seconds: Option<f64>,
    /// The newest [`CAP`] rows by state: `in_progress`, `expired`, `done`, `failed`, `unknown`.
    pub recent: [(&'static str, u64); 5],
    /// The planner's estimate of all rows; `None` where the table was never analyzed.
    pub estimate: Option<f64>,
    /// The jobs that a janitor has seen.
    pub jobs: Vec<JobGauges>,
}

/// Reads the gauges: five short questions, and one for each job.
pub async fn read(conn: &Connection, store: &Store, request: &Request) -> Result<Gauges> {
    let limit = i64::try_from(CAP + 1).unwrap_or(i64::MAX);
    let expired = store.gauges_expired(conn, request.older_than, limit).await?;
    let live = store.gauges_live(conn, limit).await?;
    let ttl = Ttl::new(request.retention.done, request.retention.failed);
    let due = store.gauges_backlog(conn, ttl, limit).await?;
    let recent = store
        .gauges_recent(conn, i64::try_from(CAP).unwrap_or(i64::MAX))
        .await?;
    let mut jobs = Vec::new();
    for job in &request.jobs {
        if let Some(row) = store.job_look(conn, job).await? {
            let seconds = |at: Timestamp| micros_as_seconds(at.to_micros());
            let last = row.last_success_at.unwrap_or(row.known_since);
            jobs.push(JobGauges {
                job,
                last_success: row.last_success_at.map(seconds),
                since_success: micros_as_seconds(row.now.to_micros().saturating_sub(last.to_micros())),
            });
        }
    }
    let known = recent.in_progress + recent.expired + recent.done + recent.failed;
    Ok(Gauges {
        in_progress: Count::new(live),
        expired: Count::new(expired.rows),
        stuck: Count {
            rows: expired.stuck.min(CAP),
            // The oldest are counted first: one that is not stuck among them means that no further one is.
            capped: expired.stuck > CAP,
        },
        oldest_expired_seconds: expired.oldest,
        backlog: Count {
            rows: due.rows.min(CAP),
            capped: due.seen > CAP,
        },
        backlog_oldest_seconds: due.oldest,
        recent: [
            ("in_progress", recent.in_progress),
            ("expired", recent.expired),
            ("done", recent.done),
            ("failed", recent.failed),
            ("unknown", recent.all.saturating_sub(known)),
        ],
        estimate: store.gauges_estimate(conn).await?,
        jobs,
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a double holds microseconds exactly for 285 years"
)]
fn micros_as_seconds(micros: i64) -> f64 {
    micros as f64 / 1e6
}
