//! Secrets in bodies: card numbers, and members whose names say that they are secret.

use base64::Engine;
use serde_json::Value;

/// What stands in the place of a secret.
const MASK: &str = "***";

/// Parts of names (lower case, without `_` and `-`) whose values are never shown.
const SECRET_PARTS: [&str; 10] = [
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "authorization",
    "cvc",
    "cvv",
    "privatekey",
    "credential",
];

/// A text with secrets masked. JSON is masked by member and comes back in its own layout only where nothing had
/// to be masked; anything else has card numbers masked.
pub(crate) fn text(body: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(body) else {
        let form = pairs(body);
        return cards(&form).unwrap_or(form);
    };
    if mask_value(&mut value) {
        value.to_string()
    } else {
        body.to_owned()
    }
}

/// Whether anything was masked.
fn mask_value(value: &mut Value) -> bool {
    match value {
        Value::String(text) => match cards(text) {
            Some(masked) => {
                *text = masked;
                true
            }
            None => false,
        },
        Value::Number(number) if cards(&number.to_string()).is_some() => {
            *value = Value::String(MASK.to_owned());
            true
        }
        Value::Array(items) => items.iter_mut().fold(false, |any, item| mask_value(item) | any),
        Value::Object(members) => members.iter_mut().fold(false, |any, (name, value)| {
            if is_secret(name) && !value.is_null() {
                *value = Value::String(MASK.to_owned());
                return true;
            }
            mask_value(value) | any
        }),
        _ => false,
    }
}

/// `name=value` pairs, as in forms and logs, with the values of secret names masked.
fn pairs(text: &str) -> String {
    text.split_inclusive(['&', ' ', '\n', ';', ','])
        .map(|part| match part.split_once('=') {
            Some((name, value)) if is_secret(name) => {
                let end = value.find(['&', ' ', '\n', ';', ',']).unwrap_or(value.len());
                format!("{name}={MASK}{}", &value[end..])
            }
            _ => part.to_owned(),
        })
        .collect()
}

fn is_secret(name: &str) -> bool {
    let name: String = name
        .to_lowercase()
        .chars()
        .filter(|c| !matches!(c, '_' | '-'))
        .collect();
    name == "pin" || SECRET_PARTS.iter().any(|part| name.contains(part))
}

/// Digit runs of 13 to 19 (blanks and dashes between them allowed) that pass the Luhn check (ISO/IEC 7812-1)
/// keep their first six and last four digits; `None` where there is none.
fn cards(text: &str) -> Option<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = chars.clone();
    let mut found = false;
    let mut start = 0;
    while start < chars.len() {
        if !chars[start].is_ascii_digit() {
            start += 1;
            continue;
        }
        let end = run_end(&chars, start);
        let digits: Vec<usize> = (start..end).filter(|at| chars[*at].is_ascii_digit()).collect();
        if (13..=19).contains(&digits.len()) && luhn(digits.iter().map(|at| chars[*at])) {
            found = true;
            for at in &digits[6..digits.len() - 4] {
                masked[*at] = '*';
            }
        }
        start = end;
    }
    found.then(|| masked.into_iter().collect())
}

/// The end of a run of digits with single blanks or dashes inside.
fn run_end(chars: &[char], start: usize) -> usize {
    let mut end = start;
    while end < chars.len() {
        let joins = matches!(chars[end], ' ' | '-')
            && end > start
            && chars[end - 1].is_ascii_digit()
            && chars.get(end + 1).is_some_and(char::is_ascii_digit);
        if !chars[end].is_ascii_digit() && !joins {
            break;
        }
        end += 1;
    }
    end
}

fn luhn(digits: impl DoubleEndedIterator<Item = char>) -> bool {
    let sum: u32 = digits
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(i, digit)| match (i % 2, digit) {
            (0, digit) => digit,
            (_, digit) if digit > 4 => digit * 2 - 9,
            (_, digit) => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Standard base64 with padding (RFC 4648, section 4).
pub(crate) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_and_secret_members_are_masked() {
        assert_eq!(text("card 4242 4242 4242 4242."), "card 4242 42** **** 4242.");
        assert_eq!(
            text("order 4242424242424241"),
            "order 4242424242424241",
            "no Luhn, no card"
        );
        assert_eq!(
            text(r#"{"a": [{"client-secret":"x"}], "pan":"4111111111111111"}"#),
            r#"{"a":[{"client-secret":"***"}],"pan":"411111******1111"}"#
        );
        assert_eq!(
            text("{\"charge_id\": 1}\n"),
            "{\"charge_id\": 1}\n",
            "nothing secret, nothing changed"
        );
    }
}
