//! One key on one screen.

use std::io::{self, Write};

use base64::Engine;
use idemctl::mask::Masker;
use idemctl::ops::inspect::Report;
use serde::Serialize;
use serde_json::value::RawValue;

use super::event::EventView;
use super::key::{BodyView, KeyView, age, lease};
use super::provider::StatusView;
use super::{Document, printable};
use crate::settings::Config;

/// `inspect -o json` of the contract.
#[derive(Debug, Serialize)]
pub(crate) struct InspectView {
    #[serde(flatten)]
    pub(crate) key: KeyView,
    pub(crate) history: Vec<EventView>,
    /// What is known to be safe, in words.
    safe: &'static str,
    pub(crate) next: Option<String>,
    /// What the provider says, where it was asked: its word, not the row's.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_says: Option<StatusView>,
    /// The body as text, for people.
    #[serde(skip)]
    body_text: Option<String>,
}

impl InspectView {
    /// `unmasked`: show secrets too, in the body and around it.
    pub(crate) fn new(report: Report, config: &Config, unmasked: bool, next: Option<String>) -> Self {
        let Report {
            record,
            body,
            history,
        } = report;
        let mask = &if unmasked {
            Masker::off()
        } else {
            config.output.mask.clone()
        };
        let mut key = KeyView::with_mask(record, config, mask);
        let mut body_text = None;
        if let (Some(view), Some(body)) = (&mut key.response, &body) {
            let (shown, text) = show_body(body, mask);
            view.body = Some(shown);
            body_text = Some(text);
        }
        Self {
            safe: safe(&key, None),
            key,
            history: history
                .into_iter()
                .map(|event| EventView::new(event, mask))
                .collect(),
            next,
            provider_says: None,
            body_text,
        }
    }

    /// Adds what the provider says.
    pub(crate) fn says(&mut self, says: Option<StatusView>) {
        self.safe = safe(&self.key, says.as_ref().map(|says| says.verdict));
        self.provider_says = says;
    }
}

/// Where the secrets of a body cannot be found.
const NOT_TEXT: &str =
    "not shown, because it is no text in which secrets could be masked (--unmask shows it as base64)";

/// A body for JSON and for people.
fn show_body(body: &[u8], mask: &Masker) -> (BodyView, String) {
    let Ok(text) = std::str::from_utf8(body) else {
        if !mask.is_off() {
            return (
                BodyView::Hidden {
                    body_hidden: NOT_TEXT,
                },
                format!("({NOT_TEXT})"),
            );
        }
        let body_base64 = base64(body);
        let text = format!("(not text; base64) {body_base64}");
        return (BodyView::Bytes { body_base64 }, text);
    };
    let shown = mask.body(text);
    let view = match serde_json::from_str::<Box<RawValue>>(&shown) {
        Ok(body) => BodyView::Json { body },
        Err(_) => BodyView::Bytes {
            body_base64: base64(shown.as_bytes()),
        },
    };
    (view, shown.into_owned())
}

/// Standard base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

impl Document for InspectView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let key = &self.key;
        let bold = anstyle::Style::new().bold();
        writeln!(
            out,
            "{bold}{} {}{bold:#}   {}",
            printable(&key.client_id),
            printable(&key.key),
            state(key)
        )?;
        let mut line = |name: &str, value: &str| writeln!(out, "  {name:<13} {}", printable(value));
        line("operation", key.operation.as_deref().unwrap_or("not recorded"))?;
        line("attempt", &key.attempt.to_string())?;
        let created = match key.age_seconds {
            Some(seconds) => format!("{} ({} ago)", key.created_at, age(seconds)),
            None => format!("{} (no time that could be counted from)", key.created_at),
        };
        line("created", &created)?;
        if key.status == "in_progress" {
            line("lease until", &key.locked_until.to_string())?;
        }
        line("owner", key.owner.as_deref().unwrap_or("not recorded"))?;
        if let Some(completed) = key.completed_at {
            line("completed", &completed.to_string())?;
        }
        if let Some(expires) = key.expires_at {
            line("purged from", &format!("{expires} (by the configured retention)"))?;
        }
        line("provider", key.provider.as_deref().unwrap_or("not recorded"))?;
        line("order id", &key.order_id)?;
        line(
            "provider key",
            key.provider_key
                .as_deref()
                .unwrap_or("none by the configured scheme"),
        )?;
        line("fingerprint", &key.fingerprint)?;
        line("response", &self.response_line())?;
        if let Some(body) = &self.body_text {
            line("body", body)?;
        }
        line("last error", key.last_error.as_deref().unwrap_or("none"))?;
        self.history_text(out)?;
        if let Some(answer) = &self.provider_says {
            answer.text(out)?;
        }
        writeln!(out, "  {:<13} {}", "safe", self.safe)?;
        if let Some(next) = &self.next {
            writeln!(out, "  {:<13} {bold}{}{bold:#}", "next", printable(next))?;
        }
        Ok(())
    }

    fn ids(&self) -> Option<Vec<(&str, &str)>> {
        Some(vec![(&self.key.client_id, &self.key.key)])
    }
}

impl InspectView {
    fn response_line(&self) -> String {
        match &self.key.response {
            None => "none stored".to_owned(),
            Some(response) => {
                let body = match (response.body_bytes, &response.body_sha256) {
                    (Some(bytes), Some(sha256)) => format!("{bytes} bytes, sha256 {sha256}"),
                    _ => "body hidden from this database role".to_owned(),
                };
                format!(
                    "{} {}, {body}",
                    response
                        .status_code
                        .map_or("no status".to_owned(), |code| code.to_string()),
                    response.content_type.as_deref().unwrap_or("type not recorded"),
                )
            }
        }
    }

    fn history_text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.history.is_empty() {
            return writeln!(
                out,
                "  {:<13} no operator or janitor has touched this key",
                "history"
            );
        }
        for (i, event) in self.history.iter().enumerate() {
            let name = if i == 0 { "history" } else { "" };
            writeln!(out, "  {name:<13} {}", printable(&event.line()))?;
        }
        Ok(())
    }
}

/// What is known to be safe in this state; never a guess about the money. `verdict`: what the provider says.
fn safe(key: &KeyView, verdict: Option<&str>) -> &'static str {
    // Which key an older service gave the provider is not known here, so no retry is known to be safe.
    match (key.state, verdict) {
        ("expired", None | Some("unknown")) if key.by_old_service => {
            "nobody knows yet whether the money moved: ask the provider first; a service that records no token wrote \
             this row under a provider key that idemctl does not know, so a retry may charge again"
        }
        ("expired", Some("charged" | "authorized")) if key.by_old_service => {
            "the money moved or is held: do not release; a retry may charge again, because a service that records no \
             token wrote this row under a provider key that idemctl does not know"
        }
        ("in_progress", _) => "wait: the holder may be at work; repeats get 409 until it ends",
        ("expired", None | Some("unknown")) => {
            "nobody knows yet whether the money moved: ask the provider first; the client's own retry is safe where the \
             provider takes idempotency keys (it gets the same one)"
        }
        ("expired", Some("not_charged")) => {
            "the money did not move: to give the key up lets the next request start afresh"
        }
        ("expired", Some("pending")) => "the provider is still at it: wait, then ask again",
        ("expired", Some("charged")) => {
            "the money moved: do not release; to store the answer lets the client's retry have it"
        }
        ("expired", Some(_)) => {
            "the money is held: do not release; capture it or give it back at the provider, then resolve the key"
        }
        ("done", _) => "nothing to do: every repeat gets the stored response",
        ("failed", _) => {
            "nothing to do: every repeat gets the final error that the janitor or an operator stored"
        }
        _ => "touch nothing: idemctl does not know this status",
    }
}

fn state(key: &KeyView) -> String {
    let colour = match key.state {
        "done" => anstyle::AnsiColor::Green,
        "in_progress" => anstyle::AnsiColor::Cyan,
        "expired" => anstyle::AnsiColor::Yellow,
        _ => anstyle::AnsiColor::Red,
    };
    let style = anstyle::Style::new().fg_color(Some(colour.into())).bold();
    let more = match (key.state, key.lease_remaining_seconds) {
        ("in_progress" | "expired", Some(rest)) => format!(" (lease {})", lease(rest)),
        ("in_progress", None) => " (lease without end)".to_owned(),
        ("unknown", _) => format!(" (status {:?} is none that idemctl knows)", key.status),
        _ => String::new(),
    };
    format!("{style}{}{style:#}{more}", key.state)
}
