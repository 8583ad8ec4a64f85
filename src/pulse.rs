//! Whether a loop makes progress, without knowing who wants to know.
//!
//! A loop says how long its next step may take, and gives a sign at the end of each; whoever watches (a service
//! manager's watchdog, a health check) sees whether a sign is overdue. Nobody else may give the signs: a task of its
//! own that did would go on while the work hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// No sign is due.
const NEVER: u64 = u64::MAX;

/// One loop's signs of life. Clones are the same pulse. A new one rests.
#[derive(Debug, Clone)]
pub struct Pulse {
    beats: Arc<Beats>,
}

#[derive(Debug)]
struct Beats {
    start: Instant,
    /// Milliseconds from `start` to when the next sign is due.
    due: AtomicU64,
    /// Milliseconds that a step may take.
    limit: AtomicU64,
}

impl Default for Pulse {
    fn default() -> Self {
        let beats = Beats {
            start: Instant::now(),
            due: AtomicU64::new(NEVER),
            limit: AtomicU64::new(NEVER),
        };
        Self {
            beats: Arc::new(beats),
        }
    }
}

impl Pulse {
    /// A sign; from now on each step may take this long.
    pub fn expect_within(&self, limit: Duration) {
        self.beats.limit.store(millis(limit), Ordering::Relaxed);
        self.beat();
    }

    /// A sign; the next is due within the time that was said last.
    pub fn beat(&self) {
        let limit = self.beats.limit.load(Ordering::Relaxed);
        let due = self.now().saturating_add(limit);
        self.beats.due.store(due, Ordering::Relaxed);
    }

    /// Nothing is expected until the next sign: the loop has ended, or waits for something that need not come.
    pub fn rest(&self) {
        self.beats.limit.store(NEVER, Ordering::Relaxed);
        self.beats.due.store(NEVER, Ordering::Relaxed);
    }

    /// For how long a sign has been overdue; `None` while all is well.
    pub fn overdue(&self) -> Option<Duration> {
        let due = self.beats.due.load(Ordering::Relaxed);
        let late = self.now().checked_sub(due).filter(|late| *late > 0)?;
        Some(Duration::from_millis(late))
    }

    /// The monotonic clock only measures; it does not count the time that the machine was suspended.
    fn now(&self) -> u64 {
        millis(self.beats.start.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sign_is_due_within_the_time_that_was_said() {
        let pulse = Pulse::default();
        let pass = tokio::time::advance;
        pass(Duration::from_hours(1)).await;
        assert_eq!(pulse.overdue(), None, "a new one rests");
        pulse.expect_within(Duration::from_secs(10));
        for _ in 0..5 {
            pass(Duration::from_secs(9)).await;
            assert_eq!(pulse.overdue(), None);
            pulse.beat();
        }
        pass(Duration::from_secs(13)).await;
        assert_eq!(pulse.overdue(), Some(Duration::from_secs(3)));
        pulse.clone().beat();
        assert_eq!(pulse.overdue(), None, "late is better than never");
        pulse.rest();
        pass(Duration::from_hours(1)).await;
        assert_eq!(pulse.overdue(), None);
        pulse.beat();
        pass(Duration::from_hours(1)).await;
        assert_eq!(pulse.overdue(), None, "after a rest a limit has to be said again");
    }
}
