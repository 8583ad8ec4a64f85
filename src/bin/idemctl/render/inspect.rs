//! One key on one screen.

mod change;
mod text;
mod timeline;

use std::io::{self, Write};

use base64::Engine;
use idemctl::mask::Masker;
use idemctl::ops::inspect::Report;
use idemctl::time::{Stopwatch, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;

use super::Document;
use super::event::EventView;
use super::key::{BodyView, KeyView};
use super::provider::StatusView;
use super::table::terminal_width;
use crate::settings::Config;
pub(crate) use text::to_the_second;
use timeline::Entry;

/// `inspect -o json` of the contract.
#[derive(Debug, Serialize)]
pub(crate) struct InspectView {
    #[serde(flatten)]
    pub(crate) key: KeyView,
    pub(crate) history: Vec<EventView>,
    /// What happened and what will, oldest first.
    timeline: Vec<Entry>,
    /// What that means, in words.
    meaning: String,
    /// What is known to be safe, in words.
    safe: &'static str,
    pub(crate) next: Option<String>,
    /// What the provider says, where it was asked: its word, not the row's.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_says: Option<StatusView>,
    /// What is different since the last look, where somebody watches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<String>,
    /// The body as text, for people.
    #[serde(skip)]
    body_text: Option<String>,
    /// Since the row was read.
    #[serde(skip)]
    read: Stopwatch,
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
        let read = record.read;
        let mut key = KeyView::with_mask(record, config, mask);
        let mut body_text = None;
        if let (Some(view), Some(body)) = (&mut key.response, &body) {
            let (shown, text) = show_body(body, mask);
            view.body = Some(shown);
            body_text = Some(text);
        }
        let mut view = Self {
            key,
            history: history
                .into_iter()
                .map(|event| EventView::new(event, mask))
                .collect(),
            timeline: Vec::new(),
            meaning: String::new(),
            safe: "",
            next,
            provider_says: None,
            changes: Vec::new(),
            body_text,
            read,
        };
        view.says(None);
        view
    }

    /// Adds what the provider says.
    pub(crate) fn says(&mut self, says: Option<StatusView>) {
        let answered = self.key.as_of.checked_add(self.read.elapsed());
        let asked = says.as_ref().map(|says| (answered, says));
        self.timeline = timeline::timeline(&self.key, &self.history, asked);
        self.meaning = timeline::meaning(&self.key, says.as_ref());
        self.safe = safe(&self.key, says.as_ref().map(|says| says.verdict));
        self.provider_says = says;
    }

    /// The database's time at which all this held.
    pub(crate) fn as_of(&self) -> Timestamp {
        self.key.as_of
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
        for line in self.lines(terminal_width()) {
            line.write(out)?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn ids(&self) -> Option<Vec<(&str, &str)>> {
        Some(vec![(&self.key.client_id, &self.key.key)])
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
        ("expired", Some("unknown")) => {
            "the provider cannot tell now: wait and ask it again; do not release the key or declare it failed, which \
             could hide a charge or repeat it. The client's own retry is safe where the provider takes idempotency \
             keys (it gets the same one)"
        }
        ("expired", None) => {
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
