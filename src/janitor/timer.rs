//! The next time of a job.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::schedule::Schedule;

/// From when the times are counted once a wait is over: `since` by the job's row as it is now, `before` as it was
/// before the wait, where nobody ran the job meanwhile. The time that was waited for then stands, even if the process's
/// clock was set meanwhile.
pub(super) fn counted_from(since: DateTime<Utc>, before: Option<DateTime<Utc>>) -> DateTime<Utc> {
    before.map_or(since, |before| before.min(since))
}

/// Counts down to the first scheduled time after another one, plus jitter.
pub(super) struct Timer {
    pub(super) at: Option<DateTime<Utc>>,
    /// How much later than that.
    pub(super) jitter: Duration,
}

impl Timer {
    pub(super) fn new(schedule: &Schedule, since: DateTime<Utc>, jitter: Duration) -> Self {
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
    use std::collections::HashSet;

    use chrono::TimeDelta;
    use uuid::Uuid;

    use super::*;
    use crate::janitor::Job;
    use crate::janitor::turn::Due;
    use crate::store::JobRow;
    use crate::time::Timestamp;

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

    /// A daemon of the simulation: its clock's error, and what it waits for.
    struct Daemon {
        error: TimeDelta,
        waits: Option<(Timer, Option<Uuid>, DateTime<Utc>)>,
    }

    /// One day of three daemons over one row, in steps of five seconds, without a database: the model of the row is the
    /// library's own [`JobRow`], and due times are computed by [`Due`], [`counted_from`] and [`Timer`], as the loop
    /// does it. A run takes no time. Their clocks differ from the database's by the errors given; each daemon is
    /// started anew at times, and `away` keeps all of them from looking. Returns the database's times of all runs.
    fn day(line: &str, errors: [i64; 3], jitter: Duration, away: std::ops::Range<i64>) -> Vec<DateTime<Utc>> {
        let schedule = Schedule::parse(line, chrono_tz::Tz::UTC).unwrap();
        let start = utc("2026-11-29T00:00:30Z");
        let stamp = |at| Timestamp::from_utc(at).unwrap();
        let mut row = JobRow {
            holder: None,
            token: None,
            held_until: None,
            known_since: stamp(start),
            last_scheduled_at: None,
            last_started_at: None,
            last_finished_at: None,
            last_success_at: None,
            last_outcome: None,
            last_summary: None,
            read_only: false,
            now: stamp(start),
        };
        let mut daemons = errors.map(|error| Daemon {
            error: TimeDelta::milliseconds(error),
            waits: None,
        });
        let (mut runs, mut served) = (Vec::new(), HashSet::new());
        for second in (0..86_400).step_by(5) {
            if away.contains(&second) {
                for daemon in &mut daemons {
                    daemon.waits = None;
                }
                continue;
            }
            let now = start + TimeDelta::seconds(second);
            row.now = stamp(now);
            for daemon in &mut daemons {
                if fastrand::u32(..1_000) == 0 {
                    daemon.waits = None;
                }
                let clock = now + daemon.error;
                let Due::After(since) = Due::new(&row, Job::Purge, clock, None) else {
                    panic!("nobody holds it")
                };
                let (timer, token, before) = daemon.waits.get_or_insert_with(|| {
                    (
                        Timer::new(&schedule, since, jitter.mul_f64(fastrand::f64())),
                        row.token,
                        since,
                    )
                });
                if timer.left(&schedule, clock) != Some(Duration::ZERO) {
                    continue;
                }
                let since = counted_from(since, (*token == row.token).then_some(*before));
                daemon.waits = None;
                if let Some(at) = schedule.next_after(since).filter(|at| *at <= clock) {
                    (row.last_started_at, row.last_scheduled_at) = (Some(row.now), Some(stamp(at)));
                    row.token = Some(Uuid::from_u128(u128::from(now.timestamp().unsigned_abs())));
                    assert!(served.insert(at), "{at} is served twice");
                    runs.push(now);
                }
            }
        }
        runs
    }

    #[test]
    fn a_simulated_day_has_one_run_for_each_time_whatever_the_clocks_say() {
        for errors in [
            [0, 0, 0],
            [-2_000, 0, 2_000],
            [-120_000, 0, 90_000],
            [-300_000, 0, 290_000],
            [700, 300, -400],
        ] {
            let runs = day("*/10 * * * *", errors, Duration::ZERO, 0..0);
            // The first at 00:10; the day's end at 00:00:29 sees the next midnight.
            assert!((143..=145).contains(&runs.len()), "{errors:?}: {}", runs.len());
            // (The first time of a job that is new depends on who looks first.)
            for pair in runs[1..].windows(2) {
                let apart = (pair[1] - pair[0]).num_seconds();
                assert!((240..=840).contains(&apart), "{errors:?}: {pair:?}");
            }
            let daily = day("0 3 * * *", errors, Duration::ZERO, 0..0);
            assert_eq!(daily.len(), 1, "{errors:?}: {daily:?}");
        }
    }

    #[test]
    fn a_simulated_day_with_jitter_and_downtime_has_one_run_to_make_up() {
        let jitter = Duration::from_mins(2);
        let runs = day("*/10 * * * *", [0; 3], jitter, 0..0);
        assert!((143..=145).contains(&runs.len()), "{}", runs.len());
        for run in &runs {
            let late = run.timestamp() % 600;
            assert!(late <= 125, "{run}");
        }
        // Away from 01:00:30 to 07:00:30: 24 of */10's times go into one run, and a daily job's into another.
        let away = 3_600..7 * 3_600;
        let runs = day("*/10 * * * *", [0; 3], Duration::ZERO, away.clone());
        let back = utc("2026-11-29T07:00:30Z");
        let morning: Vec<_> = runs
            .iter()
            .filter(|run| **run < utc("2026-11-29T07:10:00Z"))
            .collect();
        assert_eq!(morning.len(), 6 + 1, "{morning:?}");
        assert_eq!(morning.last(), Some(&&back));
        assert_eq!(day("0 3 * * *", [0; 3], jitter, away), [back]);
    }
}
