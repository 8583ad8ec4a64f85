//! What is different between two looks at the same key.

use super::super::event::EventView;
use super::super::key::KeyView;
use super::InspectView;
use super::text::to_the_second;

impl InspectView {
    /// What changed since an earlier look, in words; empty where nothing did.
    pub(crate) fn changes_since(&self, earlier: &Self) -> Vec<String> {
        let mut changes: Vec<String> = facts(&earlier.key)
            .into_iter()
            .zip(facts(&self.key))
            .filter(|(before, after)| before != after)
            .map(|((name, before), (_, after))| format!("{name} {before} -> {after}"))
            .collect();
        let last = earlier.history.first().map(EventView::number);
        let newer = self
            .history
            .iter()
            .take_while(|event| last.is_none_or(|last| event.number() > last));
        let mut events: Vec<String> = newer
            .map(|event| format!("{} {}", event.action(), event.detail()))
            .collect();
        events.reverse();
        changes.append(&mut events);
        changes
    }

    /// Keeps them for whoever reads the document.
    pub(crate) fn note_changes(&mut self, changes: Vec<String>) {
        self.changes = changes;
    }

    /// One line: how the key stands, and what changed since the line before.
    pub(crate) fn line(&self, changes: &[String]) -> String {
        let key = &self.key;
        let mut parts = vec![key.state];
        parts.extend(changes.iter().map(String::as_str));
        parts.push(&self.meaning);
        let time = self.time();
        format!("{time} {} {}: {}", key.client_id, key.key, parts.join("; "))
    }

    /// When all this held, by the database's clock.
    pub(crate) fn time(&self) -> String {
        to_the_second(self.as_of())
    }
}

/// What can change, with its name. Ages are no change, and the end of a lease says more than its rest.
fn facts(key: &KeyView) -> [(&'static str, String); 9] {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".to_owned());
    let response = key.response.as_ref().map_or("none".to_owned(), |response| {
        let code = response
            .status_code
            .map_or("no status".to_owned(), |code| code.to_string());
        match response.body_bytes {
            Some(bytes) => format!("{code}, {bytes} bytes"),
            None => code,
        }
    });
    [
        ("state", key.state.to_owned()),
        ("created", key.created_at.to_string()),
        ("attempt", key.attempt.to_string()),
        ("owner", text(&key.owner)),
        ("lease until", key.locked_until.to_string()),
        ("provider", text(&key.provider)),
        ("order id", key.order_id.clone()),
        ("response", response),
        ("last error", text(&key.last_error)),
    ]
}
