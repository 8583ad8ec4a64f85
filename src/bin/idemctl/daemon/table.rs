//! The gauges of the table: asked for on a connection of their own, and only when somebody asks us.
//!
//! A task of its own asks, and all who come meanwhile wait for its answer: one who hangs up ends nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idemctl::connect::{Connection, Settings};
use idemctl::error::{Error, Result};
use idemctl::janitor::{Config, Job};
use idemctl::ops::actor::Actor;
use idemctl::ops::expired::{Policy, Request as Expired};
use idemctl::ops::gauges::{self, Gauges, Question};
use idemctl::store::Store;
use idemctl::time::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How old an answer may be that is given again.
const FRESH: Duration = Duration::from_secs(15);

/// After a failure the database is asked again sooner, but not by everybody at once.
const FRESH_FAILURE: Duration = Duration::from_secs(2);

/// How long all questions together may take: less than the 10 s that Prometheus waits by default.
const LIMIT: Duration = Duration::from_secs(8);

/// Steps of it: connecting to one address, and one statement. One that is too slow leaves time for others.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const STATEMENT_LIMIT: Duration = Duration::from_millis(1_500);

/// How long the end of a question that is under way is waited for.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// The table, as those who scrape us see it.
pub(crate) struct Table {
    config: watch::Receiver<Arc<Config>>,
    state: Mutex<State>,
    /// Locked by the task that asks.
    link: Arc<tokio::sync::Mutex<Link>>,
    closing: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    ask: Option<Ask>,
    task: Option<JoinHandle<()>>,
    /// What the purge that is under way was begun with.
    purging: Option<Arc<Config>>,
    /// What the last one cleared, on the database of that configuration.
    cleared: Option<(Arc<Config>, Timestamp)>,
}

/// A question that is under way or answered.
#[derive(Clone)]
struct Ask {
    /// What it was asked with.
    config: Arc<Config>,
    answer: watch::Receiver<Option<Answer>>,
}

/// `gauges` is `None` where the database did not answer.
#[derive(Clone)]
struct Answer {
    gauges: Option<Arc<Gauges>>,
    good_until: Instant,
}

impl Ask {
    /// Whether it will be answered, or was not long ago.
    fn is_good(&self, config: &Arc<Config>) -> bool {
        Arc::ptr_eq(&self.config, config)
            && match &*self.answer.borrow() {
                // Only a task that is gone is not there to answer.
                None => self.answer.has_changed().is_ok(),
                Some(answer) => Instant::now() < answer.good_until,
            }
    }
}

impl Table {
    pub(crate) fn new(config: watch::Receiver<Arc<Config>>) -> Self {
        Self {
            config,
            state: Mutex::default(),
            link: Arc::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// How it stands, no older than 15 s; `None` where the database does not answer in time. Values from before
    /// that are not given as if they were current.
    pub(crate) async fn look(&self) -> Option<Arc<Gauges>> {
        let mut answer = self.ask()?;
        let answer = answer.wait_for(Option::is_some).await.ok()?;
        answer.as_ref()?.gauges.clone()
    }

    /// The question that is under way, or an answer that is fresh, or a new question.
    fn ask(&self) -> Option<watch::Receiver<Option<Answer>>> {
        let config = Arc::clone(&self.config.borrow());
        let mut state = self.lock();
        if *self.closing.borrow() {
            return None;
        }
        if let Some(ask) = state.ask.as_ref().filter(|ask| ask.is_good(&config)) {
            return Some(ask.answer.clone());
        }
        let cleared = state.cleared.as_ref();
        let cleared = cleared
            .filter(|(by, _)| Arc::ptr_eq(by, &config))
            .map(|(_, at)| *at);
        let (sender, answer) = watch::channel(None);
        let (link, mut closing) = (Arc::clone(&self.link), self.closing.subscribe());
        let asked_with = Arc::clone(&config);
        state.task = Some(tokio::spawn(async move {
            let mut link = link.lock().await;
            let found = link.ask(&asked_with, cleared, &mut closing).await;
            sender.send_replace(Some(found));
        }));
        state.ask = Some(Ask {
            config,
            answer: answer.clone(),
        });
        Some(answer)
    }

    /// A purge begins.
    pub(crate) fn purge_begins(&self) {
        self.lock().purging = Some(Arc::clone(&self.config.borrow()));
    }

    /// It has ended, and what it has cleared need not be looked at again: unless it was on another database.
    pub(crate) fn purge_ended(&self, cleared_before: Option<Timestamp>) {
        let mut state = self.lock();
        state.cleared = state.purging.take().zip(cleared_before);
    }

    /// Ends what is asked, on the server too, and takes leave of it.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        let task = self.lock().task.take();
        let all = async {
            if let Some(task) = task {
                // That it panicked would be in the log.
                let _ = task.await;
            }
            if let Some((conn, _)) = self.link.lock().await.open.take() {
                conn.close().await;
            }
        };
        if tokio::time::timeout(CLOSE_LIMIT, all).await.is_err() {
            tracing::debug!("the connection that asks for the gauges did not end in time");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in it is half-written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection, and what was said of it.
#[derive(Default)]
struct Link {
    /// What it was opened with.
    config: Option<Arc<Config>>,
    open: Option<(Connection, Store)>,
    /// Whether somebody was told that the database does not answer, and which questions are not answered.
    away: bool,
    failed: BTreeMap<Question, String>,
}

impl Link {
    async fn ask(
        &mut self,
        config: &Arc<Config>,
        cleared: Option<Timestamp>,
        closing: &mut watch::Receiver<bool>,
    ) -> Answer {
        let started = Instant::now();
        let found = self.gauges(config, cleared, started + LIMIT, closing).await;
        let (gauges, good_until) = match found {
            Ok(gauges) => {
                self.say(&gauges);
                (Some(Arc::new(gauges)), started + FRESH)
            }
            Err(error) => {
                self.open = None;
                if !*closing.borrow() && !std::mem::replace(&mut self.away, true) {
                    tracing::warn!(%error, "the database does not answer those who ask for the gauges");
                }
                (None, Instant::now() + FRESH_FAILURE)
            }
        };
        Answer { gauges, good_until }
    }

    /// What the database says; an error means that it cannot be talked to.
    async fn gauges(
        &mut self,
        config: &Arc<Config>,
        cleared: Option<Timestamp>,
        deadline: Instant,
        closing: &mut watch::Receiver<bool>,
    ) -> Result<Gauges> {
        if self
            .config
            .as_ref()
            .is_none_or(|known| !Arc::ptr_eq(known, config))
        {
            *self = Self {
                config: Some(Arc::clone(config)),
                ..Self::default()
            };
        }
        let ready = async {
            match tokio::time::timeout_at(deadline, self.ready(config)).await {
                Ok(ready) => ready,
                Err(_) => Err(Error::Deadline { after: LIMIT }),
            }
        };
        tokio::select! {
            biased;
            () = closed(closing) => return Err(Error::Interrupted),
            ready = ready => match ready {
                Ok(()) => {}
                Err(error) if is_down(&error) => return Err(error),
                // It answers, and the tables are not what they should be, or may not be read.
                Err(error) => return Ok(Gauges::unknown(&error)),
            },
        }
        let Some((conn, store)) = &mut self.open else {
            return Err(Error::Interrupted);
        };
        let canceller = conn.canceller();
        let request = request(config, cleared);
        tokio::select! {
            biased;
            () = closed(closing) => {}
            gauges = gauges::read(conn, store, &request, deadline) => return Ok(gauges),
        }
        // Nobody waits for the statement that was dropped, and the process may be gone before it is cancelled.
        if let Err(error) = canceller.cancel().await {
            tracing::debug!(%error, "the question for a gauge could not be cancelled");
        }
        Err(Error::Interrupted)
    }

    /// A connection that answers.
    async fn ready(&mut self, config: &Config) -> Result<()> {
        if let Some((conn, store)) = self.open.as_ref().filter(|(conn, _)| !conn.is_closed())
            && gauges::ping(conn, store).await.is_ok()
        {
            return Ok(());
        }
        self.open = None;
        let conn = Connection::open(&settings(&config.connection)).await?;
        let store = Store::open(&conn, config.schema.as_deref()).await?;
        self.open = Some((conn, store));
        Ok(())
    }

    /// Says once what is missing, and that it is back.
    fn say(&mut self, gauges: &Gauges) {
        if std::mem::take(&mut self.away) {
            tracing::info!("the database answers those who ask for the gauges again");
        }
        let failed: BTreeMap<Question, String> = gauges
            .failed
            .iter()
            .map(|failed| (failed.question, failed.why.clone()))
            .collect();
        for (question, why) in &failed {
            if !self.failed.contains_key(question) {
                tracing::warn!(%question, why, "gauges of the table are missing");
            }
        }
        for question in self.failed.keys().filter(|known| !failed.contains_key(known)) {
            tracing::info!(%question, "gauges of the table are back");
        }
        self.failed = failed;
    }
}

/// Returns when it is time to end.
async fn closed(closing: &mut watch::Receiver<bool>) {
    if closing.wait_for(|closing| *closing).await.is_err() {
        // Nobody is left who could say so.
        std::future::pending::<()>().await;
    }
}

/// Whether an error says that the database cannot be talked to, and not that something in it is amiss.
fn is_down(error: &Error) -> bool {
    error.needs_reconnect() || matches!(error, Error::Settings { .. } | Error::Local { .. })
}

fn settings(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.timeouts.connect = settings.timeouts.connect.min(CONNECT_LIMIT);
    settings.timeouts.statement = settings.timeouts.statement.min(STATEMENT_LIMIT);
    settings
}

/// What "stuck" and "due" mean to the configured jobs.
fn request(config: &Config, cleared_before: Option<Timestamp>) -> gauges::Request {
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
        cleared_before,
    }
}
