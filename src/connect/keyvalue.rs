//! `key=value` connection strings, as libpq reads them (manual, "Keyword/Value Connection Strings").

use std::iter::Peekable;
use std::str::Chars;

/// The pairs in their order. The error never repeats a value: a password with a blank in it and no quotes
/// would be torn into words.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut chars = text.chars().peekable();
    let mut pairs = Vec::new();
    loop {
        skip_blanks(&mut chars);
        if chars.peek().is_none() {
            return Ok(pairs);
        }
        let nth = pairs.len() + 1;
        let name = word(&mut chars, |c| c == '=' || c.is_ascii_whitespace());
        skip_blanks(&mut chars);
        if chars.next() != Some('=') {
            return Err(format!(
                "the connection string's part {nth} has no \"=\"; a value with blanks stands in single quotes"
            ));
        }
        skip_blanks(&mut chars);
        let value = value(&mut chars)
            .ok_or_else(|| format!("the value of part {nth} lacks its closing single quote"))?;
        pairs.push((name, value));
    }
}

fn skip_blanks(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(char::is_ascii_whitespace).is_some() {}
}

fn word(chars: &mut Peekable<Chars<'_>>, end: impl Fn(char) -> bool) -> String {
    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| !end(*c)) {
        word.push(c);
    }
    word
}

/// A value, quoted or not; a backslash takes the next character as it is in both.
fn value(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let quoted = chars.next_if_eq(&'\'').is_some();
    let mut value = String::new();
    loop {
        match chars.peek() {
            None if quoted => return None,
            None => return Some(value),
            Some('\'') if quoted => {
                chars.next();
                return Some(value);
            }
            Some(c) if !quoted && c.is_ascii_whitespace() => return Some(value),
            Some(_) => {}
        }
        match chars.next() {
            Some('\\') => value.extend(chars.next()),
            Some(c) => value.push(c),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text).unwrap()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn quotes_escapes_and_blanks() {
        assert_eq!(
            pairs(r"host = localhost  port=5432 password='it\'s a \\ secret' options='' user=a\ b"),
            owned(&[
                ("host", "localhost"),
                ("port", "5432"),
                ("password", r"it's a \ secret"),
                ("options", ""),
                ("user", "a b"),
            ])
        );
        assert_eq!(pairs("  "), []);
        assert_eq!(pairs("host= port=1"), owned(&[("host", "port=1")]));
    }

    #[test]
    fn a_torn_password_is_not_repeated() {
        let error = parse("user=u password=correct horse").unwrap_err();
        assert!(error.contains("part 3") && !error.contains("horse"), "{error}");
        assert!(!parse("password='secret").unwrap_err().contains("secret"));
    }
}
