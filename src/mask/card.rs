//! Card numbers by their digits.

use super::Edit;

/// Lengths of a card number (ISO/IEC 7812-1, and the 13 digits of old Visa cards).
const LENGTHS: std::ops::RangeInclusive<usize> = 13..=19;

/// Digits that stay: six in front, four at the end (PCI DSS v4.0.1, requirement 3.4.1).
const FIRST: usize = 6;
const LAST: usize = 4;

/// Most separators between two groups of digits, as in `4242 - 4242`.
const MAX_GAP: usize = 3;

/// One digit of a run.
struct Digit {
    at: usize,
    bytes: usize,
    value: u32,
    /// Directly behind the digit before.
    joined: bool,
    masked: bool,
}

/// Masks every run of groups of digits that is a card number, wherever a group begins and ends.
pub(super) fn edits(text: &str, out: &mut Vec<Edit>) {
    let mut run: Vec<Digit> = Vec::new();
    let mut gap = 0;
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let mut bytes = c.len_utf8();
        if let Some(value) = digit(c) {
            let joined = gap == 0 && !run.is_empty();
            run.push(Digit {
                at,
                bytes,
                value,
                joined,
                masked: false,
            });
            gap = 0;
        } else {
            let separator = separator(&text[at..], c);
            bytes = separator.unwrap_or(bytes);
            gap += 1;
            if separator.is_none() || gap > MAX_GAP {
                mask(&mut run, out);
                gap = 0;
            }
        }
        at += bytes;
    }
    mask(&mut run, out);
}

/// How many digits there are, those of percent escapes left out.
pub(super) fn count(text: &str) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some(c) = text[at..].chars().next() {
        count += usize::from(digit(c).is_some());
        at += match separator(&text[at..], c) {
            Some(bytes) if digit(c).is_none() => bytes,
            _ => c.len_utf8(),
        };
    }
    count
}

/// Masks the card numbers of a run of digits and empties it.
fn mask(run: &mut Vec<Digit>, out: &mut Vec<Edit>) {
    let mut start = 0;
    while start < run.len() {
        match card_end(run, start) {
            Some(end) => {
                for digit in &mut run[start + FIRST..end - LAST] {
                    digit.masked = true;
                    out.push((digit.at..digit.at + digit.bytes, "*".into()));
                }
                // What was too long to be a card number may end here now.
                start = start.saturating_sub(*LENGTHS.end());
            }
            None => start += 1,
        }
    }
    run.clear();
}

/// The end (exclusive) of the longest card number that begins here.
fn card_end(run: &[Digit], start: usize) -> Option<usize> {
    let begins = !run[start].masked && (start == 0 || !run[start].joined || run[start - 1].masked);
    if !begins {
        return None;
    }
    let longest = run[start..]
        .iter()
        .take(*LENGTHS.end())
        .take_while(|digit| !digit.masked)
        .count();
    let ends = |end: usize| end == run.len() || !run[end].joined || run[end].masked;
    (*LENGTHS.start()..=longest)
        .rev()
        .map(|length| start + length)
        .find(|end| ends(*end) && luhn(&run[start..*end]))
}

fn luhn(digits: &[Digit]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, digit)| match (i % 2, digit.value) {
            (0, value) => value,
            (_, value) if value > 4 => value * 2 - 9,
            (_, value) => value * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// The value of a digit: ASCII, full-width, Arabic-Indic, Persian.
fn digit(c: char) -> Option<u32> {
    let zero = match c {
        '0'..='9' => '0',
        '\u{ff10}'..='\u{ff19}' => '\u{ff10}',
        '\u{660}'..='\u{669}' => '\u{660}',
        '\u{6f0}'..='\u{6f9}' => '\u{6f0}',
        _ => return None,
    };
    Some(u32::from(c) - u32::from(zero))
}

/// The length in bytes of a separator that may stand inside a card number: blanks, dashes, dots, underscores,
/// marks without width, and a form's spelling of blank and dash.
fn separator(rest: &str, c: char) -> Option<usize> {
    let escaped = || {
        let escape = rest.get(..3)?;
        matches!(escape, "%20" | "%2D" | "%2d" | "%2E" | "%2e").then_some(3)
    };
    let plain = matches!(
        c,
        '-' | '.' | '_' | '+' | '\u{ad}' | '\u{b7}' | '\u{2010}'..='\u{2015}' | '\u{2212}'
    ) || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}')
        || (c.is_whitespace() && c != '\n' && c != '\r');
    if plain { Some(c.len_utf8()) } else { escaped() }
}
