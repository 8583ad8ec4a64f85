//! Lists of payments that are looked through by us, page by page, for those of one order.
//!
//! A list that can only be narrowed by time is read from well before the first attempt until now, since a holder that
//! stood still may charge hours after its lease; only one that was read to its end proves that there is no payment.
//! The bound is made of the provider's own clock, which it tells with each answer (`Date`): ours decides nothing.

use std::future::Future;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use tokio::time::Instant;

use super::clock;
use super::fetch::Trouble;
use super::{LookUp, StatusQuery};
use crate::fingerprint::json::Value;

/// How many pages are read for one question.
const MAX_PAGES: usize = 100;

/// How many where it is not known how far back to look.
const MAX_PAGES_WITHOUT_WINDOW: usize = 5;

/// How much the window begins before the first attempt: more than two servers' clocks differ, or than somebody who
/// remembers the time is wrong.
pub(super) const BEFORE: Duration = Duration::from_hours(1);

/// The time of creation from which on a list is read, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) from: Option<i64>,
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

    /// Where in a payment that is.
    fn order_at(&self) -> String;

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
    /// No bound: a list that the provider narrows by the order id itself, or the newest payments.
    pub(super) const OPEN: Self = Self { from: None };

    /// Since `before` the first attempt, which was so long ago.
    ///
    /// The provider's clock counts, but an answer may come with a wrong `Date` (a cache, a gateway), and a window
    /// that begins too late would miss the payment: the earlier one of `theirs` and `ours` is taken.
    fn of(first: Duration, before: Duration, theirs: DateTime<Utc>, ours: DateTime<Utc>) -> Self {
        let now = theirs.min(ours);
        let age = seconds(first.saturating_add(before));
        Self {
            from: Some(now.timestamp().saturating_sub(age)),
        }
    }

    /// The bound in RFC 3339.
    pub(super) fn text(&self) -> Option<String> {
        self.from.map(rfc3339)
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.text() {
            None => f.write_str("the newest"),
            Some(from) => write!(f, "created since {from}"),
        }
    }
}

/// Reads a list. `before`: how long before the first attempt a payment may have been created. `now`: the provider's
/// time, if a former answer told it.
///
/// Where it is not known how far back to look, the newest payments are read, which prove nothing unless one of the
/// order is among them.
pub(super) async fn read(
    list: &impl List,
    query: &StatusQuery,
    look_up: LookUp,
    before: Duration,
    now: Option<DateTime<Utc>>,
    deadline: Instant,
) -> Listed {
    let (window, what, max_pages) = match (look_up, query.first_attempted_at_age) {
        (LookUp::Window { .. }, Some(first)) => match time(list, now, deadline).await {
            Ok(now) => {
                let window = Window::of(first, before, now, clock::ours());
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
    let gap = gap.or_else(|| reading.gap(list, look_up, &window));
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
    /// Payments with the id of some order.
    named: usize,
    /// Payments of orders that differ from ours by case or outer blanks only.
    similar: usize,
    /// Payments of orders that not even a reader who ignores case and blanks takes for ours.
    others: usize,
    pages: usize,
}

impl Reading {
    /// Why a list that was read to its end may have missed some all the same.
    fn gap(&self, list: &impl List, look_up: LookUp, window: &Window) -> Option<Trouble> {
        let reason = match look_up {
            LookUp::Window { .. } if window.from.is_none() => {
                "it is not known when the first attempt began, and so how far back to look".to_owned()
            }
            // Whoever looks at a wrong place, or for what the service does not send, would always miss.
            LookUp::Window { .. } if self.objects > 0 && self.named == 0 => format!(
                "none of the {} payments of the window carries an order id at {:?} (match)",
                self.objects,
                list.order_at()
            ),
            // Some on the way may rewrite an order id like that, so that it may be ours.
            _ if self.similar > 0 => format!(
                "{} payments came back whose order id differs from ours by case or outer blanks only",
                self.similar
            ),
            LookUp::Window { .. } => return None,
            // A provider that does not know the filter gives just any payments.
            _ if self.others > 0 => format!(
                "{} payments of other orders came back, so that the order id did not narrow the list",
                self.others
            ),
            _ => return None,
        };
        Some(reason.into())
    }

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
        self.named += usize::from(order.as_ref().is_some_and(|order| !order.is_empty()));
        if order.as_deref() == Some(query.order_id.as_str()) {
            let Some(id) = list.id(&payment) else {
                return Err("a payment in the list has no id".to_owned().into());
            };
            // A list that moves while it is read shows one twice.
            match self.found.iter_mut().find(|(other, _)| *other == id) {
                Some((_, earlier)) => *earlier = payment,
                None => self.found.push((id, payment)),
            }
        } else if order.is_some_and(|order| loose(&order) == loose(&query.order_id)) {
            self.similar += 1;
        } else {
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
    fn the_window_begins_before_the_first_attempt() {
        let now = DateTime::from_timestamp(1_000_000, 0).unwrap();
        let hours = Duration::from_hours;
        for (first, before, from) in [
            (hours(10), hours(1), 960_400),
            (Duration::ZERO, hours(24), 913_600),
            (Duration::ZERO, Duration::ZERO, 1_000_000),
        ] {
            assert_eq!(Window::of(first, before, now, now).from, Some(from));
            let later = now + chrono::TimeDelta::days(400);
            assert_eq!(Window::of(first, before, later, now).from, Some(from));
            assert_eq!(Window::of(first, before, now, later).from, Some(from));
        }
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
    }
}
