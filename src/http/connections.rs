//! Where the layer gets connections from: the application's own pool.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::store::{Answer, Executor, Params, Statement};

/// A source of connections, such as a pool. Each statement takes one and gives it back; none is held while the
/// handler works.
///
/// A statement that gets no answer in time ([`super::IdempotencyLayer::statement_timeout`]) is given up, and its
/// connection goes back to the pool as it is: let the pool check connections before it hands them out, with a limit.
///
/// Implemented for closures: `move || { let pool = pool.clone(); async move { ... } }`.
pub trait Connections: Send + Sync + 'static {
    /// What a statement runs on.
    type Connection: Executor;

    /// A connection. An error means that nothing can be claimed now: the client gets 503.
    fn connection(&self) -> impl Future<Output = Result<Self::Connection>> + Send;
}

impl<F, Fut, C> Connections for F
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<C>> + Send,
    C: Executor,
{
    type Connection = C;

    fn connection(&self) -> impl Future<Output = Result<C>> + Send {
        self()
    }
}

/// Takes a connection for each statement, and waits for neither longer than it was told.
#[derive(Debug)]
pub(super) struct PerStatement<P> {
    connections: Arc<P>,
    timeout: Duration,
    /// Whether a statement was ever sent: before that a failure leaves nothing open.
    sent: Option<Arc<AtomicBool>>,
}

impl<P> PerStatement<P> {
    pub(super) fn new(connections: P, timeout: Duration) -> Self {
        Self {
            connections: Arc::new(connections),
            timeout,
            sent: None,
        }
    }

    pub(super) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// One that remembers whether it has sent anything.
    pub(super) fn noting(&self, sent: &Arc<AtomicBool>) -> Self {
        Self {
            sent: Some(Arc::clone(sent)),
            ..self.clone()
        }
    }
}

impl<P> Clone for PerStatement<P> {
    fn clone(&self) -> Self {
        Self {
            connections: Arc::clone(&self.connections),
            timeout: self.timeout,
            sent: self.sent.clone(),
        }
    }
}

impl<P: Connections> Executor for PerStatement<P> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        let work = async {
            let asked = Instant::now();
            let connection = self.connections.connection().await;
            metrics::histogram!("idemctl_connection_wait_seconds").record(asked.elapsed().as_secs_f64());
            let connection = connection?;
            if let Some(sent) = &self.sent {
                sent.store(true, Ordering::Release);
            }
            connection.run(statement, params).await
        };
        let deadline = Error::Deadline { after: self.timeout };
        tokio::time::timeout(self.timeout, work)
            .await
            .unwrap_or(Err(deadline))
    }
}
