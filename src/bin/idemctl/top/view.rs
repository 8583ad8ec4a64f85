//! What a look shows, in words: masked and printable.

use idemctl::key::KeyId;
use idemctl::ops::gauges::Count;
use idemctl::ops::top::Look;
use idemctl::store::JobRow;
use idemctl::time::Timestamp;

use crate::render::event::EventView;
use crate::render::inspect::to_the_second;
use crate::render::key::{KeyView, age};
use crate::render::printable;
use crate::settings::Config;

/// An expired key.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: KeyId,
    /// Client, key, since when, attempt, provider, owner.
    pub(crate) cells: [String; 6],
}

/// One look.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// The database's time.
    pub(crate) as_of: String,
    pub(crate) in_progress: String,
    pub(crate) expired: String,
    /// Whether there is any.
    pub(crate) any_expired: bool,
    /// The newest keys and the estimate of all.
    pub(crate) rest: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) jobs: Vec<String>,
    pub(crate) events: Vec<String>,
    /// What was not answered.
    pub(crate) missing: Vec<String>,
}

impl Shown {
    pub(crate) fn new(look: Look, config: &Config) -> Self {
        let now = look.counters.now;
        let mask = &config.output.mask;
        let unknown = || "?".to_owned();
        let oldest = look.expired.and_then(|expired| expired.oldest_seconds);
        let oldest = oldest.map(|seconds| format!(" (oldest {})", age(seconds)));
        let expired = look.expired.map(|expired| count(expired.all));
        let jobs = match &look.jobs {
            None => vec!["not known".to_owned()],
            Some(jobs) if jobs.is_empty() => vec!["no janitor has looked at this database yet".to_owned()],
            Some(jobs) => jobs
                .iter()
                .map(|(name, row)| printable(&mask.text(&job(name, row))))
                .collect(),
        };
        let events = look.events.unwrap_or_default();
        Self {
            as_of: to_the_second(now),
            in_progress: look.in_progress.map_or_else(unknown, count),
            any_expired: look.expired.is_some_and(|expired| expired.all.rows > 0),
            expired: format!(
                "{}{}",
                expired.unwrap_or_else(unknown),
                oldest.unwrap_or_default()
            ),
            rest: rest(look.newest.as_ref(), look.estimate),
            rows: look
                .oldest
                .into_iter()
                .map(|record| {
                    let id = record.id.clone();
                    row(id, &KeyView::new(record, config))
                })
                .collect(),
            jobs,
            events: events
                .into_iter()
                .map(|event| event_line(&EventView::new(event, mask), now))
                .collect(),
            missing: look.missing.iter().map(|missing| printable(missing)).collect(),
        }
    }
}

fn count(count: Count) -> String {
    let plus = if count.capped { "+" } else { "" };
    format!("{}{plus}", count.rows)
}

/// The newest keys are counted; all of them are what the planner believes.
fn rest(newest: Option<&idemctl::ops::top::Newest>, estimate: Option<f64>) -> String {
    let newest = newest.map_or("newest keys ?".to_owned(), |newest| {
        format!(
            "newest {}: done {} failed {}",
            newest.keys, newest.done, newest.failed
        )
    });
    match estimate {
        Some(rows) => format!("{newest}   all ~{rows:.0}"),
        None => newest,
    }
}

fn row(id: KeyId, key: &KeyView) -> Row {
    let text = |value: &Option<String>| printable(value.as_deref().unwrap_or("-"));
    let over = key
        .lease_remaining_seconds
        .map_or("?".to_owned(), |rest| age(-rest));
    Row {
        cells: [
            printable(&key.client_id),
            printable(&key.key),
            over,
            key.attempt.to_string(),
            text(&key.provider),
            text(&key.owner),
        ],
        id,
    }
}

/// How a job's last run went, and whether one is under way, by the database's clock.
fn job(name: &str, row: &JobRow) -> String {
    let since = |at: Timestamp| row.now.seconds_since(at).map_or("?".to_owned(), age);
    let holder = row.holder.as_deref().unwrap_or("nobody that is stored");
    let last = match (row.last_finished_at, &row.last_outcome) {
        (Some(at), outcome) => {
            let outcome = outcome.as_deref().unwrap_or("ended");
            let summary = row.last_summary.as_deref().unwrap_or_default();
            format!("{outcome} {} ago: {summary}", since(at))
        }
        (None, _) => "no run has come to its end yet".to_owned(),
    };
    match (row.held_until, row.last_started_at) {
        (Some(until), Some(started)) if until > row.now => {
            format!(
                "{name:<8} running for {} by {holder}; before that: {last}",
                since(started)
            )
        }
        (Some(until), _) => format!(
            "{name:<8} {holder} did not come to an end, its term is over since {}; before that: {last}",
            since(until)
        ),
        (None, _) => format!("{name:<8} {last}"),
    }
}

fn event_line(event: &EventView, now: Timestamp) -> String {
    let ago = now.seconds_since(event.at()).map_or("?".to_owned(), age);
    let subject = event.subject();
    let blank = if subject.is_empty() { "" } else { " " };
    printable(&format!(
        "{:>7} ago  {}{blank}{subject} {}",
        ago,
        event.action(),
        event.detail()
    ))
}
