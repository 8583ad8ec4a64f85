//! The TTL purge: deletes terminal rows whose retention is over, in small batches, and old events.
//!
//! It walks the creation times from the oldest. Each batch looks up (in the index alone) where the next N rows
//! end and deletes what is due in that slice, with every condition in the statement that deletes; the batch and
//! its event are one transaction. Rows in progress are never touched, whatever their age. Everything is decided
//! by the database's clock. Any number of purges may run at once: each row is deleted, and counted, once.

mod events;
mod pace;
mod walk;

use std::time::{Duration, Instant};

use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::ops::Failure;
use crate::ops::actor::Actor;
use crate::stop::Stop;
use crate::store::Store;
use crate::store::purge::Ttl;
use crate::time::Timestamp;

/// Shortest and longest retention: 1 minute and 10 years (of 365.25 days).
pub const TTL_RANGE: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(87_660));

/// Most rows in one batch.
pub const MAX_BATCH_SIZE: u32 = 100_000;

/// Where counting the backlog ends.
pub const BACKLOG_CAP: u64 = 1_000_000;

/// How long rows and events are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Rows `done`, counted from their completion.
    pub done: Duration,
    /// Rows `failed`, counted from their completion.
    pub failed: Duration,
    /// Events; `None` keeps them for ever.
    pub events: Option<Duration>,
}

impl Default for Retention {
    /// 24 hours for rows, 400 days for events: the event log outlives the keys.
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Self {
            done: day,
            failed: day,
            events: Some(day * 400),
        }
    }
}

impl Retention {
    /// Checks that each time lies in [`TTL_RANGE`]; [`Error::Invalid`] names the one that does not.
    pub fn check(&self) -> Result<()> {
        check_ttl("retention.done", self.done)?;
        check_ttl("retention.failed", self.failed)?;
        self.events
            .map_or(Ok(()), |events| check_ttl("retention.events", events))
    }
}

fn check_ttl(field: &'static str, ttl: Duration) -> Result<()> {
    if (TTL_RANGE.0..=TTL_RANGE.1).contains(&ttl) {
        return Ok(());
    }
    let reason = format!(
        "is {} s; 1 minute to 10 years (315576000 s) are allowed",
        ttl.as_secs_f64()
    );
    Err(Error::Invalid { field, reason })
}

/// What to purge, and how gently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How long to keep what.
    pub retention: Retention,
    /// Rows looked at per transaction, 1 to [`MAX_BATCH_SIZE`]. Halved where the database's time limits are met.
    pub batch_size: u32,
    /// Never delete more rows than this.
    pub max_rows: Option<u64>,
    /// Start no further batch after this time.
    pub max_duration: Option<Duration>,
    /// Rest between two batches, at most an hour: lets replicas and the WAL archive keep up.
    pub pause: Duration,
    /// Walk and count by the same conditions, and delete nothing.
    pub dry_run: bool,
    /// Who purges, for the event log.
    pub actor: Actor,
}

impl Request {
    /// Batches of 5,000 without pause and without an upper limit.
    pub fn new(retention: Retention, actor: Actor) -> Self {
        Self {
            retention,
            batch_size: 5_000,
            max_rows: None,
            max_duration: None,
            pause: Duration::ZERO,
            dry_run: false,
            actor,
        }
    }

    /// Checks every limit; [`Error::Invalid`] names the first that is broken.
    pub fn check(&self) -> Result<()> {
        self.retention.check()?;
        if !(1..=MAX_BATCH_SIZE).contains(&self.batch_size) {
            let reason = format!("is {}; 1 to {MAX_BATCH_SIZE} rows are allowed", self.batch_size);
            return Err(Error::Invalid {
                field: "batch_size",
                reason,
            });
        }
        if self.pause > Duration::from_hours(1) {
            let reason = format!("is {} s; at most an hour is allowed", self.pause.as_secs_f64());
            return Err(Error::Invalid {
                field: "pause",
                reason,
            });
        }
        Ok(())
    }

    fn ttl(&self) -> Ttl {
        Ttl::new(self.retention.done, self.retention.failed)
    }
}

/// Where a purge stands after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Rows deleted so far, all committed; with a dry run the rows that would be.
    pub deleted: u64,
    /// Due rows stepped over because somebody held them locked.
    pub skipped: u64,
    /// Batches so far.
    pub batches: u64,
    /// Rows that the next batch looks at.
    pub batch_size: u32,
}

/// Why a purge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// It reached the cut-off.
    Done,
    /// [`Request::max_rows`] was reached.
    MaxRows,
    /// [`Request::max_duration`] was reached.
    MaxDuration,
    /// It was asked to stop.
    Interrupted,
}

impl Stopped {
    /// The reason's name in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::MaxRows => "max_rows",
            Self::MaxDuration => "max_duration",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Rows that are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// How many, counted up to [`BACKLOG_CAP`].
    pub rows: u64,
    /// Whether the count ended at the cap: there are at least that many.
    pub capped: bool,
}

/// What a purge did.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Rows deleted and committed; with a dry run the rows that would be deleted.
    pub deleted: u64,
    /// Batches that deleted something.
    pub batches: u64,
    /// Due rows stepped over: somebody held them locked for longer than a second, or they were refused.
    pub skipped: u64,
    /// Of these, rows that the next purge will hardly delete either, until somebody mends the cause: a foreign key
    /// refers to them, a trigger, a rule or row-level security keeps them, or deleting takes longer than a statement
    /// may.
    pub refused: u64,
    /// Rows of a batch whose commit was not answered: deleted or not, the database knows.
    pub unknown: u64,
    /// Events deleted; with a dry run the events that would be.
    pub events_deleted: u64,
    /// Whether events are due and were left because the connection's role has no DELETE on `idempotency_event`.
    pub events_left: bool,
    /// How long it took.
    pub elapsed: Duration,
    /// Why it ended.
    pub stopped: Stopped,
    /// What is due and still there, counted by the condition that deletes; `None` where counting itself met a
    /// time limit or the purge was interrupted at once.
    pub backlog: Option<Backlog>,
    /// Creation time of the oldest row that is left, whatever its status.
    pub oldest_kept: Option<Timestamp>,
    /// Of the rows created before this time, the purge has left none whose retention was over, nor one that could be
    /// over later, save those that ended long after they began. `None` where it deleted nothing on purpose, or broke
    /// off.
    pub cleared_before: Option<Timestamp>,
    /// Whether nothing was deleted on purpose.
    pub dry_run: bool,
}

impl std::fmt::Display for Report {
    /// One line for a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.dry_run { "would delete" } else { "deleted" };
        write!(f, "{verb} {} rows in {} batches", self.deleted, self.batches)?;
        if self.skipped > self.refused {
            write!(f, ", stepped over {} locked rows", self.skipped - self.refused)?;
        }
        if self.refused > 0 {
            write!(f, ", could not delete {} rows", self.refused)?;
        }
        if self.unknown > 0 {
            write!(
                f,
                ", and whether a last batch of {} rows was deleted is not known",
                self.unknown
            )?;
        }
        if self.events_deleted > 0 {
            write!(f, ", and {} events", self.events_deleted)?;
        }
        if self.events_left {
            f.write_str("; old events were left, because this database role may not delete them")?;
        }
        Ok(())
    }
}

/// Purges once. `progress` is called after each batch.
///
/// A soft stop ends it after the batch under way, a hard one at once (the batch is rolled back; the connection
/// is then of no more use). Statement and lock time limits shrink the batch, and rows that stay locked are
/// stepped over and counted, so one locked row never keeps the others from being deleted. An error that ends
/// the purge comes with the report of what was done.
pub async fn run(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    progress: &mut (impl FnMut(&Progress) + Send),
    stop: &Stop,
) -> Result<Report, Failure<Report>> {
    let started = Instant::now();
    let mut report = Report {
        deleted: 0,
        batches: 0,
        skipped: 0,
        refused: 0,
        unknown: 0,
        events_deleted: 0,
        events_left: false,
        elapsed: Duration::ZERO,
        stopped: Stopped::Done,
        backlog: None,
        oldest_kept: None,
        cleared_before: None,
        dry_run: request.dry_run,
    };
    let result = tokio::select! {
        biased;
        () = stop.hard() => {
            report.stopped = Stopped::Interrupted;
            // With a commit under way nobody knows, and "interrupted" alone would hide that.
            if report.unknown > 0 { Err(Error::Interrupted) } else { Ok(()) }
        }
        result = all(conn, store, request, progress, stop, started, &mut report) => result,
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

async fn all(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    progress: &mut (impl FnMut(&Progress) + Send),
    stop: &Stop,
    started: Instant,
    report: &mut Report,
) -> Result<()> {
    request.check()?;
    let deadline = request.max_duration.and_then(|limit| started.checked_add(limit));
    let limits = walk::Limits { stop, deadline };
    let left_from = walk::rows(conn, store, request, progress, &limits, report).await?;
    if !request.dry_run {
        report.cleared_before = Some(cleared_before(left_from, &request.retention));
    }
    if matches!(report.stopped, Stopped::Done | Stopped::MaxRows) {
        events::purge(conn, store, request, &limits, report).await?;
    }
    // Behind the walk nothing is left, only the index entries of what was deleted, which would take longer to
    // step over than the rows took to delete. After a dry run everything is left.
    let left_from = if request.dry_run {
        Timestamp::NEG_INFINITY
    } else {
        left_from
    };
    match backlog_from(conn, store, &request.retention, left_from).await {
        Ok(backlog) => report.backlog = Some(backlog),
        // The count is a courtesy: it may be too much for the time limit where the purge is not.
        Err(error) if walk::is_time_limit(&error) => tracing::warn!(%error, "could not count the backlog"),
        Err(error) => return Err(error),
    }
    report.oldest_kept = store.purge_oldest(conn).await?;
    Ok(())
}

/// The walk ends where the shorter retention does. Rows that are kept for longer are passed by alive and become due
/// later, so what is cleared for good ends earlier by the difference.
fn cleared_before(left_from: Timestamp, retention: &Retention) -> Timestamp {
    let longer = retention.done.abs_diff(retention.failed);
    // The longest retention is 10 years: some 3 * 10^14 microseconds.
    let longer = i64::try_from(longer.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(left_from.to_micros().saturating_sub(longer))
}

/// Counts what a purge with this retention would delete now.
pub async fn backlog(conn: &Connection, store: &Store, retention: &Retention) -> Result<Backlog> {
    backlog_from(conn, store, retention, Timestamp::NEG_INFINITY).await
}

async fn backlog_from(
    conn: &Connection,
    store: &Store,
    retention: &Retention,
    from: Timestamp,
) -> Result<Backlog> {
    // One more than the cap tells "exactly the cap" from "more".
    let limit = i64::try_from(BACKLOG_CAP + 1).unwrap_or(i64::MAX);
    let ttl = Ttl::new(retention.done, retention.failed);
    let rows = store.purge_backlog(conn, ttl, limit, from).await?;
    Ok(Backlog {
        rows: rows.min(BACKLOG_CAP),
        capped: rows > BACKLOG_CAP,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked_before_anything_is_sent() {
        let ok = Request::new(Retention::default(), Actor::default());
        ok.check().unwrap();
        let seconds = Duration::from_secs;
        for (done, good) in [(59, false), (60, true), (315_576_000, true), (315_576_001, false)] {
            let retention = Retention {
                done: seconds(done),
                ..Retention::default()
            };
            assert_eq!(retention.check().is_ok(), good, "{done}");
        }
        for size in [0, MAX_BATCH_SIZE + 1] {
            assert!(
                Request {
                    batch_size: size,
                    ..ok.clone()
                }
                .check()
                .is_err()
            );
        }
        assert!(
            Request {
                pause: seconds(3_601),
                ..ok
            }
            .check()
            .is_err()
        );
    }
}
