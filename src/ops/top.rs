//! How the table stands right now, for somebody who watches it: every statement reads a bounded number of rows.
//!
//! Each part stands by itself. What was asked and not answered (a privilege, a table that is not there) is missing, and
//! [`Look::missing`] says why; a lost connection is an error.

use std::time::Duration;

use crate::error::Result;
use crate::ops::gauges::{CAP, Count, Expired};
use crate::ops::history::{self, Filter};
use crate::ops::list::Order;
use crate::ops::stuck;
use crate::record::Record;
pub use crate::store::top::Counters;
use crate::store::{Event, Executor, JobRow, Store};

/// What to look at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Expired keys and events of this client alone; counts and rates are of the whole table.
    pub client_id: Option<String>,
    /// Most expired keys.
    pub expired: u32,
    /// Most events, 1 to [`history::MAX_PAGE`].
    pub events: u32,
    /// Names of the janitor's jobs.
    pub jobs: Vec<&'static str>,
}

/// The newest [`CAP`] keys by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Newest {
    /// How many there are, at most [`CAP`].
    pub keys: u64,
    /// Of these, done.
    pub done: u64,
    /// Of these, failed.
    pub failed: u64,
}

/// How the table stands. `None`: not answered.
#[derive(Debug)]
pub struct Look {
    /// The server's own counters, and its time.
    pub counters: Counters,
    /// Keys whose lease is alive.
    pub in_progress: Option<Count>,
    /// Keys whose lease is over.
    pub expired: Option<Expired>,
    /// The newest keys.
    pub newest: Option<Newest>,
    /// All keys, as the planner believes; `None` also where the table was never analyzed.
    pub estimate: Option<f64>,
    /// Expired keys, oldest lease end first.
    pub oldest: Vec<Record>,
    /// The jobs that a janitor has seen.
    pub jobs: Option<Vec<(&'static str, JobRow)>>,
    /// The newest events first.
    pub events: Option<Vec<Event>>,
    /// What was not answered, and why.
    pub missing: Vec<String>,
}

/// Looks once.
///
/// Returns an error where the connection is lost or the counters cannot be read.
pub async fn look(executor: &impl Executor, store: &Store, request: &Request) -> Result<Look> {
    let most = i64::try_from(CAP).unwrap_or(i64::MAX);
    let counters = store.top_counters(executor).await?;
    let mut missing = Vec::new();
    let mut part = Part(&mut missing);
    let expired = store.gauges_expired(executor, Duration::ZERO, most + 1).await;
    let expired = part.of("expired keys", expired)?.map(|found| Expired {
        all: Count::new(found.rows),
        stuck: Count::new(found.stuck),
        oldest_seconds: found.oldest,
    });
    let live = store.gauges_live(executor, most + 1).await;
    let in_progress = part.of("keys in progress", live)?.map(Count::new);
    let client = request.client_id.as_deref();
    let page = stuck::page(executor, store, Duration::ZERO, client, None, request.expired).await;
    let page = part.of("the list of expired keys", page)?;
    let newest = store.gauges_recent(executor, most).await;
    let newest = part.of("the newest keys", newest)?.map(|found| Newest {
        keys: found.all,
        done: found.done,
        failed: found.failed,
    });
    let estimate = store.gauges_estimate(executor).await;
    let estimate = part.of("the estimate of all keys", estimate)?.flatten();
    let jobs = part.of("the janitor's jobs", jobs(executor, store, request).await)?;
    let filter = Filter {
        client_id: request.client_id.clone(),
        ..Filter::default()
    };
    let events = history::page(executor, store, &filter, Order::Newest, None, request.events).await;
    let events = part.of("events", events)?.map(|page| page.events);
    let (oldest, unreadable) = page.map_or((Vec::new(), Vec::new()), |page| (page.rows, page.unreadable));
    missing.extend(unreadable);
    Ok(Look {
        counters,
        in_progress,
        expired,
        newest,
        estimate,
        oldest,
        jobs,
        events,
        missing,
    })
}

async fn jobs(
    executor: &impl Executor,
    store: &Store,
    request: &Request,
) -> Result<Vec<(&'static str, JobRow)>> {
    let mut jobs = Vec::new();
    for job in &request.jobs {
        let row = store.job_look(executor, job).await?;
        jobs.extend(row.map(|row| (*job, row)));
    }
    Ok(jobs)
}

/// Collects why parts are missing.
struct Part<'a>(&'a mut Vec<String>);

impl Part<'_> {
    fn of<T>(&mut self, what: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.needs_reconnect() && !error.is_remote() => Err(error),
            Err(error) => {
                self.0.push(format!("{what}: {error}"));
                Ok(None)
            }
        }
    }
}
