//! Rows that could not be ended are left alone for a while, longer each time.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Obstacle, Outcome, Report};
use crate::key::KeyId;
use crate::record::Record;

/// The first and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(1));

/// Most rows that are remembered; beyond that the new ones are simply asked about again.
const MAX_ROWS: usize = 100_000;

/// Which rows are left alone until when. It lives as long as the daemon: after a restart every row is asked
/// about again, once.
#[derive(Debug, Default)]
pub struct Backoff {
    rows: HashMap<KeyId, Pause>,
}

#[derive(Debug)]
struct Pause {
    length: Duration,
    until: Instant,
    /// The attempt that it is about: a retry that failed anew is another matter.
    attempt: i32,
}

impl Backoff {
    /// Whether it is this row's turn.
    pub fn is_due(&self, row: &Record) -> bool {
        self.rows
            .get(&row.id)
            .is_none_or(|pause| pause.attempt != row.attempt || pause.until <= Instant::now())
    }

    /// Remembers what a run brought.
    pub fn note(&mut self, report: &Report) {
        let now = Instant::now();
        for item in &report.items {
            let Some(proposal) = &item.proposal else {
                self.rows.remove(&item.id);
                continue;
            };
            let Some(least) = least_pause(&item.outcome) else {
                self.rows.remove(&item.id);
                continue;
            };
            let attempt = proposal.seen.attempt;
            let before = self.rows.get(&item.id).filter(|pause| pause.attempt == attempt);
            let length = before.map_or(PAUSES.0, |pause| (pause.length * 2).min(PAUSES.1));
            if self.rows.len() >= MAX_ROWS && before.is_none() {
                continue;
            }
            // Some jitter, so that rows that got stuck together are not asked about together for ever.
            let wait = length.mul_f64(0.75 + fastrand::f64() / 2.0).max(least);
            let until = now + wait;
            self.rows.insert(
                item.id.clone(),
                Pause {
                    length,
                    until,
                    attempt,
                },
            );
        }
        // A row that nobody mentioned for so long is gone.
        let forgotten = PAUSES.1 * 4;
        self.rows.retain(|_, pause| pause.until + forgotten > now);
    }
}

/// How long at least a row is left alone; `None` for one that needs no pause.
fn least_pause(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Left(Obstacle::Unknown { not_before, .. }) => Some(not_before.unwrap_or_default()),
        // Not asked: its lane was closed for this run only.
        Outcome::Left(Obstacle::NotAsked(_))
        | Outcome::Proposed
        | Outcome::Completed
        | Outcome::Released
        | Outcome::Changed(_)
        | Outcome::Disagrees(_) => None,
        Outcome::Left(_) | Outcome::Error(_) | Outcome::Unknown => Some(Duration::ZERO),
    }
}
