//! The list of all objects that were created in a window of time, looked through by us.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::StripeProvider;
use super::object::{id, metadata};
use super::page::page;
use crate::fingerprint::json::Value;
use crate::provider::fetch::Trouble;
use crate::provider::{LookUp, StatusQuery};

/// How many objects a page has at most (`docs.stripe.com/api/pagination`).
const PER_PAGE: &str = "100";

/// How many pages are read for one question.
const MAX_PAGES: usize = 100;

/// How many where it is not known how far back to look.
const MAX_PAGES_WITHOUT_WINDOW: usize = 5;

/// How much the window begins before the first attempt: more than two servers' clocks differ.
const BEFORE: Duration = Duration::from_mins(5);

/// How much it ends after the last attempt, beyond the lag.
const AFTER: Duration = Duration::from_hours(1);

/// What the list came to.
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

/// Bounds of the time of creation, in seconds since 1970, both included.
struct Window {
    from: Option<i64>,
    to: Option<i64>,
}

impl Window {
    fn max_pages(&self) -> usize {
        if self.from.is_some() {
            MAX_PAGES
        } else {
            MAX_PAGES_WITHOUT_WINDOW
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.from, self.to) {
            (None, _) => f.write_str("the newest"),
            (Some(from), None) => write!(f, "created[gte]={from}"),
            (Some(from), Some(to)) => write!(f, "created[gte]={from}, created[lte]={to}"),
        }
    }
}

impl StripeProvider {
    /// Reads the list of the time of the attempts; where that is not known, the newest objects, which prove
    /// nothing unless the order is among them. `now`: by Stripe's clock, if a former answer said so; ours decides
    /// nothing.
    pub(super) async fn list(
        &self,
        query: &StatusQuery,
        now: Option<DateTime<Utc>>,
        deadline: Instant,
    ) -> Listed {
        let window = match self.window(query, now, deadline).await {
            Ok(window) => window,
            Err(trouble) => {
                return Listed {
                    found: Vec::new(),
                    evidence: format!("{}: no answer that can be judged", self.asked("")),
                    answered: false,
                    gap: Some(trouble),
                };
            }
        };
        let mut found = Vec::new();
        let (mut pages, mut objects) = (0, 0);
        let read = self.pages(&query.order_id, &window, deadline, |ours, count| {
            pages += 1;
            objects += count;
            found.extend(ours);
        });
        let gap = read.await.err();
        let evidence = format!(
            "{}, {window}: {} of {objects} objects on {pages} pages",
            self.asked(""),
            found.len()
        );
        let gap = gap.or_else(|| {
            let unknown = "it is not known when the first attempt began, and so how far back to look";
            window.from.is_none().then(|| unknown.to_owned().into())
        });
        Listed {
            found,
            evidence,
            answered: pages > 0,
            gap,
        }
    }

    async fn window(
        &self,
        query: &StatusQuery,
        now: Option<DateTime<Utc>>,
        deadline: Instant,
    ) -> Result<Window, Trouble> {
        let Some(first) = query.first_attempted_at_age else {
            return Ok(Window { from: None, to: None });
        };
        let now = match now {
            Some(now) => now,
            None => self.now(deadline).await?,
        };
        let before = |age: Duration| now.timestamp().saturating_sub(seconds(age));
        Ok(Window {
            from: Some(before(first.saturating_add(BEFORE))),
            to: self.end(query).map(before),
        })
    }

    /// How long ago the window ends; `None`: now.
    fn end(&self, query: &StatusQuery) -> Option<Duration> {
        let LookUp::Window { lag } = self.facts.look_up else {
            return None;
        };
        query.attempted_at_age?.checked_sub(lag + AFTER)
    }

    /// The time by Stripe's clock.
    async fn now(&self, deadline: Instant) -> Result<DateTime<Utc>, Trouble> {
        let answer = self.get(self.object.path(), &[("limit", "1")], deadline).await?;
        let problem =
            "the provider's answer does not say when it was given (Date), so that no window can be made";
        answer.date.ok_or_else(|| problem.to_owned().into())
    }

    /// Hands over our payments of each page, and how many objects it had. `Err`: the list was not read to its end.
    async fn pages(
        &self,
        order_id: &str,
        window: &Window,
        deadline: Instant,
        mut take: impl FnMut(Vec<Value>, usize),
    ) -> Result<(), Trouble> {
        let bound = |bound: Option<i64>| bound.map(|bound| bound.to_string());
        let (from, to) = (bound(window.from), bound(window.to));
        let mut cursor: Option<String> = None;
        for _ in 0..window.max_pages() {
            let mut parameters = vec![("limit", PER_PAGE)];
            parameters.extend(from.as_ref().map(|from| ("created[gte]", from.as_str())));
            parameters.extend(to.as_ref().map(|to| ("created[lte]", to.as_str())));
            parameters.extend(cursor.as_ref().map(|cursor| ("starting_after", cursor.as_str())));
            let answer = self.get(self.object.path(), &parameters, deadline).await?;
            let code = answer.status.as_u16();
            if code != 200 {
                return Err(format!("the provider answered the list with HTTP {code}").into());
            }
            let page = page(&answer)?;
            let last = page.data.last().and_then(id).map(str::to_owned);
            let count = page.data.len();
            let is_ours = |payment: &Value| metadata(payment, &self.field) == Some(order_id);
            take(page.data.into_iter().filter(is_ours).collect(), count);
            if !page.has_more {
                return Ok(());
            }
            if last.is_none() || last == cursor {
                return Err("the list goes on but does not say where".to_owned().into());
            }
            cursor = last;
        }
        Err(format!(
            "the list has more than {} pages of {PER_PAGE}",
            window.max_pages()
        )
        .into())
    }
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
