//! How long each step of the janitor's loops may take, and whether one is overdue.
//!
//! The bounds come from what the step's own deadlines allow, so that only a loop that hangs in spite of them is
//! found to be stuck. Waiting, connecting again and again, and a purge of many batches are progress.

use std::time::Duration;

use super::{Config, Job};
use crate::connect::Settings;
use crate::ops::expired::Policy;
use crate::pulse::Pulse;

/// What a step may take on top of its deadlines: a busy machine, and asking the server to cancel (2 s).
pub(super) const MARGIN: Duration = Duration::from_secs(15);

/// How many addresses a host name may have before connecting to it counts as stuck too early.
const ADDRESSES: u32 = 8;

/// How many deadlines of its own one question to a provider may take: asked, and asked again before the writing.
const QUESTIONS: u32 = 3;

/// The signs of life of every job's loop. Clones are the same signs.
#[derive(Debug, Clone, Default)]
pub struct Pulses {
    jobs: [Pulse; Job::ALL.len()],
}

impl Pulses {
    /// A job's.
    pub fn of(&self, job: Job) -> &Pulse {
        // `Job::ALL` is in the order of the variants.
        &self.jobs[job as usize]
    }

    /// The loop that hangs, and for how long its sign has been overdue; `None` while all make progress.
    pub fn overdue(&self) -> Option<(Job, Duration)> {
        Job::ALL
            .into_iter()
            .find_map(|job| Some((job, self.of(job).overdue()?)))
    }
}

/// Connecting and looking for the table: every address of every host, twice for `prefer-standby`.
pub(super) fn longest_open(settings: &Settings) -> Duration {
    let hosts = u32::try_from(settings.endpoints.len()).unwrap_or(u32::MAX).max(1);
    let tries = hosts.saturating_mul(2 * (ADDRESSES + 1));
    let connecting = settings.timeouts.connect.saturating_mul(tries);
    connecting.saturating_add(longest_statement(settings).saturating_mul(3))
}

/// One exchange with the server.
fn longest_statement(settings: &Settings) -> Duration {
    settings.timeouts.statement.saturating_add(MARGIN)
}

/// Between two signs of a job's run: a statement, a rest between two batches, a question to a provider.
pub(super) fn longest_step(config: &Config, job: Job) -> Duration {
    let statement = longest_statement(&config.connection);
    let other = match job {
        Job::Purge => config.purge.as_ref().map(|plan| plan.request.pause),
        Job::Expired => config
            .expired
            .as_ref()
            .filter(|plan| plan.request.policy == Policy::Reconcile)
            .map(|_| {
                let turn = config
                    .rps
                    .map_or(Duration::ZERO, |rps| Duration::from_secs_f64(rps.recip()));
                let question = config.providers.longest_timeout().saturating_mul(QUESTIONS);
                question.saturating_add(turn)
            }),
    };
    statement.saturating_add(other.unwrap_or_default())
}
