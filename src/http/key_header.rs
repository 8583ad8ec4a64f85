//! The header `Idempotency-Key`.
//!
//! The draft (draft-ietf-httpapi-idempotency-key-header) makes it an RFC 8941 string, in quotes; most clients in the
//! field send it bare. Both are read, and mean the same key.

use http::HeaderMap;

use super::KEY_HEADER;

/// What the header holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// There is none.
    Absent,
    Key(String),
    /// Why it is none.
    Invalid(&'static str),
}

pub(super) fn read(headers: &HeaderMap) -> Header {
    let mut values = headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else {
        return Header::Absent;
    };
    if values.next().is_some() {
        return Header::Invalid("is given more than once");
    }
    let Ok(text) = value.to_str() else {
        return Header::Invalid("has something else than visible ASCII");
    };
    let text = text.trim_matches([' ', '\t']);
    let key = match text.strip_prefix('"') {
        Some(rest) => string(rest),
        None if text.contains('"') => Err("has a quote in the middle"),
        None if text.contains('\t') => Err("has a tab in the middle"),
        None => Ok(text.to_owned()),
    };
    match key {
        Err(problem) => Header::Invalid(problem),
        Ok(key) if key.is_empty() => Header::Invalid("is empty"),
        Ok(key) if key.len() > crate::key::MAX_NAME_CHARS => Header::Invalid("is longer than 255 characters"),
        Ok(key) => Header::Key(key),
    }
}

/// The rest of a string after its first quote (RFC 8941, section 3.3.3). Parameters behind it say nothing to us.
fn string(rest: &str) -> Result<String, &'static str> {
    let mut key = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next() {
            None => return Err("has no closing quote"),
            Some('"') => break,
            Some('\\') => match chars.next() {
                Some(c @ ('"' | '\\')) => key.push(c),
                _ => return Err("has a backslash before something else than a quote or a backslash"),
            },
            Some(c) => key.push(c),
        }
    }
    let behind = chars.as_str();
    if behind.is_empty() || behind.starts_with(';') {
        return Ok(key);
    }
    Err("has something behind its closing quote")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Header {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                KEY_HEADER,
                http::HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        read(&headers)
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        for text in ["order-1", "\"order-1\"", " \"order-1\" ", "\"order-1\";v=1"] {
            assert_eq!(of(&[text]), Header::Key("order-1".to_owned()), "{text}");
        }
        assert_eq!(of(&[r#""a\"b\\c""#]), Header::Key(r#"a"b\c"#.to_owned()));
        assert_eq!(of(&[]), Header::Absent);
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let long = "k".repeat(256);
        for values in [
            &["a", "b"][..],
            &[""],
            &["\"\""],
            &["\"a"],
            &["a\"b"],
            &["\"a\" b"],
            &[r#""a\n""#],
            &["\u{e9}"],
            &[&long],
        ] {
            assert!(matches!(of(values), Header::Invalid(_)), "{values:?}");
        }
    }
}
