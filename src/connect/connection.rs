//! One connection with deadlines: what the operations and the janitor work on.

use std::future::Future;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use tokio_postgres::Client;

use super::attempt::{self, Opened};
use super::cancel::Canceller;
use super::facts::{Facts, Route};
use super::line::{Exchange, Leash};
use super::settings::{Settings, Timeouts};
use super::transaction::Tx;
use crate::error::{Error, Result};
use crate::pulse::Pulse;
use crate::store::session::{BEGIN, Limits, set_limits};
use crate::store::{Answer, Cached, Executor, Params, Statement};

/// How much longer than the server we wait, so that the server's own message wins while it is alive.
const GRACE: Duration = Duration::from_secs(2);
/// The server's limit for a transaction that sits idle is the statement's, but no less than this.
const LEAST_IDLE: Duration = Duration::from_secs(10);

/// A connection with deadlines, clean transactions, and prepared statements where that is safe.
///
/// It never hangs on a silent peer: at the deadline the server is asked to cancel and the connection becomes
/// unusable, and so it does when the future of a statement is dropped in mid-way. On a direct connection the
/// server has the time limits too; behind a pooler it has them within transactions only, since a `SET` would
/// leak to other clients, and a lone statement ends by our deadline and a cancel request.
#[derive(Debug)]
pub struct Connection {
    client: Cached<Client>,
    line: Leash,
    task: Option<tokio::task::JoinHandle<()>>,
    timeouts: Timeouts,
    facts: Facts,
    pulse: Option<Pulse>,
}

impl Connection {
    /// Connects to the first host that will do.
    ///
    /// Returns [`Error::Settings`] for settings that cannot be used, and [`Error::Unreachable`] with the
    /// cause for each host that was tried. There is no retry; see [`Connection::open_with_retry`].
    pub async fn open(settings: &Settings) -> Result<Self> {
        let Opened {
            client,
            line,
            task,
            facts,
        } = attempt::open(settings).await?;
        let connection = Self {
            client: Cached::new(client),
            line,
            task: Some(task),
            timeouts: settings.timeouts,
            facts,
            pulse: None,
        };
        connection.set_session_limits().await?;
        Ok(connection)
    }

    /// Connects, trying again with growing pauses (0.2 s to 10 s, with jitter) while the database is
    /// unreachable.
    ///
    /// `give_up`: a sleep or a signal to stop. When it comes first, the last cause is returned, or
    /// [`Error::Interrupted`] if there is none yet.
    pub async fn open_with_retry(settings: &Settings, give_up: impl Future<Output = ()>) -> Result<Self> {
        let mut last = None;
        let pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(200))
            .with_max_delay(Duration::from_secs(10))
            .with_jitter()
            .without_max_times();
        let work = (|| Self::open(settings))
            .retry(pauses)
            .sleep(tokio::time::sleep)
            .when(|error| matches!(error, Error::Unreachable { .. } | Error::Deadline { .. }))
            .notify(|error, pause| {
                tracing::warn!(%error, pause_ms = pause.as_millis(), "no connection; trying again");
                last = Some(error.to_string());
            });
        let outcome = tokio::select! {
            biased;
            result = work => Some(result),
            () = give_up => None,
        };
        match (outcome, last) {
            (Some(result), _) => result,
            (None, None) => Err(Error::Interrupted),
            (None, Some(what)) => Err(Error::Unreachable {
                what: format!("gave up; the last time: {what}"),
            }),
        }
    }

    /// The time limits in force.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Changes the time limits, for instance for a step that takes long. `connect` has no meaning any more.
    pub async fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<()> {
        timeouts.check()?;
        self.timeouts = timeouts;
        self.set_session_limits().await
    }

    /// Gives a sign of life at the end of each exchange with the server, well or not.
    pub fn set_pulse(&mut self, pulse: Pulse) {
        self.pulse = Some(pulse);
    }

    /// What was found out about the server and the way to it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether the connection is of no more use.
    pub fn is_closed(&self) -> bool {
        self.line.is_unusable() || self.client.get().is_closed()
    }

    /// Stops the running statement from elsewhere, for instance on a signal.
    pub fn canceller(&self) -> Canceller {
        self.line.canceller().clone()
    }

    /// Starts a transaction; dropped without [`Tx::commit`], it rolls back.
    ///
    /// The server ends the session if the transaction sits idle for longer than one statement may take (and
    /// longer than 10 s), so that a client that stands still holds no locks.
    pub async fn begin(&mut self) -> Result<Tx<'_>> {
        let client = self.client.get();
        let local = self.facts.route != Route::Direct;
        let limits = self.limits();
        let begun = self
            .exchange(async {
                client.batch_execute(BEGIN).await?;
                if local {
                    set_limits(client, limits, true).await?;
                }
                Ok(())
            })
            .await;
        if let Err(error) = begun {
            // Perhaps a transaction is open and nobody holds it: the next one would find itself inside.
            self.abandon("a transaction could not be begun");
            return Err(error);
        }
        Ok(Tx::new(self))
    }

    /// Says farewell to the server, within 2 s.
    pub async fn close(mut self) {
        let task = self.task.take();
        // Dropping the client is what makes the driver say farewell.
        drop(self);
        if let Some(task) = task {
            // The task ends by itself; that it panicked would concern nobody any more.
            let _ = task.await;
        }
    }

    pub(super) fn client(&self) -> &Client {
        self.client.get()
    }

    /// Gives the connection up at once.
    pub(super) fn abandon(&self, why: &str) {
        self.line.condemn(why);
        self.line.cut();
    }

    /// One exchange with the server, bounded.
    pub(super) async fn exchange<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let after = self.timeouts.statement.saturating_add(GRACE);
        let result = Exchange::new(&self.line).run(after, work).await;
        if let Some(pulse) = &self.pulse {
            pulse.beat();
        }
        result
    }

    /// Nothing but a direct connection has a session of its own.
    async fn set_session_limits(&self) -> Result<()> {
        if self.facts.route != Route::Direct {
            return Ok(());
        }
        self.exchange(set_limits(self.client.get(), self.limits(), false))
            .await
    }

    fn limits(&self) -> Limits {
        Limits {
            statement: self.timeouts.statement,
            lock: self.timeouts.lock,
            idle: self.timeouts.statement.max(LEAST_IDLE),
        }
    }
}

impl Executor for Connection {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        self.exchange(async {
            if self.facts.prepared {
                self.client.run(statement, params).await
            } else {
                self.client.get().run(statement, params).await
            }
        })
        .await
    }
}
