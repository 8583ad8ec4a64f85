//! Running a job that is due: taken, done, written down; on another connection where one breaks.

use uuid::Uuid;

use super::super::timer;
use super::super::turn::{self, Due, Outcome, Turn, WhenLost};
use super::super::{Config, Done, writable};
use super::{BACKOFF, Event, JobLoop, MARGIN, Schedule};
use crate::error::{Error, Result};
use crate::time::Timestamp;

impl<O: Fn(Event<'_>) + Sync> JobLoop<'_, O> {
    /// Runs the job unless somebody else did or does; whatever keeps it from being taken, it is tried again and again.
    pub(super) async fn run_job(&mut self, config: &Config, schedule: &Schedule) {
        let mut pause = BACKOFF.0;
        loop {
            let kept = self.link.is_some();
            let cause = match self.try_job(config, schedule).await {
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
            match &cause {
                _ if kept => {}
                Some(cause) => {
                    if !self.rest(cause, &mut pause).await {
                        return;
                    }
                }
                None => {
                    self.memory.pulse.expect_within(pause + MARGIN);
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.changed_or_stopped() => return,
                    }
                    pause = (pause * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// Takes the job and runs it; `None` when it is not due any more, or somebody else has it.
    async fn try_job(&mut self, config: &Config, schedule: &Schedule) -> Result<Option<Done>> {
        let Some(turn) = self.take(config, schedule).await.map_err(turn::explain)? else {
            self.ours = None;
            return Ok(None);
        };
        let (job, stop) = (self.job, self.stop);
        let Some(link) = self.link.as_mut() else {
            return Ok(None);
        };
        (self.observe)(Event::Started { job });
        let turn = turn.watched(self.memory.pulse.clone());
        let memory = &mut self.memory;
        let (done, lost) = turn
            .keep(
                &writable(&config.connection),
                stop,
                WhenLost::Stop,
                |stop| async move { link.run(config, job, memory, &stop).await },
            )
            .await;
        let Some(done) = done else { return Ok(None) };
        let mut lost = lost;
        if !stop.is_hard() && !done.cause().is_some_and(Error::needs_reconnect) {
            lost = self.finish(config, &turn, &done).await.or(lost);
        }
        if let Some(how) = &lost {
            (self.observe)(Event::Lost { job, how });
            self.ours = None;
        }
        Ok(Some(done))
    }

    async fn take(&mut self, config: &Config, schedule: &Schedule) -> Result<Option<Turn>> {
        let (row, due) = self.try_look(config).await?;
        let (job, now) = (self.job, self.clock.now());
        let scheduled_at = match due {
            Due::Held(_) => return Ok(None),
            Due::Ours | Due::Now => None,
            Due::After(since) => {
                let since = timer::counted_from(since, self.before(&row));
                match schedule.next_after(self.counted_from(since)) {
                    Some(at) if at <= now => Timestamp::from_utc(at),
                    // Somebody else was there before us.
                    _ => return Ok(None),
                }
            }
        };
        let token = self.ours.take().filter(|_| due == Due::Ours);
        let Some(link) = self.link.as_ref() else {
            return Ok(None);
        };
        if let Some(token) = token {
            self.ours = Some(token);
            return Turn::resume(&link.conn, &link.store, job, token).await;
        }
        let token = Uuid::new_v4();
        // Before it is sent: the answer may be lost.
        self.ours = Some(token);
        Turn::take_seen(&link.conn, &link.store, job, token, &row, scheduled_at).await
    }

    /// Writes down how the run went; where the connection breaks, once more on another. Returns how the job was lost,
    /// if it was.
    async fn finish(&mut self, config: &Config, turn: &Turn, done: &Done) -> Option<String> {
        let (outcome, summary) = (Outcome::of(done, Outcome::HandedOn), done.to_string());
        let mut answer = Err(Error::Interrupted);
        for _ in 0..2 {
            answer = match self.connect(config).await {
                Ok(link) => turn.finish(&link.conn, &link.store, outcome, &summary).await,
                Err(error) => Err(error),
            };
            if !answer.as_ref().is_err_and(Error::needs_reconnect) {
                break;
            }
            self.link = None;
        }
        self.ours = None;
        match answer {
            Ok(true) => None,
            Ok(false) => Some("somebody else has taken it, since the term was over".to_owned()),
            Err(error) => {
                let job = self.job;
                tracing::warn!(%job, %error, "how the run went could not be written down; the job will be run again");
                None
            }
        }
    }
}
