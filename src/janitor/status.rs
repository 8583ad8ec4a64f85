//! How the janitor's jobs stand: a snapshot that is fed by [`Event`]s. Nothing is read or asked here.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

use super::service::Event;
use super::{Done, Job};
use crate::error::Error;
use crate::ops::{expired, reconcile};

/// All jobs, and since when they have been watched.
#[derive(Debug, Clone)]
pub struct Status {
    /// Since when.
    pub since: DateTime<Utc>,
    jobs: [JobStatus; Job::ALL.len()],
}

/// One job. Counts are of this process, since its start.
#[derive(Debug, Clone, Default)]
pub struct JobStatus {
    /// Its next scheduled time.
    pub next: Option<DateTime<Utc>>,
    /// When the run that is under way started.
    pub running: Option<DateTime<Utc>>,
    /// Who runs it, where that is somebody else; as it stands in the database, perhaps with control characters.
    pub held_by: Option<String>,
    /// Whether this process ran the job last, as far as it knows; `None`: it knows of no run.
    pub ours: Option<bool>,
    /// The last run that ended.
    pub last: Option<Run>,
    /// When a run last came to its end, single rows that were left alone notwithstanding.
    pub succeeded: Option<DateTime<Utc>>,
    /// What keeps it from running or made the last run fail; `None` after a run that came to its end, and after another
    /// process's run, which that one tells of.
    pub trouble: Option<Trouble>,
    /// What made the last run fail, if that was ours.
    failure: Option<Trouble>,
    /// The scheduled time for which [`Outcome::NotRun`] was counted last.
    missed: Option<DateTime<Utc>>,
    /// How many runs ended how. A time that came while no run could begin counts as [`Outcome::NotRun`], once.
    pub runs: BTreeMap<Outcome, u64>,
    /// Errors that ended a run or kept it from starting, by [`error_kind`].
    pub errors: BTreeMap<&'static str, u64>,
    /// What the runs did.
    pub counts: Counts,
}

/// A run that ended.
#[derive(Debug, Clone)]
pub struct Run {
    /// When it ended.
    pub ended: DateTime<Utc>,
    /// How.
    pub outcome: Outcome,
    /// One line for people; without keys and clients.
    pub summary: String,
}

/// Why a job does not do its work.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// Since when, without an interruption.
    pub since: DateTime<Utc>,
    /// What sort of error the last cause is; see [`error_kind`].
    pub kind: &'static str,
    /// Whether it was a run that failed; `false`: none can begin.
    pub begun: bool,
    /// The last cause.
    pub what: String,
    /// When it is tried again; `None`: on schedule.
    pub again_in: Option<Duration>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// All was done.
    Done,
    /// It came to its end, and single rows were left alone for an error or a lock.
    Partial,
    /// An error ended it.
    Failed,
    /// It stopped before it was done: asked to, or its job was lost.
    Interrupted,
    /// It could not even begin.
    NotRun,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [
        Self::Done,
        Self::Partial,
        Self::Failed,
        Self::Interrupted,
        Self::NotRun,
    ];

    /// The outcome's name in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::NotRun => "not_run",
        }
    }

    fn of(done: &Done) -> Self {
        match done.cause() {
            _ if done.is_interrupted() => Self::Interrupted,
            Some(_) => Self::Failed,
            None if done.is_partial() => Self::Partial,
            None => Self::Done,
        }
    }
}

/// What a job's runs did, all told.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Rows that the purge deleted.
    pub deleted: u64,
    /// Batches of the purge that deleted something.
    pub batches: u64,
    /// Due rows that the purge stepped over.
    pub skipped: u64,
    /// Events that the purge deleted.
    pub events_deleted: u64,
    /// Stuck rows, by what the policies `fail` and `release` made of them.
    pub expired: BTreeMap<&'static str, u64>,
    /// Stuck rows, by what the policy `reconcile` made of them: the labels of `idemctl_reconcile_total`.
    pub reconciled: BTreeMap<&'static str, u64>,
}

impl Status {
    /// Nothing has happened yet.
    pub fn new(now: DateTime<Utc>) -> Self {
        Self {
            since: now,
            jobs: Default::default(),
        }
    }

    /// One job's.
    pub fn of(&self, job: Job) -> &JobStatus {
        // `Job::ALL` is in the order of the variants.
        &self.jobs[job as usize]
    }

    /// Takes in what the loop tells.
    pub fn note(&mut self, event: &Event<'_>, now: DateTime<Utc>) {
        match event {
            Event::Scheduled { job, at } => {
                let status = self.at(*job);
                (status.next, status.held_by) = (Some(*at), None);
            }
            Event::Looked { job, ours } => {
                let status = self.at(*job);
                status.ours = *ours;
                if *ours == Some(false) {
                    // How the last run went is another process's to tell.
                    status.failure = None;
                }
                status.trouble = status.failure.clone();
            }
            Event::Held { job, by, .. } => {
                let status = self.at(*job);
                (status.held_by, status.ours) = (Some((*by).to_owned()), Some(false));
            }
            Event::Lost { job, .. } => self.at(*job).ours = Some(false),
            Event::Started { job } => {
                let status = self.at(*job);
                (status.running, status.held_by, status.ours) = (Some(now), None, Some(true));
            }
            Event::Finished { done } => self.at(done.job()).finished(done, now),
            Event::NotRun { job, cause, again_in } => {
                let status = self.at(*job);
                if status.next.is_some_and(|next| next <= now) && status.missed != status.next {
                    *status.runs.entry(Outcome::NotRun).or_default() += 1;
                    status.missed = status.next;
                }
                status.failed(cause, Some(*again_in), now);
            }
        }
    }

    fn at(&mut self, job: Job) -> &mut JobStatus {
        &mut self.jobs[job as usize]
    }
}

impl JobStatus {
    fn finished(&mut self, done: &Done, now: DateTime<Utc>) {
        let outcome = Outcome::of(done);
        self.running = None;
        self.counts.add(done);
        *self.runs.entry(outcome).or_default() += 1;
        self.last = Some(Run {
            ended: now,
            outcome,
            summary: done.to_string(),
        });
        match (outcome, done.cause()) {
            (Outcome::Done | Outcome::Partial, _) => {
                self.succeeded = Some(now);
                (self.trouble, self.failure) = (None, None);
            }
            (Outcome::Failed, Some(cause)) => {
                self.failed(cause, None, now);
                self.failure.clone_from(&self.trouble);
            }
            _ => {}
        }
    }

    fn failed(&mut self, cause: &Error, again_in: Option<Duration>, now: DateTime<Utc>) {
        *self.errors.entry(error_kind(cause)).or_default() += 1;
        let since = self.trouble.as_ref().map_or(now, |trouble| trouble.since);
        self.trouble = Some(Trouble {
            since,
            kind: error_kind(cause),
            begun: again_in.is_none(),
            what: cause.to_string(),
            again_in,
        });
    }
}

/// Every label of [`Counts::expired`].
pub const EXPIRED_OUTCOMES: [&str; 6] = ["failed", "released", "left", "changed", "error", "unknown"];

/// Every label of [`Counts::reconciled`].
pub const RECONCILE_OUTCOMES: [&str; 8] = [
    "completed",
    "released",
    "waiting",
    "left",
    "changed",
    "error",
    "unknown",
    "proposed",
];

impl Counts {
    fn add(&mut self, done: &Done) {
        match done {
            Done::Purge(Ok(report)) => self.add_purge(report),
            Done::Purge(Err(failure)) => self.add_purge(&failure.report),
            Done::Expired(Ok(report)) => self.add_expired(report),
            Done::Expired(Err(failure)) => self.add_expired(&failure.report),
            Done::Reconcile(Ok(done)) => self.add_reconcile(&done.report),
            Done::Reconcile(Err(failure)) => self.add_reconcile(&failure.report),
        }
    }

    fn add_purge(&mut self, report: &crate::ops::purge::Report) {
        self.deleted += report.deleted;
        self.batches += report.batches;
        self.skipped += report.skipped;
        self.events_deleted += report.events_deleted;
    }

    fn add_expired(&mut self, report: &expired::Report) {
        for item in &report.items {
            let what = match &item.outcome {
                expired::Outcome::Failed => "failed",
                expired::Outcome::Released => "released",
                expired::Outcome::LeftForProvider(_) => "left",
                expired::Outcome::Changed => "changed",
                expired::Outcome::Error(_) => "error",
                expired::Outcome::Unknown => "unknown",
            };
            *self.expired.entry(what).or_default() += 1;
        }
    }

    fn add_reconcile(&mut self, report: &reconcile::Report) {
        for item in &report.items {
            *self.reconciled.entry(item.outcome.metric()).or_default() += 1;
        }
    }
}

/// Everything that [`error_kind`] says.
pub const ERROR_KINDS: [&str; 10] = [
    "unreachable",
    "deadline",
    "read_only",
    "time_limit",
    "privilege",
    "schema",
    "configuration",
    "inconsistent",
    "database",
    "other",
];

/// What sort of error it is, in a few words that do not change: for counting.
pub fn error_kind(error: &Error) -> &'static str {
    match error {
        Error::Unreachable { .. } => "unreachable",
        Error::Deadline { .. } => "deadline",
        Error::ReadOnly { .. } => "read_only",
        Error::Schema { .. } | Error::Migration { .. } => "schema",
        Error::Invalid { .. } | Error::Settings { .. } => "configuration",
        Error::Inconsistent { .. } => "inconsistent",
        Error::Database(_) => match error.sqlstate() {
            Some("25006") => "read_only",
            Some("57014" | "55P03") => "time_limit",
            Some("42501") => "privilege",
            _ if error.needs_reconnect() => "unreachable",
            _ => "database",
        },
        _ => "other",
    }
}

/// A time of day for people, in UTC.
fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

impl fmt::Display for Status {
    /// One line: each job's last and next run, and what is the matter.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, job) in Job::ALL.into_iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{job}: {}", self.of(job))?;
        }
        Ok(())
    }
}

impl fmt::Display for JobStatus {
    /// Trouble first: a line may be cut where it is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(trouble) = &self.trouble {
            write!(f, "TROUBLE since {} ({})", time(trouble.since), trouble.what)?;
            if let Some(wait) = trouble.again_in {
                write!(f, ", trying again in {:.1} s", wait.as_secs_f64())?;
            }
            f.write_str(", ")?;
        }
        if let Some(by) = &self.held_by {
            write!(f, "run by {}, ", by.escape_debug())?;
        }
        match (&self.running, &self.last) {
            (Some(since), _) => write!(f, "running since {}", time(*since))?,
            (None, Some(run)) => {
                write!(f, "last {} {}", time(run.ended), run.outcome.as_str())?;
                // A failure's summary is the trouble.
                if run.outcome != Outcome::Failed {
                    write!(f, " ({})", run.summary)?;
                }
            }
            (None, None) => f.write_str("no run yet")?,
        }
        match self.next {
            Some(next) => write!(f, ", next {}", time(next)),
            None => f.write_str(", none planned"),
        }
    }
}

#[cfg(test)]
mod tests;
