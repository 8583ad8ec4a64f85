//! What a schedule says of how things stand.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use idemctl::janitor::schedule::Schedule;

/// How many runs ahead are looked at for the longest time between two.
const RUNS_AHEAD: usize = 16;

/// The longest time between two of the next runs, which says little of a schedule with a pause: see [`missed`].
pub(super) fn interval(schedule: &Schedule, now: DateTime<Utc>) -> Option<Duration> {
    let runs = schedule.upcoming(now, RUNS_AHEAD);
    let gaps = runs
        .windows(2)
        .map(|pair| (pair[1].to_utc() - pair[0].to_utc()).to_std());
    gaps.flatten().max()
}

/// For how long the second of the planned times since something happened, `age` seconds ago, has been over: the first
/// should have dealt with it, and something is wrong when the second has come and gone, too. In seconds; 0 before it.
pub(super) fn missed(schedule: &Schedule, now: DateTime<Utc>, age: f64) -> Option<f64> {
    let age = Duration::try_from_secs_f64(age.max(0.0)).ok()?;
    let since = now.checked_sub_signed(TimeDelta::from_std(age).ok()?)?;
    // A schedule that has no further time has missed none.
    let second = schedule
        .next_after(since)
        .and_then(|first| schedule.next_after(first));
    let over = second.and_then(|second| (now - second).to_std().ok());
    Some(over.unwrap_or_default().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_in_the_schedule_is_no_miss() {
        let at = |text: &str| -> DateTime<Utc> { text.parse().unwrap() };
        for (line, now, last, expected) in [
            // By day: the run after the last success may fail, the one after that may not.
            (
                "*/10 8-18 * * *",
                "2026-11-25T12:19:59Z",
                "2026-11-25T12:00:05Z",
                0,
            ),
            (
                "*/10 8-18 * * *",
                "2026-11-25T12:25:00Z",
                "2026-11-25T12:00:05Z",
                300,
            ),
            // At night nothing is planned.
            (
                "*/10 8-18 * * *",
                "2026-11-25T02:00:00Z",
                "2026-11-24T18:50:05Z",
                0,
            ),
            (
                "*/10 8-18 * * *",
                "2026-11-25T08:10:00Z",
                "2026-11-24T18:50:05Z",
                0,
            ),
            (
                "*/10 8-18 * * *",
                "2026-11-25T08:12:00Z",
                "2026-11-24T18:50:05Z",
                120,
            ),
            // From Friday to Monday nothing is planned, either.
            ("0 3 * * 1-5", "2026-11-29T23:00:00Z", "2026-11-27T03:00:09Z", 0),
            ("0 3 * * 1-5", "2026-12-01T03:01:00Z", "2026-11-27T03:00:09Z", 60),
            ("@hourly", "2026-11-25T12:59:00Z", "2026-11-25T10:59:30Z", 59 * 60),
        ] {
            let zone = idemctl::janitor::schedule::zone("UTC").unwrap();
            let schedule = Schedule::parse(line, zone).unwrap();
            let (now, last) = (at(now), at(last));
            let age = (now - last).to_std().unwrap().as_secs_f64();
            let found = missed(&schedule, now, age);
            assert_eq!(
                found.map(f64::round),
                Some(f64::from(expected)),
                "{line} at {now}"
            );
        }
    }
}
