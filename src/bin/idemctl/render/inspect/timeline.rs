//! What happened to a key, in order, and what that means in one sentence. Only what is stored or was just said: the
//! table keeps the number of attempts and the latest lease, not when each attempt began.

use idemctl::ops::inspect::MAX_EVENTS;
use idemctl::time::Timestamp;
use serde::Serialize;

use super::super::event::EventView;
use super::super::key::{KeyView, age};
use super::super::provider::StatusView;

/// One thing that happened, or will.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    /// When; `None` where that is not stored.
    pub(super) at: Option<Timestamp>,
    /// `created`, `acquired_again`, `lease_ends`, `lease_ended`, `completed`, `failed`, `may_be_purged`,
    /// `provider_says`, `older_events_left_out`, or the verb of an event.
    pub(super) what: String,
    pub(super) detail: String,
}

impl Entry {
    fn new(at: Option<Timestamp>, what: &str, detail: impl Into<String>) -> Self {
        Self {
            at,
            what: what.to_owned(),
            detail: detail.into(),
        }
    }

    /// In words.
    pub(super) fn text(&self) -> String {
        if self.what == PROVIDER_SAYS {
            return self.detail.clone();
        }
        let words = self.what.replace('_', " ");
        format!("{words} {}", self.detail).trim_end().to_owned()
    }

    /// How long ago by the database's clock, or in how long.
    pub(super) fn age(&self, as_of: Timestamp) -> String {
        match self.at.map(|at| as_of.seconds_since(at)) {
            // After the row was read, but nobody waits for it any more.
            _ if self.what == PROVIDER_SAYS => "now".to_owned(),
            None => "not stored".to_owned(),
            Some(None) => "without end".to_owned(),
            Some(Some(seconds)) if seconds < 0.0 => format!("in {}", age(-seconds)),
            Some(Some(seconds)) => format!("{} ago", age(seconds)),
        }
    }
}

const PROVIDER_SAYS: &str = "provider_says";

/// Everything that is known, oldest first. `says`: what a provider said, and when by the database's clock.
pub(super) fn timeline(
    key: &KeyView,
    history: &[EventView],
    says: Option<(Option<Timestamp>, &StatusView)>,
) -> Vec<Entry> {
    let mut entries = vec![created(key)];
    // The log has the newest first.
    for event in history.iter().rev() {
        entries.push(Entry::new(Some(event.at()), event.action(), event.detail()));
    }
    if key.status == "in_progress" {
        let over = key.state == "expired";
        let what = if over { "lease_ended" } else { "lease_ends" };
        entries.push(Entry::new(Some(key.locked_until), what, ""));
    }
    if let Some(at) = key.completed_at {
        let what = if key.state == "failed" {
            "failed"
        } else {
            "completed"
        };
        entries.push(Entry::new(Some(at), what, answer(key)));
    }
    if let Some((at, says)) = says {
        let detail = format!("{} says {}", says.who(), says.verdict);
        entries.push(Entry::new(at, PROVIDER_SAYS, detail));
    }
    if let Some(at) = key.expires_at {
        entries.push(Entry::new(
            Some(at),
            "may_be_purged",
            "by the configured retention",
        ));
    }
    // What has one time stays in the order of a key's life.
    entries.sort_by_key(|entry| entry.at);
    if key.attempt > 1 {
        let after = entries.iter().position(|entry| entry.what == "created");
        entries.insert(after.map_or(0, |place| place + 1), acquired_again(key));
    }
    if history.len() >= MAX_EVENTS as usize {
        let detail = "here; `idemctl history` shows them";
        entries.insert(0, Entry::new(None, "older_events_left_out", detail));
    }
    entries
}

fn created(key: &KeyView) -> Entry {
    let by = match (&key.owner, key.attempt) {
        (Some(owner), 1) => format!("by {owner}"),
        _ => "by a holder that is not stored".to_owned(),
    };
    Entry::new(Some(key.created_at), "created", by)
}

fn acquired_again(key: &KeyView) -> Entry {
    let last = match &key.owner {
        Some(owner) => format!("the last time by {owner}"),
        None => "the last holder is not stored".to_owned(),
    };
    let times = key.attempt.saturating_sub(1);
    let s = if times == 1 { "" } else { "s" };
    Entry::new(None, "acquired_again", format!("{times} time{s}, {last}"))
}

fn answer(key: &KeyView) -> String {
    let Some(response) = &key.response else {
        return String::new();
    };
    let code = response
        .status_code
        .map_or("no status".to_owned(), |code| code.to_string());
    match &response.content_type {
        Some(content_type) => format!("with {code} {content_type}"),
        None => format!("with {code}"),
    }
}

/// What all this means, in plain words. What nobody can know from here is said to be unknown.
pub(super) fn meaning(key: &KeyView, says: Option<&StatusView>) -> String {
    match key.state {
        "in_progress" => {
            let rest = match key.lease_remaining_seconds {
                Some(rest) => format!("lasts for another {}", age(rest)),
                None => "has no end".to_owned(),
            };
            let holder = holder(key);
            format!("{holder} has the key and may be at work: the lease {rest}.")
        }
        "expired" => format!("{} {}", lost(key), money(key, says)),
        "done" => format!(
            "The work came to its end: every repeat gets the stored {}.",
            stored(key)
        ),
        "failed" => format!(
            "The janitor or an operator stored a final error: every repeat gets {}.",
            stored(key)
        ),
        _ => format!(
            "Another program wrote the status {:?}, which idemctl does not know: what it means for the money is not \
             known.",
            key.status
        ),
    }
}

/// `host:pid:nonce`, as the library writes it, in words; whatever else stands there as it is.
fn holder(key: &KeyView) -> String {
    let Some(owner) = &key.owner else {
        return "The holder, who is not stored,".to_owned();
    };
    let mut parts = owner.rsplitn(3, ':');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(pid), Some(host)) if !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()) => {
            format!("The holder {host} pid {pid}")
        }
        _ => format!("The holder {owner}"),
    }
}

/// That a lease ended. A row keeps its last error when another attempt takes it over, so of a later attempt only the
/// silence is known.
fn lost(key: &KeyView) -> String {
    let ended = match key.lease_remaining_seconds {
        Some(rest) => format!("the lease ended {} ago", age(-rest)),
        None => "the lease is over".to_owned(),
    };
    match &key.last_error {
        Some(error) if key.attempt == 1 => {
            format!(
                "{} left no result but the word \"{error}\": {ended}.",
                holder(key)
            )
        }
        _ => format!("{} died, hangs or is late: {ended}.", holder(key)),
    }
}

fn money(key: &KeyView, says: Option<&StatusView>) -> String {
    let Some(says) = says else {
        return match &key.provider {
            Some(provider) => format!("Whether {provider} charged is not known."),
            None => "Whether money moved is not known.".to_owned(),
        };
    };
    let who = says.who();
    match says.verdict {
        "charged" => format!("{who} says that it charged; the client has no answer yet."),
        "authorized" => format!("{who} says that the money is held and not taken."),
        "not_charged" => format!("{who} says that nothing was charged."),
        "pending" => format!("{who} says that the charge is still under way."),
        _ => format!("{who} cannot tell whether it charged."),
    }
}

/// What a repeat gets.
fn stored(key: &KeyView) -> String {
    let code = key.response.as_ref().and_then(|response| response.status_code);
    code.map_or("response".to_owned(), |code| code.to_string())
}
