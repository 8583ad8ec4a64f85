//! From the handler's answer to what is stored, and back.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderValue, StatusCode};

use crate::response::Response;

/// Headers that belong to one transmission, not to the answer (RFC 9110, sections 6.6.1, 7.6.1 and 8.6).
const NOT_STORED: [HeaderName; 9] = [
    CONNECTION,
    CONTENT_LENGTH,
    DATE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("te"),
    HeaderName::from_static("trailer"),
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What is stored of an answer. A header whose value is no visible ASCII is left out and logged.
pub(super) fn store(head: &http::response::Parts, body: &[u8]) -> crate::error::Result<Response> {
    let mut response = Response::new(head.status.as_u16(), body)?;
    for (name, value) in &head.headers {
        if NOT_STORED.contains(name) {
            continue;
        }
        let with = value
            .to_str()
            .map_err(|error| error.to_string())
            .and_then(|value| {
                response
                    .clone()
                    .with_header(name.as_str(), value)
                    .map_err(|error| error.to_string())
            });
        match with {
            Ok(with) => response = with,
            Err(problem) => tracing::warn!(header = %name, problem, "a header of the answer is not stored"),
        }
    }
    Ok(response)
}

/// A stored answer as a response.
pub(super) fn respond<B: From<Bytes>>(stored: &Response) -> http::Response<B> {
    let mut response = http::Response::new(B::from(Bytes::copy_from_slice(stored.body())));
    *response.status_mut() =
        StatusCode::from_u16(stored.status_code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in stored.headers() {
        let pair = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(value),
        );
        if let (Ok(name), Ok(value)) = pair {
            response.headers_mut().append(name, value);
        }
    }
    response
}
