//! What a provider says of time: its own clock, and when to ask again.

use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// `Retry-After` in seconds, or as a date, which is compared with the answer's own `Date`: our clock decides
/// nothing.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Digits that do not fit are a very long time.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)).min(crate::duration::MAX));
    }
    let date = DateTime::parse_from_rfc2822(text).ok()?;
    (date.to_utc() - self::date(headers)?)
        .to_std()
        .ok()
        .map(|wait| wait.min(crate::duration::MAX))
}

/// When the answer was given, by its own `Date` (RFC 9110 section 6.6.1).
pub(super) fn date(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let date = DateTime::parse_from_rfc2822(headers.get(DATE)?.to_str().ok()?);
    date.ok().map(|date| date.to_utc())
}

/// Our own clock. It only ever makes a window begin earlier.
#[expect(
    clippy::disallowed_methods,
    reason = "the provider's word for the time may be wrong; ours, where it is the earlier one, makes a window wider"
)]
pub(super) fn ours() -> DateTime<Utc> {
    Utc::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date_against_the_answers_own_date() {
        let now = "Sun, 29 Nov 2026 12:00:00 GMT";
        for (value, date, expected) in [
            ("120", None, Some(120)),
            ("0", None, Some(0)),
            (
                "99999999999999999999999",
                None,
                Some(crate::duration::MAX.as_secs()),
            ),
            ("Sun, 29 Nov 2026 12:01:30 GMT", Some(now), Some(90)),
            ("Sun, 29 Nov 2026 11:00:00 GMT", Some(now), None),
            ("Sun, 29 Nov 2026 12:01:30 GMT", None, None),
            ("-5", None, None),
            ("1.5", None, None),
            ("soon", Some(now), None),
            ("", None, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            if let Some(date) = date {
                headers.insert(DATE, date.parse().unwrap());
            }
            assert_eq!(
                retry_after(&headers),
                expected.map(Duration::from_secs),
                "{value}"
            );
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
