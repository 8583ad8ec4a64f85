//! When a job runs: crontab lines in a named time zone.
//!
//! The words mean what POSIX's crontab and Vixie cron give them: five fields (minute, hour, day of month,
//! month, day of week), 0 and 7 are Sunday, and where both day fields are restricted a day matches when either
//! does. Six fields begin with the second. `@hourly`, `@daily` (`@midnight`), `@weekly`, `@monthly` and
//! `@yearly` (`@annually`) stand for their usual lines. The `cron` crate numbers the week days differently and
//! knows neither five fields nor the either-or rule, so it only gets what is left after our reading: lists of
//! numbers, and wall-clock time without a zone.
//!
//! When clocks change, as Vixie cron does it: a line whose minute or hour begins with `*` follows real time.
//! Any other line names times on the wall: a time that the change skips runs once, right after the gap; a time
//! that comes twice runs the first time only.

mod field;

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Duration, MappedLocalTime, NaiveDateTime, Offset, TimeZone, Utc};
use chrono_tz::Tz;

use crate::error::{Error, Result};
use field::{Field, Kind};

/// Longest accepted line, in bytes.
const MAX_LINE: usize = 500;

/// A crontab line in a time zone.
#[derive(Debug, Clone)]
pub struct Schedule {
    text: String,
    zone: Tz,
    /// Matchers of wall-clock time; a time matches when any of them does.
    matchers: Vec<cron::Schedule>,
    /// Whether the line follows real time through a change of the clocks.
    real_time: bool,
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        (&self.text, self.zone) == (&other.text, other.zone)
    }
}

impl Eq for Schedule {}

impl fmt::Display for Schedule {
    /// The line as it was given.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A time zone by its name in the IANA database, such as `UTC` or `Europe/Berlin`.
pub fn zone(name: &str) -> Result<Tz> {
    Tz::from_str(name).map_err(|_| {
        let reason = format!(
            "{name:?} is not a time zone; give a name of the IANA database such as UTC or Europe/Berlin"
        );
        Error::Invalid {
            field: "timezone",
            reason,
        }
    })
}

impl Schedule {
    /// Reads a line.
    ///
    /// Returns [`Error::Invalid`] naming the field that is wrong, can never match (30 February), or is read
    /// differently by different crons.
    pub fn parse(text: &str, zone: Tz) -> Result<Self> {
        Self::read(text.trim(), zone).map_err(|problem| {
            let reason = format!("{:?}: {problem}", text.trim());
            Error::Invalid {
                field: "schedule",
                reason,
            }
        })
    }

    /// The zone whose clocks the line is about.
    pub fn zone(&self) -> Tz {
        self.zone
    }

    /// The first run after a time; `None` when there is none before the year 2100, where the matcher ends.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if self.real_time {
            self.next_real(after)
        } else {
            self.next_wall(after)
        }
    }

    /// The next `count` runs after a time, in the line's zone.
    pub fn upcoming(&self, after: DateTime<Utc>, count: usize) -> Vec<DateTime<Tz>> {
        std::iter::successors(self.next_after(after), |last| self.next_after(*last))
            .take(count)
            .map(|run| run.with_timezone(&self.zone))
            .collect()
    }

    fn read(text: &str, zone: Tz) -> Result<Self, String> {
        if text.len() > MAX_LINE {
            return Err(format!(
                "has {} bytes; at most {MAX_LINE} are allowed",
                text.len()
            ));
        }
        let line = match text {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            name if name.starts_with('@') => {
                return Err("is not one of @hourly, @daily, @weekly, @monthly, @yearly".to_owned());
            }
            line => line,
        };
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (second, words) = match words.len() {
            5 => (Field::exactly(Kind::Second, 0), &words[..]),
            6 => (Field::parse(Kind::Second, words[0])?, &words[1..]),
            n => {
                return Err(format!(
                    "has {n} fields; give 5 (minute, hour, day of month, month, day of week) or 6 with the \
                     second first"
                ));
            }
        };
        let minute = Field::parse(Kind::Minute, words[0])?;
        let hour = Field::parse(Kind::Hour, words[1])?;
        let day = Field::parse(Kind::DayOfMonth, words[2])?;
        let month = Field::parse(Kind::Month, words[3])?;
        let weekday = Field::parse(Kind::DayOfWeek, words[4])?;
        check_days(&day, &month, &weekday)?;
        let real_time = minute.starts_with_star() || hour.starts_with_star();
        let time = format!("{} {} {}", second.list(), minute.list(), hour.list());
        let days: Vec<(String, String)> = match (day.is_star(), weekday.is_star()) {
            (false, false) => vec![(day.list(), "*".to_owned()), ("*".to_owned(), weekday.list())],
            (true, false) => vec![("*".to_owned(), weekday.list())],
            (_, true) => vec![(day.list(), "*".to_owned())],
        };
        let matchers = days
            .iter()
            .map(|(day, weekday)| {
                cron::Schedule::from_str(&format!("{time} {day} {} {weekday}", month.list()))
                    .map_err(|error| format!("cannot be matched: {error}"))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            text: text.to_owned(),
            zone,
            matchers,
            real_time,
        })
    }

    /// The first matching wall-clock time after one, without regard to any zone.
    fn match_after(&self, wall: NaiveDateTime) -> Option<NaiveDateTime> {
        let after = Utc.from_utc_datetime(&wall);
        self.matchers
            .iter()
            .filter_map(|m| m.after(&after).next())
            .min()
            .map(|found| found.naive_utc())
    }

    /// Times on the wall. Going from wall to world never goes back in time, so the first wall-clock match whose
    /// instant lies after `after` is the next run.
    fn next_wall(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut wall = after.with_timezone(&self.zone).naive_local();
        loop {
            wall = self.match_after(wall)?;
            let instant = self.first_instant(wall);
            if instant > after {
                return Some(instant);
            }
        }
    }

    /// The first instant at which the wall shows this time or, where it is skipped, a later one.
    fn first_instant(&self, wall: NaiveDateTime) -> DateTime<Utc> {
        match self.zone.from_local_datetime(&wall) {
            MappedLocalTime::Single(at) | MappedLocalTime::Ambiguous(at, _) => at.to_utc(),
            MappedLocalTime::None => {
                // No zone is further from UTC than a day, and no change of the clocks is longer than one.
                let middle = Utc.from_utc_datetime(&wall);
                let (low, high) = (middle - Duration::days(2), middle + Duration::days(2));
                first_second(low, high, |at| at.with_timezone(&self.zone).naive_local() >= wall)
            }
        }
    }

    /// Real time: within a stretch of constant offset wall and world run alike.
    fn next_real(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut at = after;
        // The start of a later stretch may itself be a run; `after` may not.
        let mut wall = at.naive_utc() + self.offset(at);
        loop {
            let offset = self.offset(at);
            let run = Utc.from_utc_datetime(&(self.match_after(wall)? - offset));
            match self.next_change(at, run) {
                None => return Some(run),
                Some(change) => {
                    at = change;
                    wall = at.naive_utc() + self.offset(at) - Duration::nanoseconds(1);
                }
            }
        }
    }

    fn offset(&self, at: DateTime<Utc>) -> Duration {
        let offset = self.zone.offset_from_utc_datetime(&at.naive_utc()).fix();
        Duration::seconds(i64::from(offset.local_minus_utc()))
    }

    /// The first change of the offset after `from` and not after `to`.
    fn next_change(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let offset = self.offset(from);
        let mut low = from;
        while low < to {
            // No zone changes its clocks there and back within three days.
            let high = (low + Duration::days(3)).min(to);
            if self.offset(high) != offset {
                return Some(first_second(low, high, |at| self.offset(at) != offset));
            }
            low = high;
        }
        None
    }
}

/// The first whole second in `low < .. <= high` for which a condition holds that, once true, stays true until
/// `high`, where it is true.
fn first_second(
    low: DateTime<Utc>,
    high: DateTime<Utc>,
    holds: impl Fn(DateTime<Utc>) -> bool,
) -> DateTime<Utc> {
    let (mut low, mut high) = (low.timestamp(), high.timestamp());
    let at = |seconds| DateTime::from_timestamp(seconds, 0).unwrap_or_default();
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(at(middle)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    at(high)
}

/// Refuses days that never come, and day fields on whose meaning crons disagree.
fn check_days(day: &Field, month: &Field, weekday: &Field) -> Result<(), String> {
    let (day_stepped, weekday_stepped) = (
        day.starts_with_star() && !day.is_star(),
        weekday.starts_with_star() && !weekday.is_star(),
    );
    if (day_stepped && !weekday.is_star()) || (weekday_stepped && !day.is_star()) {
        return Err(
            "day of month and day of week: a step over `*` beside another day field is read as \"and\" by \
             some crons and as \"or\" by others; write the days out as a range or list"
                .to_owned(),
        );
    }
    let longest = |month: &u32| match month {
        2 => 29,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let possible = day
        .values()
        .iter()
        .any(|day| month.values().iter().any(|month| *day <= longest(month)));
    if !possible && weekday.is_star() {
        return Err("day of month: never comes in the given months".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
