//! How many requests are at work.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts those at work; clones count together.
#[derive(Debug, Clone)]
pub(super) struct AtWork(Arc<watch::Sender<usize>>);

impl Default for AtWork {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Working(AtWork);

impl AtWork {
    pub(super) fn begin(&self) -> Working {
        self.0.send_modify(|count| *count += 1);
        Working(self.clone())
    }

    pub(super) async fn none(&self) {
        let mut counts = self.0.subscribe();
        // Never closed: we hold the sender.
        let _none = counts.wait_for(|count| *count == 0).await;
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
