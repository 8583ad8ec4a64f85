//! Lists of payments that are looked through by us, page by page, for those of one order.
//!
//! A list that can only be narrowed by time is read for the time of the attempts, with slack on both sides; only one
//! that was read to its end proves that there is no payment. The bounds are made of the provider's own clock, which it
//! tells with each answer (`Date`): ours decides nothing.

use std::future::Future;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use tokio::time::Instant;

use super::fetch::Trouble;
use super::{LookUp, StatusQuery};
use crate::fingerprint::json::Value;

/// How many pages are read for one question.
const MAX_PAGES: usize = 100;

/// How many where it is not known how far back to look.
const MAX_PAGES_WITHOUT_WINDOW: usize = 5;

/// How much the window begins before the first attempt: more than two servers' clocks differ.
const BEFORE: Duration = Duration::from_mins(5);

/// How much it begins before an attempt whose time is what somebody remembers.
const BEFORE_REMEMBERED: Duration = Duration::from_hours(1);

/// How much it ends after the last attempt, beyond the lag.
const AFTER: Duration = Duration::from_hours(1);

/// Bounds of the time of creation, in seconds since 1970, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: Option<i64>,
    pub(super) to: Option<i64>,
}

/// One page of a list.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) payments: Vec<Value>,
    pub(super) next: Next,
}

/// How a list goes on.
#[derive(Debug)]
pub(super) enum Next {
    /// Not at all: what was asked for was read.
    End,
    /// With the page at this cursor.
    At(String),
    /// It goes on, but nothing says where.
    Lost,
}

/// A list that some API has.
pub(super) trait List: Sync {
    /// What is asked, for the evidence: `GET https://api.example.com/payments`.
    fn asked(&self) -> String;

    /// One page; the first without a cursor. `Err`: it cannot be had or read.
    fn page(
        &self,
        window: &Window,
        cursor: Option<&str>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Page, Trouble>> + Send;

    /// The provider's time, as its answers tell it.
    fn now(&self, deadline: Instant) -> impl Future<Output = Result<Option<DateTime<Utc>>, Trouble>> + Send;

    /// Our order id in a payment.
    fn order(&self, payment: &Value) -> Option<String>;

    /// The provider's own id of a payment.
    fn id(&self, payment: &Value) -> Option<String>;
}

/// What a list came to.
#[derive(Debug)]
pub(super) struct Listed {
    /// All payments of the order in it.
    pub(super) found: Vec<Value>,
    /// What was asked and what came back.
    pub(super) evidence: String,
    /// Whether any of it was read.
    pub(super) answered: bool,
    /// Why it may have missed some.
    pub(super) gap: Option<Trouble>,
}

impl Window {
    /// No bounds: a list that the provider narrows by the order id itself, or the newest payments.
    pub(super) const OPEN: Self = Self { from: None, to: None };

    /// From before the first attempt until well after the last one, or until now where its time is not certain; `now` by the provider's clock.
    fn of(query: &StatusQuery, lag: Duration, first: Duration, now: DateTime<Utc>) -> Self {
        let before = |age: Duration| now.timestamp().saturating_sub(seconds(age));
        let end = query
            .attempted_at_age
            .filter(|_| !query.until_now)
            .and_then(|age| age.checked_sub(lag + AFTER));
        let slack = if query.until_now {
            BEFORE_REMEMBERED
        } else {
            BEFORE
        };
        Self {
            from: Some(before(first.saturating_add(slack))),
            to: end.map(before),
        }
    }

    /// The bounds in RFC 3339.
    pub(super) fn texts(&self) -> (Option<String>, Option<String>) {
        (self.from.map(rfc3339), self.to.map(rfc3339))
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.texts() {
            (None, _) => f.write_str("the newest"),
            (Some(from), None) => write!(f, "created since {from}"),
            (Some(from), Some(to)) => write!(f, "created from {from} to {to}"),
        }
    }
}

/// Reads a list. `now`: the provider's time, if a former answer told it.
///
/// Where it is not known how far back to look, the newest payments are read, which prove nothing unless one of the
/// order is among them.
pub(super) async fn read(
    list: &impl List,
    query: &StatusQuery,
    look_up: LookUp,
    now: Option<DateTime<Utc>>,
    deadline: Instant,
) -> Listed {
    let (window, what, max_pages) = match (look_up, query.first_attempted_at_age) {
        (LookUp::Window { lag }, Some(first)) => match time(list, now, deadline).await {
            Ok(now) => {
                let window = Window::of(query, lag, first, now);
                (window, format!(", {window}"), MAX_PAGES)
            }
            Err(trouble) => {
                return Listed {
                    found: Vec::new(),
                    evidence: format!("{}: no answer that can be judged", list.asked()),
                    answered: false,
                    gap: Some(trouble),
                };
            }
        },
        (LookUp::Window { .. }, None) => {
            let what = format!(", {}", Window::OPEN);
            (Window::OPEN, what, MAX_PAGES_WITHOUT_WINDOW)
        }
        _ => (Window::OPEN, String::new(), MAX_PAGES),
    };
    let mut reading = Reading::default();
    let gap = reading
        .pages(list, query, &window, max_pages, deadline)
        .await
        .err();
    let gap = gap.or_else(|| match look_up {
        LookUp::Window { .. } => window.from.is_none().then(|| {
            let unknown = "it is not known when the first attempt began, and so how far back to look";
            unknown.to_owned().into()
        }),
        // A provider that does not know the filter gives just any payments.
        _ => (reading.others > 0).then(|| {
            format!(
                "{} payments of other orders came back, so that the order id did not narrow the list",
                reading.others
            )
            .into()
        }),
    });
    let found: Vec<Value> = reading.found.into_iter().map(|(_, payment)| payment).collect();
    let evidence = format!(
        "{}{what}: {} of {} objects on {} pages",
        list.asked(),
        found.len(),
        reading.objects,
        reading.pages
    );
    Listed {
        found,
        evidence,
        answered: reading.pages > 0,
        gap,
    }
}

async fn time(
    list: &impl List,
    now: Option<DateTime<Utc>>,
    deadline: Instant,
) -> Result<DateTime<Utc>, Trouble> {
    let now = match now {
        Some(now) => Some(now),
        None => list.now(deadline).await?,
    };
    let problem =
        "the provider's answer does not say when it was given (Date), so that no window can be made";
    now.ok_or_else(|| problem.to_owned().into())
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    /// Our payments with the provider's id of each.
    found: Vec<(String, Value)>,
    objects: usize,
    /// Payments of orders that not even a reader who ignores case and blanks takes for ours.
    others: usize,
    pages: usize,
}

impl Reading {
    /// `Err`: the list was not read to its end.
    async fn pages(
        &mut self,
        list: &impl List,
        query: &StatusQuery,
        window: &Window,
        max_pages: usize,
        deadline: Instant,
    ) -> Result<(), Trouble> {
        let mut cursor: Option<String> = None;
        for _ in 0..max_pages {
            let page = list.page(window, cursor.as_deref(), deadline).await?;
            self.pages += 1;
            self.objects += page.payments.len();
            for payment in page.payments {
                self.take(list, query, payment)?;
            }
            match page.next {
                Next::End => return Ok(()),
                Next::At(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                Next::At(_) | Next::Lost => {
                    return Err("the list goes on but does not say where".to_owned().into());
                }
            }
        }
        Err(format!("the list has more than {max_pages} pages").into())
    }

    fn take(&mut self, list: &impl List, query: &StatusQuery, payment: Value) -> Result<(), Trouble> {
        let order = list.order(&payment);
        if order.as_deref() == Some(query.order_id.as_str()) {
            let Some(id) = list.id(&payment) else {
                return Err("a payment in the list has no id".to_owned().into());
            };
            // A list that moves while it is read shows one twice.
            match self.found.iter_mut().find(|(other, _)| *other == id) {
                Some((_, earlier)) => *earlier = payment,
                None => self.found.push((id, payment)),
            }
        } else if order.is_none_or(|order| loose(&order) != loose(&query.order_id)) {
            self.others += 1;
        }
        Ok(())
    }
}

fn loose(order: &str) -> String {
    order.trim().to_lowercase()
}

fn rfc3339(seconds: i64) -> String {
    let time = DateTime::from_timestamp(seconds, 0).unwrap_or(if seconds < 0 {
        DateTime::<Utc>::MIN_UTC
    } else {
        DateTime::<Utc>::MAX_UTC
    });
    time.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_has_slack_on_both_sides() {
        let now = DateTime::from_timestamp(1_000_000, 0).unwrap();
        let hours = Duration::from_hours;
        let query = |first, last| {
            StatusQuery::new("order-1")
                .first_attempted_at_age(first)
                .attempted_at_age(last)
        };
        for (first, last, from, to) in [
            (hours(10), hours(10), 963_700, Some(967_660)),
            (hours(10), hours(1), 963_700, None),
            (Duration::ZERO, Duration::ZERO, 999_700, None),
        ] {
            let window = Window::of(&query(first, last), Duration::from_mins(1), first, now);
            assert_eq!((window.from, window.to), (Some(from), to));
        }
        let remembered = query(hours(10), hours(10)).until_now();
        let window = Window::of(&remembered, Duration::from_mins(1), hours(10), now);
        assert_eq!((window.from, window.to), (Some(960_400), None));
        let open = Window::of(
            &StatusQuery::new("order-1"),
            Duration::from_mins(1),
            hours(1),
            now,
        );
        assert_eq!(open.to, None, "until now where the last attempt is not known");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
    }
}
