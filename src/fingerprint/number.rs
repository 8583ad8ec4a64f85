//! JSON numbers as exact decimals, laid out as ECMAScript does.

use super::MAX_EXPONENT;

/// The longest number that is written without an exponent has this many digits before its point (ECMA-262,
/// `Number::toString`, which RFC 8785 section 3.2.2.3 refers to).
const MAX_PLAIN_DIGITS: i64 = 21;

/// Numbers with more zeros than this after their point are written with an exponent (same source).
const MAX_LEADING_ZEROS: i64 = 6;

/// A number as `0.digits * 10^point`; no digits for zero.
struct Decimal {
    negative: bool,
    /// Significant digits, without zeros at either end.
    digits: String,
    point: i64,
}

/// Whether the number's exponent is within [`MAX_EXPONENT`]. `text` is a number by JSON's grammar.
pub(super) fn in_range(text: &str) -> bool {
    let number = Decimal::read(text);
    number.digits.is_empty() || (number.point - 1).abs() <= MAX_EXPONENT
}

/// The one spelling of the number. `text` is a number by JSON's grammar and [in range](in_range).
pub(super) fn canonical(text: &str) -> String {
    Decimal::read(text).layout()
}

impl Decimal {
    fn read(written: &str) -> Self {
        let (negative, text) = match written.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, written),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let significant = all.trim_start_matches('0');
        let leading = all.len() - significant.len();
        let point = length(whole.len()) - length(leading) + read_exponent(exponent);
        Self {
            negative,
            digits: significant.trim_end_matches('0').to_owned(),
            point,
        }
    }

    fn layout(&self) -> String {
        let Self {
            negative,
            digits,
            point,
        } = self;
        if digits.is_empty() {
            return "0".to_owned();
        }
        let sign = if *negative { "-" } else { "" };
        let (count, point) = (length(digits.len()), *point);
        if count <= point && point <= MAX_PLAIN_DIGITS {
            return format!("{sign}{digits}{}", zeros(point - count));
        }
        if 0 < point && point <= MAX_PLAIN_DIGITS {
            let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(digits.len()));
            return format!("{sign}{whole}.{fraction}");
        }
        if -MAX_LEADING_ZEROS < point && point <= 0 {
            return format!("{sign}0.{}{digits}", zeros(-point));
        }
        let (first, rest) = digits.split_at(1);
        let dot = if rest.is_empty() { "" } else { "." };
        format!("{sign}{first}{dot}{rest}e{:+}", point - 1)
    }
}

/// The exponent, held within a range that no mantissa of permitted length can bring back to a small number.
fn read_exponent(text: &str) -> i64 {
    const FAR: i64 = 1_000_000_000;
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let digits = digits.trim_start_matches('0');
    let size = if digits.len() > 9 {
        FAR
    } else {
        digits.parse().unwrap_or(0)
    };
    if negative { -size } else { size }
}

fn zeros(count: i64) -> String {
    "0".repeat(usize::try_from(count).unwrap_or(0))
}

/// Lengths are bounded by the length of the input, so that they fit by far.
fn length(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_rfc_8785_for_shortest_doubles() {
        // Appendix B of RFC 8785.
        for text in [
            "0",
            "5e-324",
            "-5e-324",
            "1.7976931348623157e+308",
            "9007199254740992",
            "-9007199254740992",
            "295147905179352830000",
            "9.999999999999997e+22",
            "1e+23",
            "1.0000000000000001e+23",
            "999999999999999700000",
            "999999999999999900000",
            "1e+21",
            "9.999999999999997e-7",
            "0.000001",
            "333333333.3333332",
            "333333333.33333325",
            "333333333.3333333",
            "333333333.3333334",
            "-0.0000033333333333333333",
            "1424953923781206.2",
        ] {
            assert_eq!(canonical(text), text);
        }
    }

    #[test]
    fn one_number_has_one_spelling() {
        for (written, expected) in [
            ("1.0", "1"),
            ("1e0", "1"),
            ("1E+0", "1"),
            ("10e-1", "1"),
            ("0.1e1", "1"),
            ("0.001e003", "1"),
            ("-0", "0"),
            ("-0.0e5", "0"),
            ("0e99999999999999999999", "0"),
            ("-1.50", "-1.5"),
            ("100", "100"),
            ("1e2", "100"),
            ("9007199254740993", "9007199254740993"),
            ("1000000000000000000000", "1e+21"),
            ("123456789012345678901", "123456789012345678901"),
            ("1234567890123456789012", "1.234567890123456789012e+21"),
            ("0.0000001", "1e-7"),
            ("12e-8", "1.2e-7"),
            ("123.456e1", "1234.56"),
        ] {
            assert_eq!(canonical(written), expected, "{written}");
        }
    }

    #[test]
    fn exponents_are_bounded_by_value_not_by_spelling() {
        assert!(
            in_range("1e9999")
                && in_range("1e-9999")
                && in_range("0e123456789123")
                && in_range("1e0000000000000001")
        );
        assert!(!in_range("1e10000") && !in_range("10e9999") && !in_range("1e-10000"));
        assert!(!in_range("1e18446744073709551617") && !in_range("-1e-18446744073709551617"));
        assert!(
            in_range(&format!("0.{}1e20000", "0".repeat(19_999))),
            "this is one"
        );
    }
}
