//! The event log: what operators and the janitor did, page by page.

use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime};

use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::ops::list::Order;
use crate::store::{Event, Executor, Store};
use crate::time::Timestamp;

/// Most events of one page.
pub const MAX_PAGE: u32 = 1_000;

/// Which events: every condition that is given must hold.
///
/// A log of any length is read along its primary key, or by the index over client and key where these are given.
/// The other conditions have no index of their own, since events are few beside keys: a condition that hardly any
/// event meets reads the log to its end.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this client.
    pub client_id: Option<String>,
    /// Of this key; meant together with the client.
    pub key: Option<String>,
    /// One of these verbs; empty means any.
    pub actions: Vec<String>,
    /// By this user, of the database or of the operating system.
    pub user: Option<String>,
    /// Not before this.
    pub since: Option<When>,
    /// Before this.
    pub until: Option<When>,
}

impl Filter {
    /// Every event of one key.
    pub fn of(id: &KeyId) -> Self {
        Self {
            client_id: Some(id.client_id().to_owned()),
            key: Some(id.key().to_owned()),
            ..Self::default()
        }
    }
}

/// A point in time: absolute, or counted back from the database's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// So long ago.
    Ago(Duration),
    /// Then.
    At(Timestamp),
}

impl FromStr for When {
    type Err = String;

    /// A duration (`2h`: two hours ago), a time of RFC 3339, or a date with or without a time, which is then meant
    /// in UTC.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(age) = crate::duration::parse(text) {
            return Ok(Self::Ago(age));
        }
        let utc = DateTime::parse_from_rfc3339(text)
            .map(|time| time.to_utc())
            .or_else(|_| {
                NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f")
                    .or_else(|_| NaiveDateTime::parse_from_str(text, "%Y-%m-%dT%H:%M"))
                    .or_else(|_| {
                        NaiveDate::parse_from_str(text, "%Y-%m-%d").map(|date| date.and_time(NaiveTime::MIN))
                    })
                    .map(|time| time.and_utc())
            })
            .ok();
        utc.and_then(Timestamp::from_utc).map(Self::At).ok_or_else(|| {
            format!(
                "{:?} is neither a duration such as 2h or 7d nor a time such as 2026-11-29T10:00:00Z or 2026-11-29 \
                 (UTC, years 1 to 9999)",
                text.chars().take(40).collect::<String>()
            )
        })
    }
}

/// One page.
#[derive(Debug)]
pub struct Page {
    /// Its events.
    pub events: Vec<Event>,
    /// The number of the last event, where there are more behind it.
    pub next: Option<i64>,
}

/// One page of the log behind the event with the number `after`: at most `limit` events (1 to [`MAX_PAGE`]), in
/// the order of their numbers, which is that of their times but for what ran at once.
pub async fn page(
    executor: &impl Executor,
    store: &Store,
    filter: &Filter,
    order: Order,
    after: Option<i64>,
    limit: u32,
) -> Result<Page> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut events = store.history(executor, filter, order, after, limit + 1).await?;
    let more = events.len() > limit as usize;
    events.truncate(limit as usize);
    let next = more.then(|| events.last().map(|event| event.id)).flatten();
    Ok(Page { events, next })
}

/// Why there are no events of a key: the row itself is unknown (`false`), or nobody but services touched it.
///
/// An event may outlive its row and a row may have none; where neither is there, the key is not known here.
pub async fn has_row(executor: &impl Executor, store: &Store, id: &KeyId) -> Result<bool> {
    Ok(store.get(executor, id).await?.is_some())
}

/// Reads the place that a command printed: the number of an event.
pub fn parse_cursor(text: &str) -> Result<i64> {
    let number = text.parse().ok().filter(|number: &i64| *number >= 0);
    number.ok_or_else(|| Error::Invalid {
        field: "cursor",
        reason: "is not one that `history` printed; leave it out to start at the beginning".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_strictly() {
        let at = |text: &str| match text.parse() {
            Ok(When::At(time)) => time.to_string(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(at("2026-11-29T10:00:00+02:00"), "2026-11-29T08:00:00Z");
        assert_eq!(at("2026-11-29T10:00"), "2026-11-29T10:00:00Z");
        assert_eq!(at("2026-11-29T10:00:01.5"), "2026-11-29T10:00:01.500Z");
        assert_eq!(at("2026-11-29"), "2026-11-29T00:00:00Z");
        assert_eq!("90m".parse(), Ok(When::Ago(Duration::from_mins(90))));
        for bad in [
            "",
            "yesterday",
            "2026-13-01",
            "-1h",
            "1M",
            "+99999-01-01",
            "2026-11-29T25:00",
        ] {
            assert!(bad.parse::<When>().is_err(), "{bad}");
        }
        for bad in ["", "-1", "x", "99999999999999999999"] {
            assert!(parse_cursor(bad).is_err(), "{bad}");
        }
    }
}
