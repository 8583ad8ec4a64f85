//! A pool that knows how long it was waited for, and how long it had nothing to give.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::meter::Meter;

/// A fixed number of connections.
#[derive(Debug)]
pub(super) struct Pool<T> {
    free: Arc<Semaphore>,
    state: Arc<Mutex<State<T>>>,
}

#[derive(Debug)]
struct State<T> {
    idle: Vec<T>,
    /// Since when all are lent.
    empty_since: Option<Instant>,
    /// How long they were, up to then.
    empty: Duration,
}

/// A connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Lent<T> {
    item: Option<T>,
    state: Arc<Mutex<State<T>>>,
    // Given back after the item is.
    _permit: Option<OwnedSemaphorePermit>,
}

impl<T> Pool<T> {
    pub(super) fn new(items: Vec<T>) -> Self {
        Self {
            free: Arc::new(Semaphore::new(items.len())),
            state: Arc::new(Mutex::new(State {
                idle: items,
                empty_since: None,
                empty: Duration::ZERO,
            })),
        }
    }

    /// Waits for a connection, and writes the wait down.
    pub(super) async fn get(&self, meter: &mut Meter) -> Lent<T> {
        let asked = Instant::now();
        // Never closed; without a permit the pool would still be right, only not fair.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        let mut state = lock(&self.state);
        let item = state.idle.pop();
        if state.idle.is_empty() && state.empty_since.is_none() {
            state.empty_since = Some(Instant::now());
        }
        drop(state);
        meter.waited(asked.elapsed());
        Lent {
            item,
            state: Arc::clone(&self.state),
            _permit: permit,
        }
    }

    /// How long all were lent since the last question.
    pub(super) fn take_empty(&self) -> Duration {
        let mut state = lock(&self.state);
        let now = Instant::now();
        let running = state.empty_since.map_or(Duration::ZERO, |since| now - since);
        if state.empty_since.is_some() {
            state.empty_since = Some(now);
        }
        std::mem::take(&mut state.empty) + running
    }

    /// Everything that is not lent.
    pub(super) fn take_all(&self) -> Vec<T> {
        std::mem::take(&mut lock(&self.state).idle)
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let Some(since) = state.empty_since.take() {
            state.empty += since.elapsed();
        }
        state.idle.extend(self.item.take());
    }
}

// Unwrap safety: a permit is only to be had for an item, and only `drop` takes it out.
#[expect(clippy::expect_used, reason = "there are as many permits as items")]
impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.item.as_ref().expect("a permit stands for an item")
    }
}

#[expect(clippy::expect_used, reason = "there are as many permits as items")]
impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.item.as_mut().expect("a permit stands for an item")
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> std::sync::MutexGuard<'_, State<T>> {
    // Nothing in it is half-written when a panic passes.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_counts_the_time_without_a_free_connection() {
        let pool = Pool::new(vec!['a', 'b']);
        let mut meter = Meter::new();
        let first = pool.get(&mut meter).await;
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(pool.take_empty(), Duration::ZERO);
        let second = pool.get(&mut meter).await;
        std::thread::sleep(Duration::from_millis(2));
        assert!(pool.take_empty() >= Duration::from_millis(2));
        drop((first, second));
        pool.take_empty();
        assert_eq!(pool.take_empty(), Duration::ZERO);
        assert_eq!(pool.take_all().len(), 2);
        assert_eq!(meter.wait.len(), 2);
    }
}
