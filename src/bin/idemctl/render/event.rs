//! One entry of the event log, in `history` and in `inspect`.

use idemctl::mask::Masker;
use idemctl::store::Event;
use idemctl::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Item;

/// An event whose secrets are masked: there is no other way to make one.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct EventView(Event);

impl EventView {
    pub(crate) fn new(event: Event, mask: &Masker) -> Self {
        let json = |json: Option<Box<RawValue>>| json.map(|json| mask.own_json(&json));
        Self(Event {
            action: mask.text(&event.action).into_owned(),
            reason: event.reason.map(|reason| mask.text(&reason).into_owned()),
            before: json(event.before),
            after: json(event.after),
            details: json(event.details),
            ..event
        })
    }

    /// When, what, who, why, and what changed.
    pub(crate) fn line(&self) -> String {
        format!("{} {} {}", self.0.at, self.0.action, self.detail())
    }

    pub(crate) fn at(&self) -> Timestamp {
        self.0.at
    }

    /// The verb.
    pub(crate) fn action(&self) -> &str {
        &self.0.action
    }

    /// Client and key; empty for what concerns many rows.
    pub(crate) fn subject(&self) -> String {
        let words = [&self.0.client_id, &self.0.key];
        let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
        words.join(" ")
    }

    /// The number of the event.
    pub(crate) fn number(&self) -> i64 {
        self.0.id
    }

    /// Who, why, and what changed.
    pub(crate) fn detail(&self) -> String {
        let event = &self.0;
        let reason = event.reason.as_deref().map(|reason| format!(": {reason}"));
        let change = Some(self.change()).filter(|change| !change.is_empty());
        format!(
            "by {} (database user {}){}{}",
            self.who(),
            event.db_user,
            reason.unwrap_or_default(),
            change.map(|change| format!(" [{change}]")).unwrap_or_default(),
        )
    }

    fn who(&self) -> String {
        let user = self.0.os_user.as_deref().unwrap_or("unknown");
        let host = self.0.host.as_deref().unwrap_or("unknown host");
        format!("{user}@{host}")
    }

    /// The row's way from one state to the other, and the details of the verb: verdict, overrides, counts.
    fn change(&self) -> String {
        let read = |json: &Option<Box<RawValue>>| {
            let json = json.as_ref()?;
            serde_json::from_str::<Value>(json.get()).ok()
        };
        let (before, after) = (read(&self.0.before), read(&self.0.after));
        let mut parts = Vec::new();
        if before.is_some() || after.is_some() {
            let gone = || "no row".to_owned();
            let before = before.as_ref().map_or_else(gone, state);
            let after = after.as_ref().map_or_else(|| "gone".to_owned(), state);
            parts.push(if before == after {
                before
            } else {
                format!("{before} -> {after}")
            });
        }
        if let Some(Value::Object(details)) = read(&self.0.details) {
            say(&details, &mut parts);
        }
        parts.join("; ")
    }
}

/// Status, and what a repeat gets.
fn state(row: &Value) -> String {
    let status = row["status"].as_str().unwrap_or("unknown");
    match row["status_code"].as_i64() {
        Some(code) => format!("{status} {code}"),
        None => status.to_owned(),
    }
}

/// Longest text of one detail, in characters: the whole is in the other formats.
const MAX_DETAIL: usize = 60;

/// What a provider's verdict is told with, and what only programs look for.
const TOLD: [&str; 9] = [
    "provider",
    "verdict",
    "reference",
    "amount",
    "currency",
    "raw_status",
    "evidence",
    "action",
    "run",
];

/// Members of the details as words. The verdict comes as a sentence, whose evidence is in the other formats; what is
/// absent or not so is left out.
fn say(details: &serde_json::Map<String, Value>, parts: &mut Vec<String>) {
    let sentence = verdict(details);
    let told = sentence.is_some();
    parts.extend(sentence);
    for (name, value) in details {
        let words = name.replace('_', " ");
        match value {
            Value::Null | Value::Bool(false) => {}
            // Nesting goes no deeper than a reader of JSON allows.
            Value::Object(inner) => say(inner, parts),
            _ if told && TOLD.contains(&name.as_str()) => {}
            Value::Bool(true) => parts.push(words),
            Value::String(text) => parts.push(short(&format!("{words} {text}"))),
            Value::Number(number) => parts.push(format!("{words} {number}")),
            Value::Array(items) => parts.push(format!("{words}: {} items", items.len())),
        }
    }
}

/// Such as `acme says charged (pay_7Q2, 4990 EUR)`.
fn verdict(details: &serde_json::Map<String, Value>) -> Option<String> {
    let text = |name: &str| match details.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let (provider, verdict) = (text("provider"), text("verdict"));
    if provider.is_empty() || verdict.is_empty() {
        return None;
    }
    let money = format!("{} {}", text("amount"), text("currency"));
    let known = [text("reference"), money.trim().to_owned()];
    let known: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .filter(|part| !part.is_empty())
        .collect();
    Some(if known.is_empty() {
        format!("{provider} says {verdict}")
    } else {
        format!("{provider} says {verdict} ({})", short(&known.join(", ")))
    })
}

fn short(text: &str) -> String {
    if text.chars().count() <= MAX_DETAIL {
        return text.to_owned();
    }
    text.chars().take(MAX_DETAIL - 3).chain("...".chars()).collect()
}

impl Item for EventView {
    const COLUMNS: &'static [&'static str] =
        &["when", "action", "client_id", "key", "who", "change", "reason"];

    fn cells(&self) -> Vec<String> {
        let event = &self.0;
        vec![
            event.at.to_string(),
            event.action.clone(),
            event.client_id.clone().unwrap_or_default(),
            event.key.clone().unwrap_or_default(),
            format!("{} ({})", self.who(), event.db_user),
            self.change(),
            event.reason.clone().unwrap_or_default(),
        ]
    }

    const DISPENSABLE: &'static [&'static str] = &["reason", "change", "who"];

    const CSV_COLUMNS: &'static [&'static str] = &[
        "id",
        "at",
        "action",
        "client_id",
        "key",
        "db_user",
        "os_user",
        "host",
        "reason",
        "before",
        "after",
        "details",
    ];

    fn csv(&self) -> Vec<String> {
        let event = &self.0;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let json =
            |json: &Option<Box<RawValue>>| json.as_ref().map_or(String::new(), |json| json.get().to_owned());
        vec![
            event.id.to_string(),
            event.at.to_string(),
            event.action.clone(),
            text(&event.client_id),
            text(&event.key),
            event.db_user.clone(),
            text(&event.os_user),
            text(&event.host),
            text(&event.reason),
            json(&event.before),
            json(&event.after),
            json(&event.details),
        ]
    }

    fn id(&self) -> Option<(&str, &str)> {
        Some((self.0.client_id.as_deref()?, self.0.key.as_deref()?))
    }
}
