//! The life of one connection: its driver task, its end, and the way to cancel what runs on it.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;

use tokio_postgres::error::{DbError, Severity};

use super::cancel::Canceller;
use crate::error::{Error, Result, chain, describe};

/// How long the farewell to the server may take.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Leaving,
    Gone,
}

/// What the connection and its driver task share.
#[derive(Debug)]
pub(super) struct Line {
    phase: watch::Sender<Phase>,
    unusable: AtomicBool,
    why: OnceLock<String>,
    canceller: Canceller,
}

impl Line {
    /// Starts the task that moves the connection's bytes.
    pub(super) fn start<D>(driver: D, canceller: Canceller) -> (Leash, tokio::task::JoinHandle<()>)
    where
        D: Future<Output = Result<(), tokio_postgres::Error>> + Send + 'static,
    {
        let (phase, changes) = watch::channel(Phase::Open);
        let line = Arc::new(Self {
            phase,
            unusable: AtomicBool::new(false),
            why: OnceLock::new(),
            canceller,
        });
        let task = tokio::spawn(drive(Box::pin(driver), Arc::clone(&line), changes));
        (Leash(line), task)
    }

    pub(super) fn canceller(&self) -> &Canceller {
        &self.canceller
    }

    pub(super) fn is_unusable(&self) -> bool {
        self.unusable.load(Ordering::Acquire)
    }

    /// Why nothing more can be done here.
    pub(super) fn closed(&self) -> Error {
        let why = self.why.get().map_or("it was closed", String::as_str);
        Error::Unreachable {
            what: format!("the connection is of no more use: {why}"),
        }
    }

    /// Adds what the server said last to an error that only knows that the connection is gone; and after a
    /// fatal error the connection is as good as gone, although its end may not have been read yet.
    pub(super) fn judge(&self, error: Error) -> Error {
        match (error, self.why.get()) {
            (Error::Unreachable { what }, Some(why)) if !what.contains(why.as_str()) => Error::Unreachable {
                what: format!("{what}: {why}"),
            },
            (Error::Database(source), _) => {
                let severity = source.as_db_error().and_then(DbError::parsed_severity);
                if matches!(severity, Some(Severity::Fatal | Severity::Panic)) {
                    self.condemn(&describe(&source));
                }
                Error::Database(source)
            }
            (error, _) => error,
        }
    }

    /// From now on unusable; the socket stays open until [`Line::cut`], since a pooler forgets whom to cancel
    /// when its client is gone.
    pub(super) fn condemn(&self, why: &str) {
        self.unusable.store(true, Ordering::Release);
        // The first reason stays: later ones follow from it.
        self.why.get_or_init(|| why.to_owned());
    }

    /// Asks the server to stop what runs, within 2 s, and closes the socket.
    pub(super) async fn give_up(&self) {
        if let Err(error) = self.canceller.cancel().await {
            tracing::debug!(%error, "the running statement could not be cancelled");
        }
        self.cut();
    }

    /// Lets the driver say farewell; it ends after 2 s at the latest.
    fn leave(&self) {
        self.phase.send_if_modified(|phase| {
            let open = *phase == Phase::Open;
            if open {
                *phase = Phase::Leaving;
            }
            open
        });
    }

    /// Closes the socket at once.
    pub(super) fn cut(&self) {
        self.phase.send_replace(Phase::Gone);
    }
}

/// Ends the line's task in time when its owner is gone, wherever that happens: dropped in the middle of
/// connecting as well.
#[derive(Debug)]
pub(super) struct Leash(Arc<Line>);

impl std::ops::Deref for Leash {
    type Target = Arc<Line>;

    fn deref(&self) -> &Arc<Line> {
        &self.0
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.leave();
    }
}

async fn drive<D>(mut driver: D, line: Arc<Line>, mut changes: watch::Receiver<Phase>)
where
    D: Future<Output = Result<(), tokio_postgres::Error>> + Unpin,
{
    let patience = async {
        // The sender lives in `line`, which this task holds, so waiting cannot fail.
        let _ = changes.wait_for(|phase| *phase != Phase::Open).await;
        let gone = changes.wait_for(|phase| *phase == Phase::Gone);
        let _ = tokio::time::timeout(CLOSE_LIMIT, gone).await;
    };
    let ended = tokio::select! {
        ended = &mut driver => Some(ended),
        () = patience => None,
    };
    let why = match &ended {
        Some(Ok(())) | None => "it was closed".to_owned(),
        Some(Err(error)) if error.as_db_error().is_some() => describe(error),
        Some(Err(error)) => chain(error),
    };
    // Before the driver is dropped, so that whoever waits for an answer finds the reason.
    line.condemn(&why);
    drop(driver);
}

/// Watches over one exchange with the server. Dropped before its end, it gives the connection up: nobody
/// knows what the server is doing on it.
pub(super) struct Exchange<'a> {
    line: &'a Arc<Line>,
    done: bool,
}

impl<'a> Exchange<'a> {
    pub(super) fn new(line: &'a Arc<Line>) -> Self {
        Self { line, done: false }
    }

    /// Runs the exchange to its end or to the deadline. At the deadline the connection is given up.
    pub(super) async fn run<T>(
        mut self,
        after: Duration,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        if self.line.is_unusable() {
            self.done = true;
            return Err(self.line.closed());
        }
        let result = tokio::time::timeout(after, work).await;
        if let Ok(result) = result {
            self.done = true;
            return result.map_err(|error| self.line.judge(error));
        }
        self.line.condemn("the server did not answer in time");
        self.line.give_up().await;
        self.done = true;
        Err(Error::Deadline { after })
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.line.condemn("a statement was abandoned in mid-way");
        let line = Arc::clone(self.line);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { line.give_up().await })),
            // Without a runtime nothing can be sent, and the driver does not run either.
            Err(_) => line.cut(),
        }
    }
}
