//! Where the layer gets connections from: the application's own pool.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use crate::error::Result;
use crate::store::{Answer, Executor, Params, Statement};

/// A source of connections, such as a pool. Each statement takes one and gives it back; none is held while the
/// handler works.
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

/// Takes a connection for each statement.
#[derive(Debug)]
pub(super) struct PerStatement<P>(pub(super) Arc<P>);

impl<P> Clone for PerStatement<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<P: Connections> Executor for PerStatement<P> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        let asked = Instant::now();
        let connection = self.0.connection().await;
        metrics::histogram!("idemctl_connection_wait_seconds").record(asked.elapsed().as_secs_f64());
        connection?.run(statement, params).await
    }
}
