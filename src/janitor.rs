//! The janitor: the jobs `purge` and `expired` on their schedules.
//!
//! [`service::run`] is the daemon's loop, [`run_once`] runs each job once. Both only call `ops`; there is no
//! SQL here, no signal handler, and nothing that decides about a row by the process's clock. Any number of them may
//! run on one database: [`turn`] sees to it that a job is run by one at a time, and once for each scheduled time.

pub mod clock;
mod event;
pub mod progress;
mod reconcile;
pub mod schedule;
pub mod service;
pub mod start;
pub mod status;
mod timer;
pub mod turn;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::connect::{Connection, Settings, Target};
use crate::error::{Error, Result};
use crate::ops::ask::Providers;
use crate::ops::{Failure, expired, purge};
use crate::stop::Stop;
use crate::store::Store;
use reconcile::Memory;
pub use reconcile::Reconciled;
use schedule::Schedule;
use turn::{Held, Outcome, Taken, Turn, WhenLost};

/// Longest jitter: an hour.
pub const MAX_JITTER: Duration = Duration::from_hours(1);

/// The janitor's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Job {
    /// The TTL purge.
    Purge,
    /// The policy for stuck rows.
    Expired,
}

impl Job {
    /// Every job.
    pub const ALL: [Self; 2] = [Self::Purge, Self::Expired];

    /// The job's name in configuration, logs and documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Purge => "purge",
            Self::Expired => "expired",
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A job's request and when to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan<R> {
    /// When.
    pub schedule: Schedule,
    /// What.
    pub request: R,
}

/// Everything that the janitor needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// How to connect.
    pub connection: Settings,
    /// Schema of the table; `None` looks along the search path.
    pub schema: Option<String>,
    /// The purge; `None` does without.
    pub purge: Option<Plan<purge::Request>>,
    /// The policy for stuck rows; `None` does without.
    pub expired: Option<Plan<expired::Request>>,
    /// Whom the policy `reconcile` asks.
    pub providers: Arc<Providers>,
    /// How many questions a second to one provider at most; `None`: no limit.
    pub rps: Option<f64>,
    /// Each run starts up to this much later than scheduled, at random, so that many janitors do not all start
    /// on the same second. At most [`MAX_JITTER`].
    pub jitter: Duration,
}

impl Config {
    /// Checks every request and limit before anything is connected to.
    pub fn check(&self) -> Result<()> {
        if self.jitter > MAX_JITTER {
            let reason = format!("is {} s; at most an hour is allowed", self.jitter.as_secs_f64());
            return Err(Error::Invalid {
                field: "janitor.jitter",
                reason,
            });
        }
        if let Some(plan) = &self.purge {
            plan.request.check()?;
        }
        if let Some(plan) = &self.expired {
            plan.request.check()?;
            plan.request.policy.check(!self.providers.is_empty())?;
            if plan.request.policy == expired::Policy::Reconcile {
                self.providers.check()?;
            }
        }
        if self.purge.is_none() && self.expired.is_none() {
            let reason = "has no job; configure [janitor.purge] or [janitor.expired]".to_owned();
            return Err(Error::Invalid {
                field: "janitor",
                reason,
            });
        }
        Ok(())
    }

    /// The schedule of a job that is configured.
    pub fn schedule(&self, job: Job) -> Option<&Schedule> {
        match job {
            Job::Purge => self.purge.as_ref().map(|plan| &plan.schedule),
            Job::Expired => self.expired.as_ref().map(|plan| &plan.schedule),
        }
    }
}

/// What a job's run brought.
#[derive(Debug)]
pub enum Done {
    /// Of the purge.
    Purge(Result<purge::Report, Failure<purge::Report>>),
    /// Of the policy for stuck rows.
    Expired(Result<expired::Report, Failure<expired::Report>>),
    /// Of the policy for stuck rows, where that is to ask their providers.
    Reconcile(Result<Reconciled, Failure<crate::ops::reconcile::Report>>),
}

impl Done {
    /// Which job.
    pub fn job(&self) -> Job {
        match self {
            Self::Purge(_) => Job::Purge,
            Self::Expired(_) | Self::Reconcile(_) => Job::Expired,
        }
    }

    /// What ended it, if an error did.
    pub fn cause(&self) -> Option<&Error> {
        match self {
            Self::Purge(result) => result.as_ref().err().map(|failure| &failure.cause),
            Self::Expired(result) => result.as_ref().err().map(|failure| &failure.cause),
            Self::Reconcile(result) => result.as_ref().err().map(|failure| &failure.cause),
        }
    }

    /// Whether the run stopped before it was done, since it was asked to or lost its job.
    pub fn is_interrupted(&self) -> bool {
        if matches!(self.cause(), Some(Error::Interrupted)) {
            return true;
        }
        match self {
            Self::Purge(result) => result
                .as_ref()
                .is_ok_and(|report| report.stopped == purge::Stopped::Interrupted),
            Self::Expired(result) => result.as_ref().is_ok_and(|report| report.interrupted),
            Self::Reconcile(result) => result.as_ref().is_ok_and(|done| done.report.interrupted),
        }
    }

    /// Whether items of the run failed although the run itself did not.
    pub fn is_partial(&self) -> bool {
        match self {
            // Rows that others hold locked are left for the next run, as `idemctl purge` leaves them.
            Self::Purge(result) => result.as_ref().is_ok_and(|report| report.refused > 0),
            Self::Expired(result) => result.as_ref().is_ok_and(|report| report.errors() > 0),
            Self::Reconcile(result) => result
                .as_ref()
                .is_ok_and(|done| done.report.errors() > 0 || !done.unreadable.is_empty()),
        }
    }
}

impl fmt::Display for Done {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Purge(Ok(report)) => report.fmt(f),
            Self::Purge(Err(failure)) => failure.fmt(f),
            Self::Expired(Ok(report)) => report.fmt(f),
            Self::Expired(Err(failure)) => failure.fmt(f),
            Self::Reconcile(Ok(report)) => report.fmt(f),
            Self::Reconcile(Err(failure)) => failure.fmt(f),
        }
    }
}

/// Runs each configured job once, now, one after the other. A job that somebody else runs at that moment is left to
/// them, and told.
///
/// A job that fails does not keep the next from running. Returns the error of a database that could not be
/// reached, or of a table that is not as expected, when no job has run; one that comes between two jobs ends the
/// round, and what was done before is returned with it.
pub async fn run_once(config: &Config, stop: &Stop) -> Result<Round> {
    config.check()?;
    let mut link = Link::open(config, stop).await?;
    let mut round = Round::default();
    for job in Job::ALL {
        if stop.is_soft() {
            break;
        }
        if config.schedule(job).is_none() {
            continue;
        }
        if let Err(cause) = one(&mut link, config, job, stop, &mut round).await {
            if round.done.is_empty() && round.held.is_empty() {
                return Err(cause);
            }
            round.ended_by = Some(cause);
            return Ok(round);
        }
    }
    link.conn.close().await;
    Ok(round)
}

/// One job of a round.
async fn one(link: &mut Link, config: &Config, job: Job, stop: &Stop, round: &mut Round) -> Result<()> {
    if link.conn.is_closed() {
        *link = Link::open(config, stop).await?;
    }
    let turn = match Turn::take(&link.conn, &link.store, job)
        .await
        .map_err(turn::explain)?
    {
        Taken::Ours(turn) => turn,
        Taken::Held(held) => {
            round.held.push(held);
            return Ok(());
        }
    };
    let mut memory = Memory::default();
    let (done, lost) = {
        let (link, memory) = (&mut *link, &mut memory);
        turn.keep(
            &writable(&config.connection),
            stop,
            WhenLost::Stop,
            |stop| async move { link.run(config, job, memory, &stop).await },
        )
        .await
    };
    if let Some(lost) = lost {
        tracing::warn!(%job, "the job was lost, and stopped: {lost}");
    }
    let Some(done) = done else { return Ok(()) };
    let outcome = Outcome::of(&done, Outcome::Interrupted);
    // After a stop at once there is nothing to be waited for.
    if !stop.is_hard() {
        let summary = done.to_string();
        let finish = turn.finish(&link.conn, &link.store, outcome, &summary);
        if let Err(error) = finish.await {
            tracing::warn!(%job, %error, "how the run went could not be written down; a daemon will run the job again");
        }
    }
    round.done.push(done);
    Ok(())
}

/// What [`run_once`] did.
#[derive(Debug, Default)]
pub struct Round {
    /// The jobs that ran, well or not.
    pub done: Vec<Done>,
    /// The jobs that did not run since somebody else runs them.
    pub held: Vec<Held>,
    /// The error that kept the rest from running.
    pub ended_by: Option<Error>,
}

/// How the janitor connects: of several hosts it wants the one that it can write to, unless told something else.
fn writable(settings: &Settings) -> Cow<'_, Settings> {
    if settings.target != Target::Any || settings.endpoints.len() < 2 {
        return Cow::Borrowed(settings);
    }
    Cow::Owned(Settings {
        target: Target::ReadWrite,
        ..settings.clone()
    })
}

/// A connection and the table that was found on it.
struct Link {
    conn: Connection,
    store: Store,
}

impl Link {
    async fn open(config: &Config, stop: &Stop) -> Result<Self> {
        let open = async {
            let conn = Connection::open(&writable(&config.connection)).await?;
            let store = Store::open(&conn, config.schema.as_deref()).await?;
            Ok(Self { conn, store })
        };
        tokio::select! {
            biased;
            () = stop.soft() => Err(Error::Interrupted),
            link = open => link,
        }
    }

    /// Runs a job, if it is configured.
    async fn run(&mut self, config: &Config, job: Job, memory: &mut Memory, stop: &Stop) -> Option<Done> {
        match job {
            Job::Purge => {
                let Self { conn, store } = self;
                let request = &config.purge.as_ref()?.request;
                Some(Done::Purge(
                    purge::run(conn, store, request, &mut |_| {}, stop).await,
                ))
            }
            Job::Expired => {
                let mut request = config.expired.as_ref()?.request.clone();
                if request.policy == expired::Policy::Reconcile {
                    let done = Box::pin(reconcile::run(self, config, &request, memory, stop)).await;
                    return Some(Done::Reconcile(done));
                }
                let Self { conn, store } = self;
                request.after = memory.cursor.take();
                let done = expired::run(conn, store, &request, stop).await;
                if let Ok(report) = &done {
                    memory.cursor.clone_from(&report.next);
                }
                Some(Done::Expired(done))
            }
        }
    }
}
