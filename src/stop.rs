//! Being asked to stop, in two stages, without knowing by whom.
//!
//! The library installs no signal handlers: whoever owns the process holds the [`Stopper`] and decides what a
//! signal, a closed terminal or a shutdown of the application means.

use tokio::sync::watch;

/// How urgently to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Go,
    Soft,
    Hard,
}

/// A pair: the one that asks and the one that is asked.
pub fn channel() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(Level::Go);
    (
        Stopper { sender },
        Stop {
            receiver: Some(receiver),
        },
    )
}

/// Asks everything that holds the matching [`Stop`] to stop. Dropping it asks for nothing.
#[derive(Debug)]
pub struct Stopper {
    sender: watch::Sender<Level>,
}

impl Stopper {
    /// Finish what is under way (a batch, a row) and then stop.
    pub fn soft(&self) {
        self.raise(Level::Soft);
    }

    /// Stop at once: what is under way is given up and rolled back.
    pub fn hard(&self) {
        self.raise(Level::Hard);
    }

    fn raise(&self, level: Level) {
        self.sender.send_if_modified(|now| {
            let higher = level > *now;
            *now = level.max(*now);
            higher
        });
    }
}

/// What long work looks at between its steps, and waits for beside them.
#[derive(Debug, Clone)]
pub struct Stop {
    /// `None`: nobody will ever ask.
    receiver: Option<watch::Receiver<Level>>,
}

impl Stop {
    /// For work that nobody interrupts.
    pub fn never() -> Self {
        Self { receiver: None }
    }

    /// Whether a stop, soft or hard, was asked for.
    pub fn is_soft(&self) -> bool {
        self.level() >= Level::Soft
    }

    /// Whether a stop at once was asked for.
    pub fn is_hard(&self) -> bool {
        self.level() >= Level::Hard
    }

    /// Ends when a stop, soft or hard, is asked for; cancel safe.
    pub async fn soft(&self) {
        self.reach(Level::Soft).await;
    }

    /// Ends when a stop at once is asked for; cancel safe.
    pub async fn hard(&self) {
        self.reach(Level::Hard).await;
    }

    fn level(&self) -> Level {
        self.receiver
            .as_ref()
            .map_or(Level::Go, |receiver| *receiver.borrow())
    }

    async fn reach(&self, level: Level) {
        if let Some(receiver) = &self.receiver {
            let reached = receiver.clone().wait_for(|now| *now >= level).await.is_ok();
            if reached {
                return;
            }
        }
        // The asking side is gone, or there never was one: nobody will ask any more.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn levels_only_rise() {
        let (stopper, stop) = channel();
        assert!(!stop.is_soft());
        stopper.hard();
        stopper.soft();
        assert!(stop.is_soft() && stop.is_hard());
        stop.soft().await;
        stop.hard().await;
    }

    #[tokio::test]
    async fn a_dropped_asker_asks_for_nothing() {
        let (stopper, stop) = channel();
        drop(stopper);
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), stop.soft()).await;
        assert!(waited.is_err() && !stop.is_soft());
    }
}
