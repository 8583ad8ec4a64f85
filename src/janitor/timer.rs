//! The next time of a job.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::schedule::Schedule;

/// Counts down to the first scheduled time after another one, plus jitter.
pub(super) struct Timer {
    pub(super) at: Option<DateTime<Utc>>,
    jitter: Duration,
}

impl Timer {
    pub(super) fn new(schedule: &Schedule, since: DateTime<Utc>, jitter: Duration) -> Self {
        let jitter = jitter.mul_f64(fastrand::f64());
        Self {
            at: schedule.next_after(since),
            jitter,
        }
    }

    /// How long until then; zero when it is time, `None` when there will be none.
    pub(super) fn left(&mut self, schedule: &Schedule, now: DateTime<Utc>) -> Option<Duration> {
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
