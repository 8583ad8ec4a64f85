//! Keeping a job while its work goes on.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::time::Duration;

use super::{TERM, Turn};
use crate::connect::{Connection, Settings};
use crate::error::Result;
use crate::stop::{Stop, Stopper, channel};
use crate::time::Stopwatch;

/// How often the term is renewed: at a third of [`TERM`], so that two renewals may fail.
const EVERY: Duration = Duration::from_secs(20);

/// Why a term is not renewed although it could be.
const HANGS: &str = "the work makes no progress";

/// Pause after a renewal that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// What a run does when its job is somebody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenLost {
    /// It stops after the batch or row under way, as if it had been asked to.
    Stop,
    /// It goes on: somebody wants this very run.
    GoOn,
}

impl Turn {
    /// Does the work, and renews the term beside it on a connection of its own, which is only opened for a run that
    /// lasts longer than a third of [`TERM`].
    ///
    /// The work gets a [`Stop`] that passes on what `stop` says. Returns what the work returned and, where the job
    /// was lost meanwhile, how.
    pub async fn keep<T, F: Future<Output = T>>(
        &self,
        settings: &Settings,
        stop: &Stop,
        when_lost: WhenLost,
        work: impl FnOnce(Stop) -> F,
    ) -> (T, Option<String>) {
        let (stopper, inner) = channel();
        let mut lost = None;
        let done = {
            let beside = async {
                tokio::join!(pass_on(stop, &stopper), async {
                    lost = Some(self.renew_until_lost(settings).await);
                    if when_lost == WhenLost::Stop {
                        stopper.soft();
                    }
                    pending::<Infallible>().await
                })
            };
            tokio::select! {
                biased;
                (never, _) = beside => match never {},
                done = work(inner) => done,
            }
        };
        (done, lost)
    }

    /// Renews again and again; returns when and why the job is not ours any more.
    async fn renew_until_lost(&self, settings: &Settings) -> String {
        let mut renewed = self.renewed;
        let mut conn = None;
        let mut pause = EVERY;
        loop {
            tokio::time::sleep(pause).await;
            let begun = Stopwatch::start();
            let left = TERM.saturating_sub(renewed.elapsed());
            let answer = async {
                if self.pulse.as_ref().is_some_and(|pulse| pulse.overdue().is_some()) {
                    return Ok(Err(HANGS.to_owned()));
                }
                // A machine that slept through the term may still be the holder: it asks, but not for long.
                let renewal = tokio::time::timeout(left.max(AGAIN), self.renew(&mut conn, settings));
                renewal
                    .await
                    .map(|answer| answer.map_err(|error| error.to_string()))
            };
            let problem = match answer.await {
                Ok(Ok(true)) => {
                    tracing::debug!(job = %self.job, "the term is renewed");
                    (renewed, pause) = (begun, EVERY);
                    continue;
                }
                Ok(Ok(false)) => return "somebody else has taken it, since the term was over".to_owned(),
                Ok(Err(problem)) => problem,
                Err(_) => "no answer in time".to_owned(),
            };
            conn = None;
            if renewed.elapsed() >= TERM {
                return format!(
                    "its term of {} s could not be renewed ({problem}), so that somebody else may have taken it",
                    TERM.as_secs()
                );
            }
            tracing::warn!(job = %self.job, "the term could not be renewed, trying again: {problem}");
            pause = AGAIN;
        }
    }

    async fn renew(&self, conn: &mut Option<Connection>, settings: &Settings) -> Result<bool> {
        let open = match conn.take() {
            Some(open) if !open.is_closed() => open,
            _ => Connection::open(settings).await?,
        };
        self.renewal.send(&*conn.insert(open)).await
    }
}

/// Passes a wish to stop on.
async fn pass_on(stop: &Stop, stopper: &Stopper) -> Infallible {
    stop.soft().await;
    stopper.soft();
    stop.hard().await;
    stopper.hard();
    pending().await
}
