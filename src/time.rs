//! Points in time as the database gives them.

use std::error::Error as StdError;

use bytes::BytesMut;
use chrono::{DateTime, SecondsFormat, Utc};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// Microseconds from the Unix epoch to PostgreSQL's own epoch, 2000-01-01.
const EPOCH_OFFSET_MICROS: i64 = 946_684_800_000_000;

/// A `timestamptz` of the database, read without loss.
///
/// `infinity`, `-infinity` and years that no calendar library reaches are values like any other here: a
/// debugger must be able to show a row that holds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From microseconds since 2000-01-01, PostgreSQL's own count.
    #[cfg(feature = "operate")]
    pub(crate) fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 2000-01-01, PostgreSQL's own count.
    #[cfg(feature = "operate")]
    pub(crate) fn to_micros(self) -> i64 {
        self.0
    }

    /// Later by a duration; `None` for the infinities and beyond the range.
    pub fn checked_add(self, duration: std::time::Duration) -> Option<Self> {
        self.to_utc()?;
        self.0
            .checked_add(i64::try_from(duration.as_micros()).ok()?)
            .map(Self)
    }

    /// Seconds from an earlier time to this one, negative where that is the later; `None` where either is infinite.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a double holds microseconds exactly for 285 years"
    )]
    pub fn seconds_since(self, earlier: Self) -> Option<f64> {
        let finite = |time: Self| time.0 != i64::MAX && time.0 != i64::MIN;
        (finite(self) && finite(earlier)).then(|| self.0.saturating_sub(earlier.0) as f64 / 1e6)
    }

    /// The time as chrono has it; `None` for the infinities and for what lies outside chrono's range.
    pub fn to_utc(self) -> Option<DateTime<Utc>> {
        if self.0 == i64::MAX || self.0 == i64::MIN {
            return None;
        }
        self.0
            .checked_add(EPOCH_OFFSET_MICROS)
            .and_then(DateTime::from_timestamp_micros)
    }
}

#[cfg(feature = "operate")]
impl Timestamp {
    /// Before every other time.
    pub(crate) const NEG_INFINITY: Self = Self(i64::MIN);

    /// The earliest time that PostgreSQL has besides `-infinity`: 24 November 4714 BC (manual, section 8.5).
    const EARLIEST: Self = Self(-211_813_488_000_000_000);

    /// From chrono's time; `None` before the year 1 and after 9999, where no two programs agree on the spelling.
    pub(crate) fn from_utc(time: DateTime<Utc>) -> Option<Self> {
        use chrono::Datelike;
        let micros = time.timestamp_micros().checked_sub(EPOCH_OFFSET_MICROS)?;
        (1..=9999).contains(&time.year()).then_some(Self(micros))
    }

    /// The next time that PostgreSQL can hold: a microsecond later.
    pub(crate) fn successor(self) -> Self {
        if self == Self::NEG_INFINITY {
            Self::EARLIEST
        } else {
            Self(self.0.saturating_add(1))
        }
    }

    /// The last time before this one that PostgreSQL has.
    pub(crate) fn predecessor(self) -> Self {
        if self <= Self::EARLIEST {
            Self::NEG_INFINITY
        } else {
            Self(self.0.saturating_sub(1))
        }
    }

    /// Whether it is neither of the infinities.
    pub(crate) fn is_finite(self) -> bool {
        self.0 != i64::MIN && self.0 != i64::MAX
    }
}

impl std::fmt::Display for Timestamp {
    /// RFC 3339 in UTC, with as many fractional digits as needed; `infinity` and `-infinity` as PostgreSQL
    /// writes them.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.0, self.to_utc()) {
            (i64::MAX, _) => f.write_str("infinity"),
            (i64::MIN, _) => f.write_str("-infinity"),
            (_, Some(utc)) => f.write_str(&utc.to_rfc3339_opts(SecondsFormat::AutoSi, true)),
            (micros, None) => write!(f, "{micros} us after 2000-01-01"),
        }
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'a> FromSql<'a> for Timestamp {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

impl ToSql for Timestamp {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        <Self as FromSql<'_>>::accepts(ty)
    }

    to_sql_checked!();
}

/// How long ago something happened in this process, the time included that the machine slept.
///
/// The monotonic clock stands still while a machine is suspended, and the wall clock may be set: the longer of the
/// two is what counts where too short would be dangerous. It never decides about a row; it only says how old an
/// answer is that was read before.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch {
    started: std::time::Instant,
    wall: std::time::SystemTime,
}

impl Stopwatch {
    /// From now on.
    #[expect(
        clippy::disallowed_methods,
        reason = "it is compared with itself alone, to notice that the machine slept"
    )]
    pub fn start() -> Self {
        Self {
            started: std::time::Instant::now(),
            wall: std::time::SystemTime::now(),
        }
    }

    /// As if it had been started so long ago.
    #[cfg(all(test, feature = "operate"))]
    pub(crate) fn started_ago(age: std::time::Duration) -> Self {
        let now = Self::start();
        Self {
            started: now.started.checked_sub(age).unwrap_or(now.started),
            ..now
        }
    }

    /// Since the start.
    pub fn elapsed(&self) -> std::time::Duration {
        self.started
            .elapsed()
            .max(self.wall.elapsed().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_can_be_shown() {
        assert_eq!(Timestamp(0).to_string(), "2000-01-01T00:00:00Z");
        assert_eq!(Timestamp(1_500).to_string(), "2000-01-01T00:00:00.001500Z");
        assert_eq!(Timestamp(i64::MAX).to_string(), "infinity");
        assert_eq!(Timestamp(i64::MIN).to_string(), "-infinity");
        assert!(Timestamp(i64::MAX - 1).to_string().contains("us after"));
    }

    #[test]
    fn the_time_between_two() {
        assert_eq!(Timestamp(2_500_000).seconds_since(Timestamp(500_000)), Some(2.0));
        assert_eq!(Timestamp(0).seconds_since(Timestamp(1_000_000)), Some(-1.0));
        assert_eq!(Timestamp(i64::MAX).seconds_since(Timestamp(0)), None);
        assert_eq!(Timestamp(0).seconds_since(Timestamp(i64::MIN)), None);
    }
}
