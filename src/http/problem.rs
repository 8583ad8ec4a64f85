//! What a client is told instead of the handler's answer: problem documents (RFC 9457). The types are stable.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

/// The request needs a key.
pub const KEY_MISSING: &str = "urn:idemctl:problem:key-missing";
/// The header's value is no key.
pub const KEY_INVALID: &str = "urn:idemctl:problem:key-invalid";
/// Who sends the request is not known, and a key means something only within one client.
pub const CLIENT_UNKNOWN: &str = "urn:idemctl:problem:client-unknown";
/// The body cannot be fingerprinted.
pub const BODY_INVALID: &str = "urn:idemctl:problem:body-invalid";
/// The body is larger than this service reads.
pub const BODY_TOO_LARGE: &str = "urn:idemctl:problem:body-too-large";
/// Another request with this key is at work: repeat after `Retry-After`.
pub const IN_PROGRESS: &str = "urn:idemctl:problem:in-progress";
/// The key was used for another request: use a new one.
pub const MISMATCH: &str = "urn:idemctl:problem:mismatch";
/// This request did nothing, because the key could not be claimed: repeat with the same key. (What an earlier request
/// with it did is not known.)
pub const UNAVAILABLE: &str = "urn:idemctl:problem:unavailable";
/// Nothing was done: the service's own settings do not fit the request, and a repeat fares no better.
pub const MISCONFIGURED: &str = "urn:idemctl:problem:misconfigured";
/// It may have been done; repeat with the same key, never with a new one.
pub const OUTCOME_UNKNOWN: &str = "urn:idemctl:problem:outcome-unknown";
/// It was done, but its answer is too large to be kept, so nobody gets it.
pub const ANSWER_TOO_LARGE: &str = "urn:idemctl:problem:answer-too-large";

/// A problem before it is a response.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) kind: &'static str,
    pub(super) status: StatusCode,
    pub(super) title: &'static str,
    pub(super) detail: String,
    pub(super) retry_after: Option<Duration>,
}

impl Problem {
    pub(super) fn new(
        kind: &'static str,
        status: StatusCode,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            status,
            title,
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// When to repeat; at least a second, because the header has whole seconds.
    pub(super) fn retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    pub(super) fn body(&self) -> String {
        serde_json::json!({
            "type": self.kind,
            "title": self.title,
            "status": self.status.as_u16(),
            "detail": self.detail,
        })
        .to_string()
    }

    pub(super) fn response<B: From<Bytes>>(&self) -> Response<B> {
        let mut response = Response::new(B::from(Bytes::from(self.body())));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(wait) = self.retry_after {
            let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(whole.max(1)));
        }
        response
    }
}

/// It may have been done, and its answer is not kept.
pub(super) fn outcome_unknown() -> Problem {
    Problem::new(
        OUTCOME_UNKNOWN,
        StatusCode::SERVICE_UNAVAILABLE,
        "Outcome unknown",
        "The request may have taken effect. Repeat it with the same idempotency key; never with a new one.",
    )
    .retry_after(Duration::from_secs(1))
}
