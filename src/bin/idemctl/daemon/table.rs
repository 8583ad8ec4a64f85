//! The gauges of the table: asked for on a connection of their own, and only when somebody asks us.

use std::sync::Arc;
use std::time::Duration;

use idemctl::connect::{Connection, Settings};
use idemctl::error::{Error, Result};
use idemctl::janitor::{Config, Job};
use idemctl::ops::actor::Actor;
use idemctl::ops::expired::{Policy, Request as Expired};
use idemctl::ops::gauges::{self, Gauges};
use idemctl::store::Store;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

/// How old an answer may be that is given again.
const FRESH: Duration = Duration::from_secs(15);

/// After a failure the database is asked again sooner, but not by everybody at once.
const FRESH_FAILURE: Duration = Duration::from_secs(2);

/// How long all questions together may take: less than the 10 s that Prometheus waits by default.
const LIMIT: Duration = Duration::from_secs(8);

/// Steps of it: connecting to one address, and one statement.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const STATEMENT_LIMIT: Duration = Duration::from_secs(5);

/// The table, as those who scrape us see it.
pub(crate) struct Table {
    config: watch::Receiver<Arc<Config>>,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    /// What it was asked with.
    config: Option<Arc<Config>>,
    link: Option<(Connection, Store)>,
    at: Option<Instant>,
    /// `None`: the database did not answer.
    gauges: Option<Gauges>,
}

impl Table {
    pub(crate) fn new(config: watch::Receiver<Arc<Config>>) -> Self {
        Self {
            config,
            last: Mutex::default(),
        }
    }

    /// How it stands, no older than 15 s; `None` where the database does not answer in time. Values from before
    /// that are not given as if they were current.
    pub(crate) async fn look(&self) -> Option<Gauges> {
        // Whoever comes meanwhile waits for the same answer.
        let mut last = self.last.lock().await;
        let config = Arc::clone(&self.config.borrow());
        if last
            .config
            .as_ref()
            .is_none_or(|known| !Arc::ptr_eq(known, &config))
        {
            *last = Last {
                config: Some(Arc::clone(&config)),
                ..Last::default()
            };
        }
        let fresh = if last.gauges.is_some() {
            FRESH
        } else {
            FRESH_FAILURE
        };
        if last.at.is_some_and(|at| at.elapsed() < fresh) {
            return last.gauges.clone();
        }
        let answer = tokio::time::timeout(LIMIT, last.ask(&config)).await;
        last.gauges = match answer {
            Ok(Ok(gauges)) => Some(gauges),
            Ok(Err(error)) => {
                tracing::debug!(%error, "no gauges of the table");
                last.link = None;
                None
            }
            Err(_) => {
                tracing::debug!("no gauges of the table within {} s", LIMIT.as_secs());
                last.link = None;
                None
            }
        };
        last.at = Some(Instant::now());
        last.gauges.clone()
    }
}

impl Last {
    async fn ask(&mut self, config: &Config) -> Result<Gauges> {
        if self.link.as_ref().is_none_or(|(conn, _)| conn.is_closed()) {
            let conn = Connection::open(&settings(&config.connection)).await?;
            let store = Store::open(&conn, config.schema.as_deref()).await?;
            self.link = Some((conn, store));
        }
        let Some((conn, store)) = &self.link else {
            return Err(Error::Interrupted);
        };
        gauges::read(conn, store, &request(config)).await
    }
}

fn settings(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.timeouts.connect = settings.timeouts.connect.min(CONNECT_LIMIT);
    settings.timeouts.statement = settings.timeouts.statement.min(STATEMENT_LIMIT);
    settings
}

/// What "stuck" and "due" mean to the configured jobs.
fn request(config: &Config) -> gauges::Request {
    let expired = config.expired.as_ref().map(|plan| plan.request.older_than);
    let retention = config.purge.as_ref().map(|plan| plan.request.retention);
    gauges::Request {
        older_than: expired.unwrap_or_else(|| Expired::new(Policy::Report, Actor::default()).older_than),
        retention: retention.unwrap_or_default(),
        jobs: Job::ALL
            .into_iter()
            .filter(|job| config.schedule(*job).is_some())
            .map(Job::as_str)
            .collect(),
    }
}
