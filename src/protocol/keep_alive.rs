//! Renewing a lease while long work is under way.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::held::Held;
use super::metrics;
use crate::error::Error;
use crate::store::Executor;

/// Renews a lease until it is dropped.
///
/// A renewal that is under way when the guard is dropped is left to end by itself, so that the connection it
/// uses stays usable.
#[derive(Debug)]
#[must_use = "dropping the guard stops the renewals"]
pub struct KeepAlive {
    lost: watch::Receiver<bool>,
    /// Dropped with the guard, which the task sees.
    _stop: oneshot::Sender<()>,
}

impl KeepAlive {
    /// Whether the lease is lost, or was not renewed for its whole length (no connection, for instance), so
    /// that a retry may take it over: stop the work, if it can be stopped.
    pub fn is_lost(&self) -> bool {
        *self.lost.borrow()
    }

    /// Waits until [`KeepAlive::is_lost`]; never ends while renewals succeed. For `tokio::select!` beside the
    /// work.
    pub async fn lost(&mut self) {
        // The sender lives as long as the task; a task that ended without a word cannot renew any more.
        let _closed = self.lost.wait_for(|lost| *lost).await;
    }
}

pub(super) fn start<E: Executor + 'static>(held: Held, executor: E, length: Duration) -> KeepAlive {
    let (sender, lost) = watch::channel(false);
    let (stop, mut stopped) = oneshot::channel::<()>();
    tokio::spawn(async move {
        if renew_until_lost(&held, &executor, length, &mut stopped).await {
            let _nobody_listens = sender.send(true);
        }
    });
    KeepAlive { lost, _stop: stop }
}

/// `true` when the lease is lost, `false` when the guard was dropped.
async fn renew_until_lost(
    held: &Held,
    executor: &impl Executor,
    length: Duration,
    stopped: &mut oneshot::Receiver<()>,
) -> bool {
    let mut failed = false;
    loop {
        // At a third of the lease; soon again after a failure.
        let left = Instant::from_std(held.sure()).saturating_duration_since(Instant::now());
        let pause = if failed {
            left.min(length / 12)
        } else {
            left.saturating_sub(length * 2 / 3)
        };
        let sleep = pin!(tokio::time::sleep(pause));
        if let Either::Left(_) = select(&mut *stopped, sleep).await {
            return false;
        }
        // One that hangs is given up when the lease has run out, but not before it had a chance.
        let limit = left.saturating_sub(pause).max(length / 3);
        let renewal = tokio::time::timeout(limit, held.renew(executor, length)).await;
        if stopped.try_recv() == Err(oneshot::error::TryRecvError::Closed) {
            return false;
        }
        let Ok(result) = renewal else {
            tracing::warn!(key = %held.id, "no answer to the renewal of the lease until it ran out");
            return true;
        };
        metrics::settled("renew", &result);
        failed = match result {
            Ok(()) => false,
            Err(Error::LeaseLost { .. }) => return true,
            Err(error) => {
                tracing::warn!(%error, key = %held.id, "couldn't renew the lease");
                true
            }
        };
        if failed && Instant::from_std(held.sure()) <= Instant::now() {
            return true;
        }
    }
}
