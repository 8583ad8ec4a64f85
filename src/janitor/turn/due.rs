//! Whether a job is due, by what its row says.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{Held, Job, TERM};
use crate::store::JobRow;
use crate::time::Timestamp;

/// How far in the database's future a run may have started without a clock being wrong, and how far ahead of a run's
/// start the time may lie that it served: clocks of hosts differ.
const SKEW: TimeDelta = TimeDelta::minutes(10);

/// How far ahead a term may end. Whoever takes or renews a job writes the database's time plus [`TERM`], so that a
/// term that ends later than this (the clock was set back by much, or somebody wrote into the row) is nobody's.
pub(super) const FURTHEST: Duration = TERM.saturating_add(Duration::from_mins(10));

/// The oldest time that a schedule is counted from; a longer absence is one missed run like any other.
const OLDEST: TimeDelta = TimeDelta::days(3_653);

/// When to run the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::janitor) enum Due {
    /// At once: the last run was begun and not finished, or its time is nonsense.
    Now,
    /// It is our own run, and the connection broke.
    Ours,
    /// At the first scheduled time after this one, by the process's clock.
    After(DateTime<Utc>),
    /// Somebody runs it.
    Held(Held),
}

impl Due {
    /// `now` is the process's clock at the moment when the row was read, `ours` the token of a run of our own.
    ///
    /// How long ago something was is told by the database's clock alone. Only then it is put onto the process's clock,
    /// which the schedule is about, so that a difference between the two changes nothing.
    pub(in crate::janitor) fn new(row: &JobRow, job: Job, now: DateTime<Utc>, ours: Option<Uuid>) -> Self {
        if row.held_until.is_some() && row.token == ours && ours.is_some() {
            return Self::Ours;
        }
        if let Some(held) = held(row, job, ours.unwrap_or_default()) {
            return Self::Held(held);
        }
        if row.held_until.is_some() || row.last_outcome.as_deref() == Some("handed_on") {
            return Self::Now;
        }
        let age = age(row.now, row.last_started_at.unwrap_or(row.known_since));
        if age < -SKEW {
            return Self::Now;
        }
        let since = now - age.clamp(TimeDelta::zero(), OLDEST);
        // The host that ran the job may have a clock that is ahead: the time that it served is served.
        let served = row
            .last_scheduled_at
            .and_then(Timestamp::to_utc)
            .filter(|served| *served <= since + SKEW);
        Self::After(served.map_or(since, |served| served.max(since)))
    }
}

/// Who has the job, unless that is nobody or our own run. A term that ends further ahead than [`FURTHEST`] is over.
pub(super) fn held(row: &JobRow, job: Job, ours: Uuid) -> Option<Held> {
    let until = row.held_until?;
    let left = (-age(row.now, until)).to_std().unwrap_or_default();
    if left.is_zero() || left > FURTHEST || row.token == Some(ours) {
        return None;
    }
    Some(Held {
        job,
        by: row.holder.clone().unwrap_or_else(|| "unknown".to_owned()),
        since: row.last_started_at,
        until,
        left,
        token: row.token,
    })
}

/// How long ago a time of the database was; negative: it lies ahead.
fn age(now: Timestamp, then: Timestamp) -> TimeDelta {
    TimeDelta::microseconds(now.to_micros().saturating_sub(then.to_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as of the database's noon, nothing happened yet.
    fn row() -> JobRow {
        let now = at("2026-11-29T12:00:00Z");
        JobRow {
            holder: None,
            token: None,
            held_until: None,
            known_since: now,
            last_scheduled_at: None,
            last_started_at: None,
            last_finished_at: None,
            last_success_at: None,
            last_outcome: None,
            last_summary: None,
            read_only: false,
            now,
        }
    }

    fn utc(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::from_utc(utc(text)).unwrap()
    }

    fn due(row: &JobRow) -> Due {
        // Our clock is an hour behind the database's.
        Due::new(row, Job::Purge, utc("2026-11-29T11:00:00Z"), None)
    }

    #[test]
    fn ages_are_the_databases_and_times_are_ours() {
        let mut row = row();
        assert_eq!(
            due(&row),
            Due::After(utc("2026-11-29T11:00:00Z")),
            "new: from now on"
        );
        row.known_since = at("2026-11-27T12:00:00Z");
        assert_eq!(
            due(&row),
            Due::After(utc("2026-11-27T11:00:00Z")),
            "known, never run"
        );
        row.last_started_at = Some(at("2026-11-29T11:59:50Z"));
        assert_eq!(due(&row), Due::After(utc("2026-11-29T10:59:50Z")));
        // The host that ran it served the time of 11:00 although it is not yet 11:00 here.
        row.last_scheduled_at = Some(at("2026-11-29T11:00:00Z"));
        assert_eq!(due(&row), Due::After(utc("2026-11-29T11:00:00Z")));
        row.last_scheduled_at = Some(at("2027-11-29T11:00:00Z"));
        assert_eq!(
            due(&row),
            Due::After(utc("2026-11-29T10:59:50Z")),
            "a clock that was a year ahead stops nothing"
        );
    }

    #[test]
    fn unfinished_runs_and_nonsense_are_due_at_once() {
        let mut row = row();
        row.last_started_at = Some(at("2026-11-29T11:59:00Z"));
        row.last_outcome = Some("handed_on".to_owned());
        assert_eq!(due(&row), Due::Now);
        row.last_outcome = None;
        for (until, now) in [
            (at("2026-11-29T12:00:00Z"), true),
            (Timestamp::NEG_INFINITY, true),
            (at("2026-11-29T12:00:01Z"), false),
            (at("2026-11-29T12:11:00Z"), false),
            (at("2026-11-29T12:11:01Z"), true),
            (Timestamp::from_micros(i64::MAX), true),
        ] {
            row.held_until = Some(until);
            assert_eq!(due(&row) == Due::Now, now, "{until}");
        }
        row.held_until = None;
        for (started, now) in [
            (at("2026-11-29T12:00:01Z"), false),
            (at("2026-12-29T12:00:00Z"), true),
            (Timestamp::from_micros(i64::MAX), true),
            (Timestamp::NEG_INFINITY, false),
        ] {
            row.last_started_at = Some(started);
            assert_eq!(due(&row) == Due::Now, now, "{started}");
        }
    }

    #[test]
    fn our_own_run_is_not_somebody_elses() {
        let mut row = row();
        let token = Uuid::new_v4();
        (row.token, row.held_until) = (Some(token), Some(at("2026-11-29T12:00:30Z")));
        let now = utc("2026-11-29T11:00:00Z");
        let Due::Held(held) = due(&row) else {
            panic!("{:?}", due(&row))
        };
        assert_eq!(held.left, Duration::from_secs(30));
        assert_eq!(Due::new(&row, Job::Purge, now, Some(token)), Due::Ours);
        row.held_until = None;
        assert!(matches!(
            Due::new(&row, Job::Purge, now, Some(token)),
            Due::After(_)
        ));
    }
}
