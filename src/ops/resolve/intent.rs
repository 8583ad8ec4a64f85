//! What somebody wants to be stored, and the rules for it.

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::hex;
use crate::ops::actor::Actor;
use crate::ops::end::End;
use crate::response::{DEFAULT_MAX_BODY_BYTES, Response};
use crate::store::approval::Wanted;
use crate::store::expired::Stuck;

/// Longest evidence and longest reason, in characters (Unicode scalar values): the event log is no archive.
pub const MAX_TEXT_CHARS: usize = 4_000;

/// Most headers, and most bytes of them all.
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;

/// Headers that belong to one connection or to the framing of one message (RFC 9110, sections 7.6.1 and 8.6;
/// RFC 9112, section 6): whoever replays the response sets them, and stored ones would break it.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
];

/// How the row ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// `done`: the work came to an end, and this is its answer. Below 400 it says that the charge was made; from
    /// 400 on that it was definitely refused.
    Done,
    /// `failed`: nothing was charged.
    Failed,
}

impl Decision {
    /// `done`, `failed`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// How many persons it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Approval {
    /// One.
    #[default]
    None,
    /// One asks, another one confirms: another session user of the database, or another user of the operating
    /// system, which the acting program only says.
    TwoPerson,
    /// The same, and only another session user of the database counts: that is proof.
    TwoDatabaseUsers,
}

impl Approval {
    /// `none`, `two-person`, `two-database-users`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TwoPerson => "two-person",
            Self::TwoDatabaseUsers => "two-database-users",
        }
    }
}

/// What somebody wants to be done with a row.
#[derive(Debug, Clone)]
pub struct Intent {
    /// How it ends.
    pub decision: Decision,
    /// What every repeat gets from then on.
    pub response: Response,
    /// What shows it: 1 to [`MAX_TEXT_CHARS`] characters. It and the reason are stored as they are.
    pub evidence: String,
    /// Whom to ask, where the row names nobody.
    pub provider: Option<String>,
    /// Do it although the provider says otherwise, or cannot be asked.
    pub against_provider: bool,
    /// How many persons it takes.
    pub approval: Approval,
    /// Who acts, and why: the reason is needed, under the same rules as the evidence.
    pub actor: Actor,
}

impl Intent {
    /// Checks everything that needs no database.
    ///
    /// Returns [`Error::Invalid`] naming what is wrong, [`Error::ResponseTooLarge`] for a body over
    /// [`DEFAULT_MAX_BODY_BYTES`].
    pub fn check(&self) -> Result<()> {
        check_text("evidence", &self.evidence)?;
        check_text("reason", self.actor.reason.as_deref().unwrap_or(""))?;
        let size = self.response.body().len();
        if size > DEFAULT_MAX_BODY_BYTES {
            return Err(Error::ResponseTooLarge {
                size,
                limit: DEFAULT_MAX_BODY_BYTES,
            });
        }
        self.check_status()?;
        check_headers(self.response.headers())
    }

    fn check_status(&self) -> Result<()> {
        let code = self.response.status_code();
        let invalid = |reason: String| {
            Err(Error::Invalid {
                field: "status_code",
                reason,
            })
        };
        match (self.decision, code) {
            // RFC 9110, section 15.2: an interim response is no answer.
            (_, ..=199) => invalid(format!("is {code}, which ends nothing; 200 to 599 are allowed")),
            (Decision::Failed, ..=399) => invalid(format!(
                "is {code}, which says success; `failed` takes 400 to 599"
            )),
            // RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5.
            (_, 204 | 205 | 304) if !self.response.body().is_empty() => {
                invalid(format!("is {code}, which has no body; give an empty one"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn end(&self) -> End {
        match self.decision {
            Decision::Done => End::Complete(self.response.clone()),
            Decision::Failed => End::Fail(Some(self.response.clone())),
        }
    }

    /// Hex SHA-256 of the body's bytes.
    pub fn body_sha256(&self) -> String {
        hex::sha256(self.response.body())
    }

    /// Hex SHA-256 of status, headers in order, and body: what two persons have to agree on.
    pub fn response_sha256(&self) -> String {
        let response = &self.response;
        let mut hash = Sha256::new();
        // JSON has no raw line feed within, so no two responses come to the same text.
        hash.update(format!(
            "{}\n{}\n",
            response.status_code(),
            json!(response.headers())
        ));
        hash.update(response.body());
        hex::encode(&hash.finalize())
    }

    /// `against_provider`: whether its word is really overridden.
    pub(super) fn wanted<'a>(&'a self, row: &'a Stuck, against_provider: bool) -> Wanted<'a> {
        Wanted {
            row,
            decision: self.decision.as_str(),
            response_sha256: self.response_sha256(),
            against_provider,
            os_user: self.actor.os_user.as_deref(),
            os_user_counts: self.approval != Approval::TwoDatabaseUsers,
        }
    }
}

/// Text that is kept as it is: not blank, not endless, and nothing in it that drives a terminal.
fn check_text(field: &'static str, text: &str) -> Result<()> {
    let invalid = |reason: String| Err(Error::Invalid { field, reason });
    if text.trim().is_empty() {
        return invalid("is blank; it is needed, and goes into the event log".to_owned());
    }
    let chars = text.chars().count();
    if chars > MAX_TEXT_CHARS {
        return invalid(format!(
            "has {chars} characters; at most {MAX_TEXT_CHARS} are allowed, so refer to a document instead"
        ));
    }
    let bad = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    match text.chars().enumerate().find(|(_, c)| bad(c)) {
        Some((at, c)) => invalid(format!(
            "has the control character U+{:04X} at position {}",
            u32::from(c),
            at + 1
        )),
        None => Ok(()),
    }
}

fn check_headers(headers: &[(String, String)]) -> Result<()> {
    let invalid = |reason: String| {
        Err(Error::Invalid {
            field: "header",
            reason,
        })
    };
    let count = |wanted: &str| {
        let same = headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        same.count()
    };
    if let Some(name) = FRAMING.iter().find(|name| count(name) > 0) {
        return invalid(format!(
            "{name} is set by whoever replays the response; leave it out"
        ));
    }
    if count("content-type") > 1 {
        return invalid("content-type is there twice".to_owned());
    }
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return invalid(format!(
            "list is too long; {MAX_HEADERS} headers and {MAX_HEADER_BYTES} bytes are allowed"
        ));
    }
    Ok(())
}

/// The answer for a charge that was not made: a problem document (RFC 9457).
///
/// Unlike "outcome unknown", it tells the client that a new request under a new key is safe, because that is what
/// the operator has evidence for; a repeat under this key gets the same answer. The status is 500, by which a
/// client that reads nothing else learns that the request was not fulfilled (RFC 9110, section 15.6.1) and that
/// this was not its fault: with a 4xx it would be told to change its request, and 503 would make it repeat the key
/// for ever. The member `outcome` (RFC 9457, section 3.2) is for programs.
pub fn not_made() -> Result<Response> {
    const STATUS_CODE: u16 = 500;
    let body = json!({
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": STATUS_CODE,
        "detail": "The request was not carried out: no payment was made under this idempotency key, and none will \
                   be. To pay, send a new request with a new idempotency key; a repeat with this key gets this \
                   answer again.",
        "outcome": "not_charged",
    });
    Response::new(STATUS_CODE, body.to_string())?.with_header("content-type", "application/problem+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intent(decision: Decision, response: Response) -> Intent {
        Intent {
            decision,
            response,
            evidence: "bank statement 12, line 4".to_owned(),
            provider: None,
            against_provider: false,
            approval: Approval::None,
            actor: Actor::default().with_reason("ticket 7"),
        }
    }

    fn refused(intent: &Intent) -> String {
        intent.check().unwrap_err().to_string()
    }

    #[test]
    fn text_is_kept_exactly_or_refused() {
        let good = intent(Decision::Done, Response::new(201, "{}").unwrap());
        good.check().unwrap();
        for (bad, word) in [
            ("", "blank"),
            (" \t\n", "blank"),
            ("a\0b", "U+0000 at position 2"),
            ("\u{1b}[2J", "U+001B"),
            (&"x".repeat(1024 * 1024), "1048576 characters"),
        ] {
            let mut intent = good.clone();
            intent.evidence = bad.to_owned();
            assert!(refused(&intent).starts_with("evidence ") && refused(&intent).contains(word));
            let mut intent = good.clone();
            intent.actor.reason = Some(bad.to_owned());
            assert!(refused(&intent).starts_with("reason ") && refused(&intent).contains(word));
        }
        let mut lines = good;
        lines.evidence = "line 1\r\n\tline 2".to_owned();
        lines.check().unwrap();
    }

    #[test]
    fn statuses_headers_and_bodies_that_would_break_a_replay_are_refused() {
        for (decision, code, body) in [
            (Decision::Done, 101, ""),
            (Decision::Failed, 200, ""),
            (Decision::Failed, 302, ""),
            (Decision::Done, 204, "x"),
            (Decision::Done, 304, "x"),
        ] {
            let intent = intent(decision, Response::new(code, body).unwrap());
            assert!(refused(&intent).contains(&code.to_string()));
        }
        for header in ["Content-Length", "transfer-encoding", "Connection"] {
            let response = Response::new(200, "x").unwrap().with_header(header, "1").unwrap();
            assert!(
                refused(&intent(Decision::Done, response)).contains("replays"),
                "{header}"
            );
        }
        let twice = Response::new(200, "x").unwrap();
        let twice = twice
            .with_header("content-type", "a/b")
            .unwrap()
            .with_header("Content-Type", "a/b")
            .unwrap();
        assert!(refused(&intent(Decision::Done, twice)).contains("twice"));
        let huge = Response::new(200, vec![b'x'; DEFAULT_MAX_BODY_BYTES + 1]).unwrap();
        assert!(matches!(
            intent(Decision::Done, huge).check(),
            Err(Error::ResponseTooLarge { .. })
        ));
    }

    #[test]
    fn the_digest_tells_status_headers_and_body_apart() {
        let plain = || Response::new(200, "x").unwrap();
        let digest = |response| intent(Decision::Done, response).response_sha256();
        let all = [
            digest(plain()),
            digest(Response::new(201, "x").unwrap()),
            digest(Response::new(200, "y").unwrap()),
            digest(plain().with_header("a", "b").unwrap()),
            digest(plain().with_header("a", "c").unwrap()),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(digest(plain()), all[0]);
    }

    #[test]
    fn the_final_error_says_what_its_status_is() {
        let response = not_made().unwrap();
        let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(body["status"], response.status_code());
        intent(Decision::Failed, response).check().unwrap();
    }
}
