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
    // Most texts are settled by a look.
    let few = |text: &str| text.bytes().filter(u8::is_ascii_digit).count() < *LENGTHS.start();
    if text.is_ascii() && few(text) {
        return;
    }
    scan(text, true, out);
    // `%224242...` is a quote before a number, and `100%4242...` is a percent sign: nobody knows, so it is both.
    if text.contains(['%', '\\']) {
        scan(text, false, out);
    }
}

/// `escapes`: whether `%22` and `\u0022` are one sign.
fn scan(text: &str, escapes: bool, out: &mut Vec<Edit>) {
    let mut run: Vec<Digit> = Vec::new();
    let mut gap = 0;
    let mut at = 0;
    while let Some((c, bytes)) = sign(&text[at..], escapes) {
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
            gap += 1;
            if !is_separator(c) || gap > MAX_GAP {
                mask(&mut run, out);
                gap = 0;
            }
        }
        at += bytes;
    }
    mask(&mut run, out);
}

/// The next sign of a text and its length in bytes: a character, or what an escape of a URL, of JSON or of a
/// program's source stands for.
fn sign(rest: &str, escapes: bool) -> Option<(char, usize)> {
    let c = rest.chars().next()?;
    let code = |from: usize, digits: usize| {
        let hex = rest.get(from..from + digits)?;
        let all = hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        // Half of a surrogate pair is some sign or other.
        let number = u32::from_str_radix(hex, 16).ok().filter(|_| all)?;
        Some((char::from_u32(number).unwrap_or('\u{fffd}'), from + digits))
    };
    let escape = match c {
        '%' if escapes => code(1, 2),
        '\\' if escapes && rest[1..].starts_with('u') => code(2, 4),
        '\\' if escapes && rest[1..].starts_with('x') => code(2, 2),
        _ => None,
    };
    Some(escape.unwrap_or((c, c.len_utf8())))
}

/// How many digits there are.
pub(super) fn count(text: &str) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some((c, bytes)) = sign(&text[at..], true) {
        count += usize::from(digit(c).is_some());
        at += bytes;
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

/// What may stand between the digits of a card number: blanks, dashes, dots, underscores, a form's blank, and marks
/// without width.
fn is_separator(c: char) -> bool {
    matches!(
        c,
        '-' | '.' | '_' | '+' | '\u{ad}' | '\u{b7}' | '\u{2010}'..='\u{2015}' | '\u{2212}'
    ) || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}')
        || (c.is_whitespace() && c != '\n' && c != '\r')
}
