//! Renewing a lease while long work is under way.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::lease::Held;
use super::metrics;
use crate::error::Error;
use crate::store::Executor;

/// Renews a lease until it is dropped.
#[derive(Debug)]
#[must_use = "dropping the guard stops the renewals"]
pub struct KeepAlive {
    task: JoinHandle<()>,
    lost: watch::Receiver<bool>,
}

impl KeepAlive {
    /// Whether the lease is known to be lost: stop the work, if it can be stopped.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until the lease is lost; never ends while renewals succeed. For `tokio::select!` beside the work.
    pub async fn lost(&mut self) {
        // The sender lives as long as the task; a task that ended without a word cannot renew any more.
        let _closed = self.lost.wait_for(|lost| *lost).await;
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn start<E: Executor + 'static>(held: Held, executor: E, length: Duration) -> KeepAlive {
    let (sender, lost) = watch::channel(false);
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(length / 3).await;
            let result = held.renew(&executor, length).await;
            metrics::settled("renew", &result);
            match result {
                Ok(()) => {}
                Err(Error::LeaseLost { .. }) => break,
                // The lease may still be ours: try again at the next third. Whether it is lost, the table says.
                Err(error) => tracing::warn!(%error, key = %held.id, "couldn't renew the lease"),
            }
        }
        let _nobody_listens = sender.send(true);
    });
    KeepAlive { task, lost }
}
