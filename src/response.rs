//! The response that is stored with a key and replayed, byte for byte.

use serde::de::IgnoredAny;

use crate::error::{Error, Result};

/// Default limit for the body of a stored response: 1 MiB.
pub const DEFAULT_MAX_BODY_BYTES: usize = 1024 * 1024;

/// Deeper JSON goes into `response_body`: PostgreSQL's parser needs stack for each level, and a body must
/// never be refused for its shape after the money has moved.
const MAX_JSON_DEPTH: usize = 200;

/// A response: HTTP status, headers in order, and exact bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status_code: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    /// A response without headers.
    ///
    /// Returns [`Error::Invalid`] for a status code outside 100 to 599 (RFC 9110, section 15).
    pub fn new(status_code: u16, body: impl Into<Vec<u8>>) -> Result<Self> {
        if !(100..=599).contains(&status_code) {
            let reason = format!("is {status_code}; an HTTP status lies between 100 and 599");
            return Err(Error::Invalid {
                field: "status_code",
                reason,
            });
        }
        Ok(Self {
            status_code,
            headers: Vec::new(),
            body: body.into(),
        })
    }

    /// Adds a header that a replay must carry too, `content-type` first of all.
    ///
    /// Returns [`Error::Invalid`] for a name that is not a token or a value with anything but visible
    /// ASCII, blanks and tabs (RFC 9110, section 5.5): checked here, so that storing cannot fail on it later.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self> {
        let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        if name.is_empty() || !name.chars().all(token) {
            let reason = format!("name {name:?} is not an HTTP token");
            return Err(Error::Invalid {
                field: "header",
                reason,
            });
        }
        if !value.chars().all(|c| c == '\t' || (' '..='~').contains(&c)) {
            let reason = format!("{name} has something else than visible ASCII and blanks in its value");
            return Err(Error::Invalid {
                field: "header",
                reason,
            });
        }
        self.headers.push((name.to_owned(), value.to_owned()));
        Ok(self)
    }

    /// What the table holds, put together again without checks: it was checked when it was written, or
    /// another program wrote it.
    pub(crate) fn from_stored(status_code: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> Self {
        Self {
            status_code,
            headers,
            body,
        }
    }

    /// HTTP status.
    pub fn status_code(&self) -> u16 {
        self.status_code
    }

    /// Headers in the order in which they were added.
    pub fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The first header of this name, without regard to case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
    }

    /// The body's exact bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }
}

/// Whether the `json` type holds these bytes exactly: valid JSON in valid UTF-8, not too deep, and ASCII where
/// the database has another encoding.
pub(crate) fn fits_json(body: &[u8], utf8_database: bool) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?;
    let fits = (utf8_database || text.is_ascii())
        && depth(body) <= MAX_JSON_DEPTH
        && serde_json::from_str::<IgnoredAny>(text).is_ok();
    fits.then_some(text)
}

/// Whether `jsonb`, which decodes what it stores, takes the text as well: no NUL escape, no lone surrogate,
/// and no number beyond `numeric`. A database in another encoding than UTF-8 would have to convert what an
/// escape stands for, and may not be able to.
pub(crate) fn fits_jsonb(text: &str, utf8_database: bool) -> bool {
    // Any escape of a NUL or a surrogate, and any exponent, is left to `response_body`: rare, and safe.
    let lower = text.to_ascii_lowercase();
    (utf8_database || !lower.contains("\\u"))
        && !lower.contains("\\u0000")
        && !lower.contains("\\ud")
        && !long_number(&lower)
}

/// A digit run or an exponent that `numeric` might refuse (131,072 digits before the point).
fn long_number(text: &str) -> bool {
    let bytes = text.as_bytes();
    let exponent = bytes
        .windows(2)
        .any(|pair| pair[0].is_ascii_digit() && pair[1] == b'e');
    exponent || bytes.split(|b| !b.is_ascii_digit()).any(|run| run.len() > 1_000)
}

/// Upper bound of the nesting: brackets inside strings count too, which only errs on the safe side.
fn depth(body: &[u8]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for byte in body {
        match byte {
            b'[' | b'{' => {
                now += 1;
                most = most.max(now);
            }
            b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_cannot_hold_exactly_goes_to_bytes() {
        assert!(fits_json(b"{\"a\": 1}\n", true).is_some());
        assert!(fits_json(b"", true).is_none());
        assert!(fits_json(b"\xff", true).is_none());
        assert!(fits_json("\"\u{e9}\"".as_bytes(), false).is_none());
        assert!(fits_json("[".repeat(201).as_bytes(), true).is_none());
        assert!(
            fits_json(b"{\"a\":\"\\ud800\"}", true).is_some(),
            "the json type keeps the escape as text"
        );
        assert!(!fits_jsonb("{\"a\":\"\\uD800\"}", true));
        assert!(!fits_jsonb("{\"a\":1e999999}", true));
    }

    #[test]
    fn headers_are_checked_before_anything_is_lost() {
        let response = Response::new(201, "x").unwrap();
        assert!(response.clone().with_header("x y", "1").is_err());
        assert!(response.clone().with_header("x", "a\r\nset-cookie: 1").is_err());
        assert!(Response::new(99, "").is_err());
    }
}
