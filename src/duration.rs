//! Lengths of time as people write them: `30s`, `1h30m`, `400d`.
//!
//! One strict reader for the configuration, the command line and plan files: a bare number has no unit, a
//! minus sign would move a cut-off into the future, and `1M` is a month to some and a minute to others.

use std::fmt::Write as _;
use std::time::Duration;

/// The longest duration that is read: 10 years of 365 days.
pub const MAX: Duration = Duration::from_hours(10 * 365 * 24);

/// The units with their lengths in milliseconds, longest first.
const UNITS: [(&str, u64); 6] = [
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

const ALLOWED: &str = "write whole numbers with ms, s, m (minutes), h, d or w, longest unit first, such as 30s, \
                       1h30m or 7d; at most 10 years (3650d)";

/// Reads a duration: whole numbers with the units `ms`, `s`, `m` (minutes), `h`, `d`, `w`, each unit at most
/// once, longest first, without blanks; from `0s` to [`MAX`].
///
/// Returns what is wrong and what is allowed, to follow the name of the setting.
pub fn parse(text: &str) -> Result<Duration, String> {
    let shown = || format!("{:?}", text.chars().take(40).collect::<String>());
    let fail = |problem: &str| Err(format!("is {}, {problem}; {ALLOWED}", shown()));
    if text.is_empty() {
        return Err(format!("is empty; {ALLOWED}"));
    }
    let (mut rest, mut total, mut previous) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            return fail("which has no whole number where one is expected");
        }
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if unit.is_empty() {
            return fail("where a number has no unit");
        }
        let Some((_, length)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return fail(if unit == "M" || unit == "y" {
                "whose months or years have no fixed length"
            } else {
                "which has an unknown unit"
            });
        };
        if *length >= previous {
            return fail("which does not go from the longest unit to the shortest");
        }
        let sum = number
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(*length)?.checked_add(total));
        total = match sum {
            Some(sum) if Duration::from_millis(sum) <= MAX => sum,
            _ => return fail("which is too long"),
        };
        (rest, previous) = (after, *length);
    }
    Ok(Duration::from_millis(total))
}

/// Writes a duration so that [`parse`] reads it again, in whole milliseconds (rounded down).
pub fn format(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = rest / u128::from(length);
        // Weeks only where they come out even: `8d` reads better than `1w1d`.
        if count > 0 && (unit != "w" || rest.is_multiple_of(u128::from(length))) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{count}{unit}");
            rest -= count * u128::from(length);
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// For `#[serde(deserialize_with = "duration::deserialize")]`: a string as [`parse`] reads it.
pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text: std::borrow::Cow<'de, str> = serde::Deserialize::deserialize(deserializer)?;
    parse(&text).map_err(serde::de::Error::custom)
}

/// As [`deserialize`], for an `Option` with `#[serde(default)]`.
pub fn deserialize_option<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_combinations() {
        for (text, millis) in [
            ("0s", 0),
            ("250ms", 250),
            ("30s", 30_000),
            ("15m", 900_000),
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("1w2d3h4m5s6ms", 788_645_006),
            ("3650d", 315_360_000_000),
            ("007s", 7_000),
            ("90m", 5_400_000),
        ] {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn what_could_be_misread_is_refused() {
        for (text, problem) in [
            ("", "empty"),
            ("30", "no unit"),
            ("1h30", "no unit"),
            ("-5m", "no whole number"),
            ("+5m", "no whole number"),
            ("s", "no whole number"),
            ("1M", "months or years"),
            ("1y", "months or years"),
            ("1.5h", "unknown unit"),
            ("1 h", "unknown unit"),
            ("5min", "unknown unit"),
            ("1H", "unknown unit"),
            ("30m1h", "longest unit"),
            ("1h1h", "longest unit"),
            ("3651d", "too long"),
            ("99999999999999999999s", "too long"),
            ("18446744073709551615w", "too long"),
            ("٣s", "no whole number"),
            (" 1s", "no whole number"),
            ("1s ", "unknown unit"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.contains(problem) && error.contains("1h30m"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for millis in [
            0,
            1,
            999,
            1_000,
            61_001,
            86_400_000,
            8 * 86_400_000,
            14 * 86_400_000,
            315_360_000_000,
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(
                parse(&format(duration)).unwrap(),
                duration,
                "{}",
                format(duration)
            );
        }
        assert_eq!(format(Duration::from_secs(90)), "1m30s");
        assert_eq!(format(Duration::from_hours(8 * 24)), "8d");
        assert_eq!(format(Duration::ZERO), "0s");
    }
}
