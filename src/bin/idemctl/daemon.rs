//! The janitor as a daemon: what the service manager, signals and logs see of it.

mod http;
mod log;
mod metrics;
mod notify;
mod plan;
mod table;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idemctl::error::Error;
use idemctl::janitor::clock::Clock;
use idemctl::janitor::progress::Pulses;
use idemctl::janitor::service::{self, Event};
use idemctl::janitor::status::Status;
use idemctl::janitor::{Config, Done, Job, start};
use idemctl::stop::Stop;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use notify::Notifier;
use table::Table;

/// How long the database may be away at the start where a service manager waits for us: then the daemon ends, and the
/// manager tries again. A boot, or the installation of a package, must not wait for ever.
const START_LIMIT: Duration = Duration::from_mins(5);

/// How much more time than we take the manager is asked for.
const MANAGER_MARGIN: Duration = Duration::from_secs(10);

/// How often to look for a loop that hangs where there is no watchdog to feed.
const WATCH: Duration = Duration::from_secs(30);

/// What the daemon needs besides its jobs.
pub(crate) struct Options {
    /// How long what is under way may go on after SIGTERM; then it is given up and rolled back.
    pub(crate) grace: Duration,
    /// Where to serve `/metrics`, `/healthz` and `/readyz`; `None`: nowhere.
    pub(crate) listen: Option<SocketAddr>,
    /// Whether a service manager listens.
    pub(crate) notify: bool,
}

/// Runs the jobs until asked to stop. `read_again` reads the configuration for a reload.
pub(crate) async fn run(
    config: Config,
    options: &Options,
    read_again: impl Fn() -> Result<Config>,
) -> Result<Exit> {
    let mut lifecycle = Lifecycle::install(true)?;
    let (sender, receiver) = watch::channel(Arc::new(config));
    let daemon = Arc::new(Daemon::new(Notifier::new(options.notify), receiver));
    let server = match options.listen {
        Some(address) => Some(http::serve(http::bind(address).await?, Arc::clone(&daemon))),
        None => None,
    };
    let ended = daemon.serve(&sender, options, &mut lifecycle, read_again).await;
    drop(server);
    daemon.table.close().await;
    daemon.notifier.close();
    ended?;
    match lifecycle.daemon_exit() {
        Exit::Done => {
            tracing::info!("stopped");
            Ok(Exit::Done)
        }
        exit => Err(CliError::new(exit, "the janitor was interrupted")),
    }
}

struct Daemon {
    status: Mutex<Status>,
    pulses: Pulses,
    clock: Clock,
    config: watch::Receiver<Arc<Config>>,
    table: Table,
    notifier: Notifier,
    ready: AtomicBool,
    /// Why the last reload was refused.
    refused: Mutex<Option<String>>,
    /// Whether somebody was told that a loop hangs.
    stuck: AtomicBool,
}

impl Daemon {
    fn new(notifier: Notifier, config: watch::Receiver<Arc<Config>>) -> Self {
        let clock = Clock::system();
        Self {
            status: Mutex::new(Status::new(clock.now())),
            pulses: Pulses::default(),
            clock,
            table: Table::new(config.clone()),
            config,
            notifier,
            ready: AtomicBool::new(false),
            refused: Mutex::default(),
            stuck: AtomicBool::new(false),
        }
    }

    async fn serve(
        &self,
        sender: &watch::Sender<Arc<Config>>,
        options: &Options,
        lifecycle: &mut Lifecycle,
        read_again: impl Fn() -> Result<Config>,
    ) -> Result<()> {
        let receiver = sender.subscribe();
        let stop = lifecycle.stop.clone();
        tracing::info!("the janitor starts");
        let observe = |event: Event<'_>| self.observe(&event);
        let work = async {
            let limit = options.notify.then_some(START_LIMIT);
            if self.wait_until_able(receiver.clone(), &stop, limit).await? {
                self.able();
                service::run_watched(receiver, &self.clock, &stop, &observe, &self.pulses).await?;
            }
            Ok::<(), CliError>(())
        };
        tokio::pin!(work);
        // A year stands for never.
        let year = Duration::from_hours(24 * 365);
        let mut watch = tokio::time::interval(self.notifier.watchdog_interval().unwrap_or(WATCH));
        let grace_over = tokio::time::sleep(year);
        tokio::pin!(grace_over);
        let mut stopping = false;
        loop {
            tokio::select! {
                result = &mut work => {
                    // Where nothing is under way, the work may hear of the stop before we do.
                    if !stopping && stop.is_soft() {
                        self.notifier.stopping("stopping", MANAGER_MARGIN);
                    }
                    return result;
                }
                () = stop.soft(), if !stopping => {
                    stopping = true;
                    let within = options.grace + MANAGER_MARGIN;
                    self.notifier.stopping("stopping: what is under way is finished first", within);
                    // The configuration allows no more than minutes.
                    grace_over.as_mut().reset(Instant::now() + options.grace);
                }
                () = &mut grace_over, if stopping && !stop.is_hard() => {
                    let grace = crate::settings::show_duration(options.grace);
                    tracing::warn!(grace, "what is under way takes too long; it is given up and rolled back");
                    lifecycle.give_up();
                }
                Some(()) = lifecycle.reload.recv() => self.reload(sender, read_again()),
                Some(()) = lifecycle.report.recv() => tracing::info!("status: {}", self.line()),
                _ = watch.tick() => self.watch(),
            }
        }
    }

    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Started { job: Job::Purge } => self.table.purge_begins(),
            Event::Finished {
                done: Done::Purge(result),
            } => {
                let report = result.as_ref().unwrap_or_else(|failure| &failure.report);
                self.table.purge_ended(report.cleared_before);
            }
            _ => {}
        }
        let (before, after) = {
            let mut status = self.lock_status();
            let trouble = |status: &Status| {
                let trouble = status.of(event.job()).trouble.as_ref();
                trouble.map(|trouble| trouble.what.clone())
            };
            let before = trouble(&status);
            status.note(event, self.clock.now());
            (before, trouble(&status))
        };
        log::event(event, before.as_deref(), before.is_some() && after.is_none());
        // A look that went well is no news, unless none did before.
        if !matches!(event, Event::Looked { .. }) || before != after {
            self.notifier.status(&self.line());
        }
    }

    fn lock_status(&self) -> std::sync::MutexGuard<'_, Status> {
        // Nothing in it is half-written.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands, in one line.
    fn line(&self) -> String {
        let status = self.lock_status().to_string();
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match &*refused {
            Some(why) => format!("the new configuration is refused, the old one stays ({why}); {status}"),
            None => status,
        }
    }

    /// Waits for the database, `limit` at most; `false` when a stop came first.
    async fn wait_until_able(
        &self,
        mut config: watch::Receiver<Arc<Config>>,
        stop: &Stop,
        limit: Option<Duration>,
    ) -> Result<bool> {
        let last = Mutex::new(None);
        let end = limit.map(|limit| Instant::now() + limit);
        let trouble = |cause: &Error, wait| {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            self.not_able(cause, wait, left);
            *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause.to_string());
        };
        let able = start::when_able(&mut config, stop, &trouble);
        let Some(end) = end else {
            return Ok(able.await?);
        };
        if let Ok(able) = tokio::time::timeout_at(end, able).await {
            return Ok(able?);
        }
        let last = last.into_inner().unwrap_or_else(PoisonError::into_inner);
        let seconds = limit.unwrap_or_default().as_secs();
        let cause = last.unwrap_or_else(|| "no answer to the first try".to_owned());
        Err(CliError::new(
            Exit::Database,
            format!("not able to work within {seconds} s of the start: {cause}"),
        )
        .hint("the service manager starts it again if its unit says so (Restart=on-failure)"))
    }

    /// The database cannot be worked with yet; `left`: how long we go on trying, if not for ever.
    fn not_able(&self, cause: &Error, wait: Duration, left: Option<Duration>) {
        tracing::warn!(again_in_ms = wait.as_millis(), "not ready, trying again: {cause}");
        if let Some(left) = left {
            // However often it is told, the start ends at the same moment.
            self.notifier.extend_start(left + MANAGER_MARGIN);
        }
        self.notifier
            .status(&format!("waiting for the database, trying again: {cause}"));
    }

    fn able(&self) {
        self.ready.store(true, Ordering::SeqCst);
        tracing::info!("the janitor runs");
        self.notifier.ready(&self.line());
    }

    fn reload(&self, sender: &watch::Sender<Arc<Config>>, config: Result<Config>) {
        let ready = self.ready.load(Ordering::SeqCst);
        if ready {
            self.notifier.reloading();
        }
        let why = match config {
            Ok(config) => {
                sender.send_replace(Arc::new(config));
                tracing::info!("the new configuration is in force");
                None
            }
            Err(error) => {
                let error = error.message().to_owned();
                tracing::error!(error, "the new configuration is refused; the old one stays");
                Some(error)
            }
        };
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = why;
        if ready {
            self.notifier.ready(&self.line());
        }
    }

    /// Feeds the watchdog, only while every loop makes progress.
    fn watch(&self) {
        match self.pulses.overdue() {
            None => {
                self.stuck.store(false, Ordering::SeqCst);
                self.notifier.alive();
            }
            Some((job, late)) => {
                if !self.stuck.swap(true, Ordering::SeqCst) {
                    tracing::error!(%job, late_ms = late.as_millis(), "the loop makes no progress; the watchdog is not fed any more");
                }
            }
        }
    }
}

impl http::Pages for Daemon {
    async fn metrics(&self) -> Option<(String, &'static str)> {
        let table = self.table.look().await;
        let status = self.lock_status().clone();
        let config = Arc::clone(&self.config.borrow());
        let snapshot = metrics::Snapshot {
            status: &status,
            config: &config,
            pulses: &self.pulses,
            table: table.as_deref(),
            now: self.clock.now(),
        };
        Some((metrics::text(&snapshot).ok()?, metrics::CONTENT_TYPE))
    }

    fn health(&self) -> Result<(), String> {
        match self.pulses.overdue() {
            None => Ok(()),
            Some((job, late)) => Err(format!(
                "the loop of {job} makes no progress; a sign of life is {} s overdue",
                late.as_secs()
            )),
        }
    }

    async fn readiness(&self) -> Result<(), String> {
        if !self.ready.load(Ordering::SeqCst) {
            return Err("the database was not reached yet".to_owned());
        }
        if self.table.look().await.is_none() {
            return Err("the database does not answer".to_owned());
        }
        let cannot = Job::ALL.into_iter().find_map(|job| {
            let status = self.lock_status();
            let trouble = status.of(job).trouble.as_ref().filter(|trouble| !trouble.begun)?;
            Some(format!("{job} cannot begin: {}", trouble.kind))
        });
        cannot.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
