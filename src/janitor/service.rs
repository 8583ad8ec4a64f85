//! The daemon's loop.
//!
//! Each job has its own loop and its own connection, so a long purge never delays the look at stuck rows. Of all
//! daemons on one database, one runs a job at a time (see [`super::turn`]); the others wait beside it and take over
//! when it dies. The next time is counted from the last run that the database knows of, whoever made it, so that a
//! daemon that is restarted every hour still runs a daily job. Runs that were missed (no daemon was there, the
//! machine slept, the last run took long, the database was away) are made up for by one run. A job that no janitor
//! has seen before waits for its first scheduled time. Nothing but being asked to stop ends the loop.

mod attempt;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::watch;
use uuid::Uuid;

use super::clock::Clock;
pub use super::event::Event;
use super::progress::{MARGIN, Pulses, longest_open, longest_step};
use super::reconcile::Memory;
use super::schedule::Schedule;
use super::timer::{self, Timer};
use super::turn::{self, Due, Held};
use super::{Config, Job, Link};
use crate::error::{Error, Result};
use crate::protocol::owner::default_owner;
use crate::stop::Stop;
use crate::store::JobRow;

/// The longest sleep before looking at the clock and at the job's row again: the clock may be set, a machine that was
/// suspended does not count that time in its timers, and somebody else may begin a run and die. Shorter than
/// [`turn::TERM`], so that such a run is seen before its term is over.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// Shortest and longest pause before a job that could not be looked at or taken is tried again: the database is away,
/// somebody holds a lock, the table or a grant is missing. A run that began and failed waits for its next time.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// How long a loop may take to say how far it came after it was asked to stop at once.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Shortest and longest pause before looking again at a job that somebody else runs.
const WATCH: (Duration, Duration) = (Duration::from_secs(1), MAX_SLEEP);

/// Runs the jobs until asked to stop: softly after the batch under way, hard at once.
///
/// A new configuration sent through `config` is taken up between two runs; the sender has checked it. Returns
/// an error only for a first configuration that [`Config::check`] refuses.
pub async fn run(
    config: watch::Receiver<Arc<Config>>,
    clock: &Clock,
    stop: &Stop,
    observe: &(impl Fn(Event<'_>) + Sync),
) -> Result<()> {
    run_watched(config, clock, stop, observe, &Pulses::default()).await
}

/// The same, with signs of life: each loop gives one at every wake-up, exchange with the database, answer of a
/// provider and new try, and says before each step how long that may take. (Renewing the term gives none: that
/// goes on beside work that hangs.)
pub async fn run_watched(
    config: watch::Receiver<Arc<Config>>,
    clock: &Clock,
    stop: &Stop,
    observe: &(impl Fn(Event<'_>) + Sync),
    pulses: &Pulses,
) -> Result<()> {
    config.borrow().check()?;
    let job = |job| {
        let mut work = JobLoop::new(job, config.clone(), clock, stop, observe);
        work.memory.pulse = pulses.of(job).clone();
        Box::pin(work.run())
    };
    tokio::join!(job(Job::Purge), job(Job::Expired));
    Ok(())
}

struct JobLoop<'a, O> {
    job: Job,
    config: watch::Receiver<Arc<Config>>,
    clock: &'a Clock,
    stop: &'a Stop,
    observe: &'a O,
    /// The configuration that the connection and what is remembered of its database belong to.
    current: Option<Arc<Config>>,
    link: Option<Link>,
    memory: Memory,
    /// The line that was followed last, and since when it is counted, where another one was followed before.
    line: Option<Schedule>,
    line_since: Option<DateTime<Utc>>,
    /// The last run's token and the time that the next time was counted from, as they were before waiting for it.
    seen: Option<(Option<Uuid>, DateTime<Utc>)>,
    /// The token of our own run, where its connection broke.
    ours: Option<Uuid>,
    /// Whose run is waited for, and how long until the next look.
    watched: Option<(Option<Uuid>, Duration)>,
    /// The next time that was told last.
    told: Option<DateTime<Utc>>,
    /// The jitter that was drawn for a time, once.
    drawn: Option<(DateTime<Utc>, Duration)>,
}

impl<'a, O: Fn(Event<'_>) + Sync> JobLoop<'a, O> {
    fn new(
        job: Job,
        config: watch::Receiver<Arc<Config>>,
        clock: &'a Clock,
        stop: &'a Stop,
        observe: &'a O,
    ) -> Self {
        Self {
            job,
            config,
            clock,
            stop,
            observe,
            current: None,
            link: None,
            memory: Memory::default(),
            line: None,
            line_since: None,
            seen: None,
            ours: None,
            watched: None,
            told: None,
            drawn: None,
        }
    }

    async fn run(mut self) {
        let stop = self.stop;
        let patience = async {
            stop.hard().await;
            tokio::time::sleep(LAST_WORDS).await;
        };
        tokio::select! {
            biased;
            () = self.rounds() => {}
            () = patience => {}
        }
        if let Some(link) = self.link.take() {
            // Bounded by the connection itself. After a hard stop, too: the server is being asked to stop the
            // statement that was given up, and a process that ended now would leave it running there.
            link.conn.close().await;
        }
        self.memory.pulse.rest();
    }

    async fn rounds(&mut self) {
        let stop = self.stop;
        while !stop.is_soft() {
            let config = Arc::clone(&self.config.borrow_and_update());
            self.take_up(&config);
            let Some(schedule) = config.schedule(self.job) else {
                // Not configured: until it is.
                self.link = None;
                self.memory.pulse.rest();
                self.changed_or_stopped().await;
                self.line_since = Some(self.clock.now());
                continue;
            };
            if self.line.as_ref().is_some_and(|line| line != schedule) {
                // A new line counts from now.
                self.line_since = Some(self.clock.now());
            }
            self.line = Some(schedule.clone());
            let due = tokio::select! {
                biased;
                // Looking is no work that has to be finished, and a database that is away would keep us long.
                () = stop.soft() => return,
                due = self.look(&config) => due,
            };
            let Some(due) = due else {
                continue;
            };
            if self.wait(&config, schedule, due).await {
                self.run_job(&config, schedule).await;
                self.told = None;
            }
        }
    }

    /// What was made with another configuration goes: one that came in mid-run may name another database.
    fn take_up(&mut self, config: &Arc<Config>) {
        if self
            .current
            .as_ref()
            .is_some_and(|known| Arc::ptr_eq(known, config))
        {
            return;
        }
        self.current = Some(Arc::clone(config));
        (self.link, self.seen, self.watched) = (None, None, None);
        let pulse = self.memory.pulse.clone();
        self.memory = Memory {
            pulse,
            ..Memory::default()
        };
    }

    /// When the job is due, by its row; whatever keeps it from being read, it is tried again and again. `None` when the
    /// configuration changed or a stop came first.
    async fn look(&mut self, config: &Config) -> Option<Due> {
        let mut pause = BACKOFF.0;
        loop {
            let kept = self.link.is_some();
            let cause = match self.try_look(config).await {
                Ok((row, Due::After(since))) => {
                    let since = timer::counted_from(since, self.before(&row));
                    self.seen = Some((row.token, since));
                    return Some(Due::After(since));
                }
                Ok((_, due)) => {
                    self.seen = None;
                    return Some(due);
                }
                Err(cause) => cause,
            };
            self.link = None;
            if self.stop.is_soft() {
                return None;
            }
            // A connection that was kept may have died long ago.
            if !kept && !self.rest(&cause, &mut pause).await {
                return None;
            }
        }
    }

    async fn try_look(&mut self, config: &Config) -> Result<(JobRow, Due)> {
        let job = self.job;
        let link = self.connect(config).await?;
        let row = turn::look(&link.conn, &link.store, job)
            .await
            .map_err(turn::explain)?;
        let due = Due::new(&row, job, self.clock.now(), self.ours);
        let ours = row.token.map(|_| row.holder == Some(default_owner()));
        (self.observe)(Event::Looked { job, ours });
        Ok((row, due))
    }

    /// From when the times were counted before, if nobody has run the job since.
    fn before(&self, row: &JobRow) -> Option<DateTime<Utc>> {
        let (_, since) = self.seen.filter(|(token, _)| *token == row.token)?;
        Some(since)
    }

    /// Rests before the next try; `false` when the configuration changed or a stop came first.
    async fn rest(&mut self, cause: &Error, pause: &mut Duration) -> bool {
        let wait = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        (self.observe)(Event::NotRun {
            job: self.job,
            cause,
            again_in: wait,
        });
        *pause = (*pause * 2).min(BACKOFF.1);
        self.memory.pulse.expect_within(wait + MARGIN);
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            // The reason may be a wrong address that was put right just now.
            () = self.changed_or_stopped() => false,
        }
    }

    /// Waits until the job is due; `false` when something else is to be looked at first.
    async fn wait(&mut self, config: &Config, schedule: &Schedule, due: Due) -> bool {
        let since = match due {
            Due::Now | Due::Ours => return true,
            Due::Held(held) => {
                self.watch(&held).await;
                return false;
            }
            Due::After(since) => self.counted_from(since),
        };
        self.watched = None;
        let mut timer = Timer::new(schedule, since, Duration::ZERO);
        if let Some(at) = timer.at {
            timer.jitter = self.jitter(at, config.jitter);
        }
        loop {
            let left = timer.left(schedule, self.clock.now());
            if left.is_some_and(|left| left.is_zero()) {
                return true;
            }
            if let Some(at) = timer.at
                && self.told != timer.at
            {
                (self.observe)(Event::Scheduled { job: self.job, at });
                self.told = timer.at;
            }
            let sleep = left.map_or(MAX_SLEEP, |left| left.min(MAX_SLEEP));
            self.memory.pulse.expect_within(sleep + MARGIN);
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = self.changed_or_stopped() => return false,
            }
            if sleep == MAX_SLEEP {
                // Somebody else may have begun a run and died.
                return false;
            }
        }
    }

    /// Drawn once for each time, however often it is waited for.
    fn jitter(&mut self, at: DateTime<Utc>, most: Duration) -> Duration {
        match self.drawn {
            Some((drawn_for, jitter)) if drawn_for == at => jitter.min(most),
            _ => {
                let jitter = most.mul_f64(fastrand::f64());
                self.drawn = Some((at, jitter));
                jitter
            }
        }
    }

    /// Where a new line was given after the last run, its times count from then.
    fn counted_from(&self, since: DateTime<Utc>) -> DateTime<Utc> {
        // When the clock is set back, a line is not new for ever.
        let line = self.line_since.filter(|line| *line <= self.clock.now());
        line.map_or(since, |line| line.max(since))
    }

    /// Waits beside somebody else's run, no longer than its term.
    async fn watch(&mut self, held: &Held) {
        let pause = match self.watched {
            Some((token, pause)) if token == held.token => (pause * 2).min(WATCH.1),
            _ => {
                (self.observe)(Event::Held {
                    job: self.job,
                    by: &held.by,
                    until: held.until,
                });
                WATCH.0
            }
        };
        self.watched = Some((held.token, pause));
        // Whoever heard that somebody runs it hears when it is our turn again.
        self.told = None;
        // A little after the end of the term, and not all at the same moment.
        let over = held
            .left
            .saturating_add(Duration::from_millis(fastrand::u64(50..=500)));
        let sleep = pause.min(over);
        self.memory.pulse.expect_within(sleep + MARGIN);
        tokio::select! {
            () = tokio::time::sleep(sleep) => {}
            () = self.changed_or_stopped() => {}
        }
    }

    async fn connect(&mut self, config: &Config) -> Result<&mut Link> {
        let open = match self.link.take() {
            Some(link) if !link.conn.is_closed() => link,
            _ => {
                self.memory.pulse.expect_within(longest_open(&config.connection));
                let mut link = Link::open(config, self.stop).await?;
                link.conn.set_pulse(self.memory.pulse.clone());
                link
            }
        };
        // What follows is a statement or the job's run.
        self.memory.pulse.expect_within(longest_step(config, self.job));
        Ok(self.link.insert(open))
    }

    /// Ends on a stop and on a new configuration; the latter also closes the connection, whose settings may
    /// have changed.
    async fn changed_or_stopped(&mut self) {
        let stop = self.stop;
        let gone = tokio::select! {
            () = stop.soft() => return,
            changed = self.config.changed() => changed.is_err(),
        };
        if gone {
            // Nobody will send another configuration.
            stop.soft().await;
        }
        self.link = None;
    }
}
