//! The screen for people.

use anstyle::{AnsiColor, Style};
use chrono::SecondsFormat;
use idemctl::time::Timestamp;

use super::super::key::{KeyView, lease};
use super::super::printable;
use super::super::styled::{Line, hanging};
use super::InspectView;

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().bold();

impl InspectView {
    /// The lines of the screen, wrapped to `room` places; unwrapped without one.
    pub(crate) fn lines(&self, room: Option<usize>) -> Vec<Line> {
        let mut lines = self.conclusion(room);
        self.timeline_lines(room, &mut lines);
        self.facts(room, &mut lines);
        self.advice(room, &mut lines);
        lines
    }

    /// The same with the advice at the top, for a screen that is read from there and may be too short for the rest.
    pub(crate) fn lines_advice_first(&self, room: Option<usize>) -> Vec<Line> {
        let mut lines = self.conclusion(room);
        self.advice(room, &mut lines);
        self.timeline_lines(room, &mut lines);
        self.facts(room, &mut lines);
        lines
    }

    fn conclusion(&self, room: Option<usize>) -> Vec<Line> {
        let mut lines = vec![self.head()];
        lines.extend(hanging(
            Line::of(PLAIN, "  "),
            PLAIN,
            &printable(&self.meaning),
            room,
        ));
        lines
    }

    fn advice(&self, room: Option<usize>, lines: &mut Vec<Line>) {
        if let Some(says) = &self.provider_says {
            let line = printable(&says.line());
            lines.extend(hanging(Line::of(PLAIN, "  "), BOLD, &line, room));
            for (name, value) in says.grounds() {
                lines.extend(fact(name, PLAIN, value, room));
            }
        }
        lines.extend(fact("safe", PLAIN, self.safe, room));
        if let Some(next) = &self.next {
            lines.extend(fact("next", BOLD, next, room));
        }
    }

    fn head(&self) -> Line {
        let key = &self.key;
        let name = format!("{} {}", printable(&key.client_id), printable(&key.key));
        let mut line = Line::of(BOLD, name);
        let (style, state, more) = state(key);
        line.push(PLAIN, "   ");
        line.push(style, state);
        line.push(PLAIN, printable(&more));
        line
    }

    fn timeline_lines(&self, room: Option<usize>, lines: &mut Vec<Line>) {
        let as_of = self.as_of();
        let whens: Vec<(String, String)> = self
            .timeline
            .iter()
            .map(|entry| (entry.at.map(to_the_second).unwrap_or_default(), entry.age(as_of)))
            .collect();
        let widest = |pick: fn(&(String, String)) -> &String| {
            let widths = whens.iter().map(|when| pick(when).len());
            widths.max().unwrap_or_default()
        };
        let (times, ages) = (widest(|when| &when.0), widest(|when| &when.1));
        for (entry, (at, age)) in self.timeline.iter().zip(&whens) {
            let head = Line::of(PLAIN, format!("  {at:<times$}  {age:>ages$}  "));
            lines.extend(hanging(head, PLAIN, &printable(&entry.text()), room));
        }
    }

    fn facts(&self, room: Option<usize>, lines: &mut Vec<Line>) {
        let key = &self.key;
        let or = |value: &Option<String>, none: &str| value.clone().unwrap_or_else(|| none.to_owned());
        let mut facts = vec![
            ("operation", or(&key.operation, "not recorded")),
            ("attempt", key.attempt.to_string()),
            ("owner", or(&key.owner, "not recorded")),
            ("provider", or(&key.provider, "not recorded")),
            ("order id", key.order_id.clone()),
            (
                "provider key",
                or(&key.provider_key, "none by the configured scheme"),
            ),
            ("fingerprint", key.fingerprint.clone()),
            ("response", self.response_line()),
        ];
        facts.extend(self.body_text.clone().map(|body| ("body", body)));
        facts.push(("last error", or(&key.last_error, "none")));
        for (name, value) in facts {
            lines.extend(fact(name, PLAIN, &value, room));
        }
    }

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
}

/// A name and a value, whose control characters are escaped.
fn fact(name: &str, style: Style, value: &str, room: Option<usize>) -> Vec<Line> {
    let head = Line::of(PLAIN, format!("  {name:<13} "));
    hanging(head, style, &printable(value), room)
}

/// People need no microseconds; the other formats have them.
pub(crate) fn to_the_second(at: Timestamp) -> String {
    match at.to_utc() {
        Some(utc) => utc.to_rfc3339_opts(SecondsFormat::Secs, true),
        None => at.to_string(),
    }
}

/// The colour of a state.
fn state_style(state: &str) -> Style {
    let colour = match state {
        "done" => AnsiColor::Green,
        "in_progress" => AnsiColor::Cyan,
        "expired" => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    Style::new().fg_color(Some(colour.into())).bold()
}

fn state(key: &KeyView) -> (Style, &'static str, String) {
    let more = match (key.state, key.lease_remaining_seconds) {
        ("in_progress" | "expired", Some(rest)) => format!(" (lease {})", lease(rest)),
        ("in_progress", None) => " (lease without end)".to_owned(),
        ("unknown", _) => format!(" (status {:?} is none that idemctl knows)", key.status),
        _ => String::new(),
    };
    (state_style(key.state), key.state, more)
}
