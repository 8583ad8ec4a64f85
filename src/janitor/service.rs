//! The daemon's loop.
//!
//! Each job has its own loop and its own connection, so a long purge never delays the look at stuck rows, and a
//! job never overlaps with itself. Runs that were missed (the machine slept, the last run took long, the
//! database was away) are made up for by one run. Nothing but being asked to stop ends the loop.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::watch;

use super::clock::Clock;
use super::progress::{MARGIN, Pulses, longest_open, longest_step};
use super::reconcile::Memory;
use super::schedule::Schedule;
use super::{Config, Done, Job, Link};
use crate::error::{Error, Result};
use crate::stop::Stop;

/// The longest sleep before looking at the clock again: the clock may be set, and a machine that was suspended
/// does not count that time in its timers.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// Shortest and longest pause before a job is tried again when the database is away.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// What the loop tells whoever runs it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A job will run at this time (plus jitter).
    Scheduled {
        /// Which job.
        job: Job,
        /// When.
        at: DateTime<Utc>,
    },
    /// A job starts.
    Started {
        /// Which job.
        job: Job,
    },
    /// A job's run is over.
    Finished {
        /// How it went.
        done: &'a Done,
    },
    /// A job could not run: no connection, or not the table that is needed.
    NotRun {
        /// Which job.
        job: Job,
        /// Why.
        cause: &'a Error,
        /// When it is tried again; `None`: at its next scheduled time.
        again_in: Option<Duration>,
    },
}

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
/// provider and new try, and says before each step how long that may take.
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
        work.run()
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
    link: Option<Link>,
    memory: Memory,
    /// When the last run started: times that came while it ran are made up for by one run.
    since: Option<DateTime<Utc>>,
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
            link: None,
            memory: Memory::default(),
            since: None,
        }
    }

    async fn run(mut self) {
        while !self.stop.is_soft() {
            let config = Arc::clone(&self.config.borrow_and_update());
            if !self.wait(&config).await {
                continue;
            }
            self.run_job(&config).await;
        }
        if let Some(link) = self.link.take() {
            // Bounded by the connection itself. After a hard stop, too: the server is being asked to stop the
            // statement that was given up, and a process that ended now would leave it running there.
            link.conn.close().await;
        }
        self.memory.pulse.rest();
    }

    /// Waits for the job's next time; `false` when the configuration changed or a stop came first.
    async fn wait(&mut self, config: &Config) -> bool {
        let Some(schedule) = config.schedule(self.job) else {
            // Not configured: until it is.
            self.link = None;
            self.memory.pulse.rest();
            self.changed_or_stopped().await;
            return false;
        };
        let mut timer = Timer::new(
            schedule,
            self.since.unwrap_or_else(|| self.clock.now()),
            config.jitter,
        );
        if let Some(at) = timer.at {
            (self.observe)(Event::Scheduled { job: self.job, at });
        }
        loop {
            let left = timer.left(schedule, self.clock.now());
            if left.is_some_and(|left| left.is_zero()) {
                return true;
            }
            let sleep = left.map_or(MAX_SLEEP, |left| left.min(MAX_SLEEP));
            self.memory.pulse.expect_within(sleep + MARGIN);
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = self.changed_or_stopped() => return false,
            }
        }
    }

    /// Runs the job; while the database is away it is tried again and again.
    async fn run_job(&mut self, config: &Config) {
        let mut pause = BACKOFF.0;
        loop {
            let kept = self.link.is_some();
            let cause = match self.try_job(config).await {
                Ok(Some(done)) => {
                    (self.observe)(Event::Finished { done: &done });
                    match done.cause() {
                        // A connection that was kept may have died long ago; and after a real loss the work
                        // that is left should not wait for the next time.
                        Some(cause) if cause.needs_reconnect() => None,
                        _ => return,
                    }
                }
                Ok(None) => return,
                Err(cause) => Some(cause),
            };
            self.link = None;
            if self.stop.is_soft() {
                return;
            }
            if kept && cause.is_none() {
                continue;
            }
            let wait = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
            if let Some(cause) = &cause {
                let again_in = cause.needs_reconnect().then_some(wait);
                (self.observe)(Event::NotRun {
                    job: self.job,
                    cause,
                    again_in,
                });
                if again_in.is_none() {
                    return;
                }
            }
            pause = (pause * 2).min(BACKOFF.1);
            self.memory.pulse.expect_within(wait + MARGIN);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // The reason may be a wrong address that was put right just now.
                () = self.changed_or_stopped() => return,
            }
        }
    }

    async fn try_job(&mut self, config: &Config) -> Result<Option<Done>> {
        if self.link.as_ref().is_none_or(|link| link.conn.is_closed()) {
            self.memory.pulse.expect_within(longest_open(&config.connection));
            let mut link = Link::open(config, self.stop).await?;
            link.conn.set_pulse(self.memory.pulse.clone());
            self.link = Some(link);
        }
        let Some(link) = self.link.as_mut() else {
            return Ok(None);
        };
        self.since = Some(self.clock.now());
        self.memory.pulse.expect_within(longest_step(config, self.job));
        (self.observe)(Event::Started { job: self.job });
        Ok(link.run(config, self.job, &mut self.memory, self.stop).await)
    }

    /// Ends on a stop and on a new configuration; the latter also closes the connection, whose settings may
    /// have changed.
    async fn changed_or_stopped(&mut self) {
        let stop = self.stop;
        let gone = tokio::select! {
            () = stop.soft() => return,
            changed = self.config.changed() => changed.is_err(),
        };
        // The new lines count from now.
        self.since = None;
        if gone {
            // Nobody will send another configuration.
            stop.soft().await;
        }
        self.link = None;
    }
}

/// The next time of a job.
struct Timer {
    at: Option<DateTime<Utc>>,
    jitter: Duration,
}

impl Timer {
    fn new(schedule: &Schedule, since: DateTime<Utc>, jitter: Duration) -> Self {
        let jitter = jitter.mul_f64(fastrand::f64());
        Self {
            at: schedule.next_after(since),
            jitter,
        }
    }

    /// How long until then; zero when it is time, `None` when there will be none.
    fn left(&mut self, schedule: &Schedule, now: DateTime<Utc>) -> Option<Duration> {
        // When the clock is set back, the time that was computed before lies too far ahead.
        let earlier = schedule.next_after(now);
        self.at = match (self.at, earlier) {
            (Some(at), Some(earlier)) => Some(at.min(earlier)),
            (at, earlier) => at.or(earlier),
        };
        let wait = (self.at? - now).to_std().unwrap_or_default();
        let late = (now - self.at?).to_std().unwrap_or_default();
        Some(wait + self.jitter.saturating_sub(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn a_timer_survives_sleep_jitter_and_a_clock_that_is_set_back() {
        let schedule = Schedule::parse("0 3 * * *", chrono_tz::Tz::UTC).unwrap();
        let mut timer = Timer::new(&schedule, utc("2026-11-29T02:59:00Z"), Duration::ZERO);
        let mut left = |now| timer.left(&schedule, utc(now)).unwrap().as_secs();
        assert_eq!(left("2026-11-29T02:59:00Z"), 60);
        assert_eq!(
            left("2026-11-28T02:59:30Z"),
            30,
            "set back by a day: today's run, not tomorrow's"
        );
        assert_eq!(
            left("2026-12-05T12:00:00Z"),
            0,
            "slept through a week: one run, now"
        );
        let mut timer = Timer {
            at: Some(utc("2026-11-29T03:00:00Z")),
            jitter: Duration::from_secs(20),
        };
        let mut left = |now| timer.left(&schedule, utc(now)).unwrap().as_secs();
        assert_eq!(left("2026-11-29T02:59:00Z"), 80);
        assert_eq!(
            left("2026-11-29T03:00:05Z"),
            15,
            "the jitter is counted from the scheduled time"
        );
        assert_eq!(left("2026-11-29T03:00:20Z"), 0);
    }
}
