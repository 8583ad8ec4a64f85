//! One field of a crontab line: the set of numbers that it names.

use std::collections::BTreeSet;

/// Which field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        }
    }

    /// Smallest and largest number that may be written.
    fn range(self) -> (u32, u32) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            // 7 is Sunday once more (Vixie cron).
            Self::DayOfWeek => (0, 7),
        }
    }

    /// Names in the order of their numbers, and the first one's number.
    fn names(self) -> (&'static [&'static str], u32) {
        match self {
            Self::Month => (&MONTHS, 1),
            Self::DayOfWeek => (&DAYS, 0),
            _ => (&[], 0),
        }
    }
}

/// A field that was read.
#[derive(Debug, Clone)]
pub(super) struct Field {
    kind: Kind,
    values: BTreeSet<u32>,
    star: bool,
    plain_star: bool,
}

impl Field {
    /// A field with one number.
    pub(super) fn exactly(kind: Kind, value: u32) -> Self {
        Self {
            kind,
            values: BTreeSet::from([value]),
            star: false,
            plain_star: false,
        }
    }

    /// Reads a list of `*`, numbers, names and ranges, with steps behind `*` and ranges. The error names the
    /// field.
    pub(super) fn parse(kind: Kind, text: &str) -> Result<Self, String> {
        let mut values = BTreeSet::new();
        for item in text.split(',') {
            Self::item(kind, item, &mut values)
                .map_err(|problem| format!("{} {text:?}: {problem}", kind.name()))?;
        }
        if kind == Kind::DayOfWeek && values.remove(&7) {
            values.insert(0);
        }
        Ok(Self {
            kind,
            values,
            star: text.starts_with('*'),
            plain_star: text == "*",
        })
    }

    /// Whether the field is `*` and nothing else.
    pub(super) fn is_star(&self) -> bool {
        self.plain_star
    }

    /// Whether the field begins with `*`, with or without a step.
    pub(super) fn starts_with_star(&self) -> bool {
        self.star
    }

    pub(super) fn values(&self) -> &BTreeSet<u32> {
        &self.values
    }

    /// The numbers as the `cron` crate reads them: a list, week days by name.
    pub(super) fn list(&self) -> String {
        let words: Vec<String> = self
            .values
            .iter()
            .map(|value| match (self.kind, DAYS.get(*value as usize)) {
                (Kind::DayOfWeek, Some(name)) => (*name).to_owned(),
                _ => value.to_string(),
            })
            .collect();
        words.join(",")
    }

    fn item(kind: Kind, item: &str, values: &mut BTreeSet<u32>) -> Result<(), String> {
        let (min, max) = kind.range();
        let (range, step) = match item.split_once('/') {
            None => (item, None),
            Some((range, step)) => (range, Some(step)),
        };
        let (first, last) = match range.split_once('-') {
            // Sunday stands at the star's begin, so 7 would only double it.
            _ if range == "*" => (min, if kind == Kind::DayOfWeek { 6 } else { max }),
            None if step.is_some() => {
                return Err(format!(
                    "{item:?} is read differently by different crons; write {range}-{max}/… or */…"
                ));
            }
            None => {
                let value = Self::number(kind, range)?;
                (value, value)
            }
            Some((first, last)) => {
                let first = Self::number(kind, first)?;
                match Self::number(kind, last)? {
                    // The week ends with Sunday too: sat-sun.
                    0 if kind == Kind::DayOfWeek && first > 0 => (first, 7),
                    last => (first, last),
                }
            }
        };
        if first > last {
            return Err(format!("the range {range:?} runs backwards; write two ranges"));
        }
        let step = step.map_or(Ok(1), |step| Self::step(step, last - first))?;
        values.extend((first..=last).step_by(step));
        Ok(())
    }

    fn step(text: &str, span: u32) -> Result<usize, String> {
        let step = digits(text).ok_or_else(|| format!("the step {text:?} is not a number"))?;
        if step == 0 {
            return Err("the step is 0".to_owned());
        }
        if step > span {
            // Nobody who writes */90 minutes means "once an hour".
            return Err(format!(
                "the step {step} leads out of the range at once, so only its first value counts"
            ));
        }
        usize::try_from(step).map_err(|_| format!("the step {step} is too large"))
    }

    fn number(kind: Kind, text: &str) -> Result<u32, String> {
        let (names, first) = kind.names();
        if let Some(at) = names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return Ok(first + u32::try_from(at).unwrap_or(0));
        }
        let (min, max) = kind.range();
        let words = if names.is_empty() {
            ""
        } else {
            " or a name such as "
        };
        let example = names.get(1).unwrap_or(&"");
        match digits(text) {
            Some(value) if (min..=max).contains(&value) => Ok(value),
            _ => Err(format!(
                "{text:?} is not a number from {min} to {max}{words}{example}"
            )),
        }
    }
}

/// One to four ASCII digits.
fn digits(text: &str) -> Option<u32> {
    let plain = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}
