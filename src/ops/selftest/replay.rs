//! What was stored comes back byte for byte.

use super::check::Check;
use super::env::{Env, id, request, word};
use crate::error::Result;
use crate::protocol::Reservation;
use crate::response::Response;

/// A body that is worth a check: name, what it is, status, content type, bytes.
type Body = (&'static str, &'static str, u16, &'static str, &'static [u8]);

const BODIES: [Body; 5] = [
    (
        "replay.json",
        "JSON with blanks, big numbers and names out of order",
        201,
        "application/json; charset=utf-8",
        b"{ \"z\": 1.0, \"a\": 12345678901234567890, \"amount\": 1e2 }\n",
    ),
    (
        "replay.escapes",
        "JSON that PostgreSQL's jsonb refuses (NUL, half a surrogate)",
        201,
        "application/json",
        b"{\"note\":\"\\u0000 \\ud800\"}",
    ),
    (
        "replay.binary",
        "bytes that are no text",
        200,
        "application/octet-stream",
        b"\x00\x01\xff\xfe\x80PDF\x00",
    ),
    (
        "replay.text",
        "text in another encoding than UTF-8",
        200,
        "text/plain; charset=iso-8859-1",
        b"re\xe7u: 12 \xa3\r\n",
    ),
    (
        "replay.error",
        "a declined card, without a body",
        402,
        "text/plain",
        b"",
    ),
];

pub(super) fn checks() -> Vec<Check> {
    BODIES
        .iter()
        .map(|(name, what, ..)| {
            Check::of(
                name,
                format!("one client stores {what}; another sends the same request"),
                "the same status, headers and bytes",
            )
        })
        .collect()
}

pub(super) async fn run(env: &Env, checks: &mut [Check]) -> Result<()> {
    for (check, (name, what, status, content_type, body)) in checks.iter_mut().zip(BODIES) {
        let stored = Response::new(status, body)?
            .with_header("content-type", content_type)?
            .with_header("location", "/payments/1")?;
        let id = id(name)?;
        let mut lease = env.first().acquire(&request(id.clone())?).await?;
        lease.complete(&env.first().conn, &stored).await?;
        let answer = env.second().ask(&request(id)?).await?;
        let (same, found) = match &answer {
            Reservation::Replay(replay) => compare(&stored, &replay.response),
            other => (false, format!("the answer was: {}", word(other))),
        };
        check.judge(
            same,
            found,
            (
                "A repeated request gets the first answer back, byte for byte.".to_owned(),
                format!("A repeated request does NOT get the first answer back unchanged ({what})."),
            ),
        );
    }
    Ok(())
}

fn compare(stored: &Response, found: &Response) -> (bool, String) {
    let differs = if stored.status_code() != found.status_code() {
        format!("the status is {}", found.status_code())
    } else if stored.headers() != found.headers() {
        "the headers differ".to_owned()
    } else if stored.body() != found.body() {
        format!(
            "the body differs: {} bytes were stored, {} came back",
            stored.body().len(),
            found.body().len()
        )
    } else {
        return (true, format!("the same {} bytes", stored.body().len()));
    };
    (false, differs)
}
