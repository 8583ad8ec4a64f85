//! Holding a lease: complete, renew, abandon, outcome unknown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::held::Held;
use super::{KeepAlive, Request, check_lease, keep_alive, metrics};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::provider_key;
use crate::response::Response;
use crate::store::{Executor, Seen, Store, TakenOver};
use crate::time::Timestamp;

/// The right to do the work of one key, until it is settled or runs out.
///
/// Settle it with [`Lease::complete`], [`Lease::abandon`] or [`Lease::outcome_unknown`]. Dropping it unsettled
/// changes nothing in the table (the lease runs out) and is logged as a warning. Every action is fenced by the
/// lease's token: once somebody else has taken the key over, they return [`Error::LeaseLost`] and change
/// nothing. A program that knows only the old columns takes a row over without changing the token; it moves
/// `locked_until`, and that is a fence as well: once the lease is over, its end must stand in the row as we
/// left it. (So a row whose `locked_until` somebody moved by hand is lost to its holder at the lease's old end.)
/// Only a holder that does not know the end, because the answer to a renewal got lost, relies on the token alone.
#[derive(Debug)]
#[must_use = "settle the lease, or the key stays in progress until it runs out"]
pub struct Lease {
    held: Held,
    attempt: i32,
    operation: Option<String>,
    provider: Option<String>,
    order_id: Option<String>,
    length: Duration,
    max_body_bytes: usize,
    settled: bool,
}

/// What [`Lease::abandon`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Abandoned {
    /// The row is gone; the next caller starts afresh, with any fingerprint.
    Deleted,
    /// An earlier attempt may have reached the provider, so the row stays; its lease is over and a retry may
    /// take it over at once.
    Kept,
}

/// What is known of a claim when a lease is made of it.
pub(super) struct Claimed {
    attempt: i32,
    until: Timestamp,
    operation: Option<String>,
    provider: Option<String>,
    order_id: Option<String>,
}

impl Claimed {
    pub(super) fn fresh(request: &Request, until: Timestamp) -> Self {
        Self {
            attempt: 1,
            until,
            operation: request.operation.clone(),
            provider: request.provider.clone(),
            order_id: request.order_id.clone(),
        }
    }

    pub(super) fn seen(seen: &Seen) -> Self {
        Self {
            attempt: seen.attempt,
            until: seen.locked_until,
            operation: seen.operation.clone(),
            provider: seen.provider.clone(),
            order_id: seen.order_id.clone(),
        }
    }

    pub(super) fn taken_over(seen: &Seen, taken: TakenOver) -> Self {
        Self {
            attempt: taken.attempt,
            until: taken.until,
            operation: seen.operation.clone(),
            provider: taken.provider,
            order_id: taken.order_id,
        }
    }
}

impl Lease {
    pub(super) fn new(
        store: Arc<Store>,
        request: &Request,
        claimed: Claimed,
        length: Duration,
        asked: Instant,
        max_body_bytes: usize,
    ) -> Self {
        let Claimed {
            attempt,
            until,
            operation,
            provider,
            order_id,
        } = claimed;
        let token = request.token_for(attempt);
        let held = Held::new(store, request.id.clone(), token, until, asked + length);
        Self {
            held,
            attempt,
            operation,
            provider,
            order_id,
            length,
            max_body_bytes,
            settled: false,
        }
    }

    /// The key.
    pub fn id(&self) -> &KeyId {
        &self.held.id
    }

    /// How many times the key was acquired, this time included.
    pub fn attempt(&self) -> i32 {
        self.attempt
    }

    /// Whether an earlier attempt may have reached the provider.
    pub fn is_takeover(&self) -> bool {
        self.attempt > 1
    }

    /// Which provider the row names.
    pub fn provider(&self) -> Option<&str> {
        self.provider.as_deref()
    }

    /// Under which of our ids the provider knows the operation.
    pub fn order_id(&self) -> &str {
        self.order_id.as_deref().unwrap_or(self.held.id.key())
    }

    /// The idempotency key to send to the provider: a function of client, key and operation, so the same for
    /// every attempt.
    pub fn provider_key(&self) -> String {
        provider_key::derive(&self.held.id, self.operation.as_deref())
    }

    /// The fencing token.
    pub fn token(&self) -> Uuid {
        self.held.token
    }

    /// Lets go of it without a word: it is lost, and that was found out before anybody got it.
    pub(crate) fn forget(mut self) {
        self.settled = true;
    }

    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// Stores the response; from now on every repeat gets exactly these bytes.
    ///
    /// Returns [`Error::LeaseLost`] when somebody else has the key now: answer with what is stored, or 409, but
    /// not with a response that nobody kept. [`Error::ResponseTooLarge`] leaves the lease held: store a smaller
    /// response that refers to the large one. After an error of the connection call it again: a completion
    /// whose answer was lost is recognised.
    pub async fn complete(&mut self, executor: &impl Executor, response: &Response) -> Result<()> {
        let result = self.try_complete(executor, response).await;
        metrics::settled("complete", &result);
        self.note(&result);
        result
    }

    async fn try_complete(&self, executor: &impl Executor, response: &Response) -> Result<()> {
        let size = response.body().len();
        if size > self.max_body_bytes {
            return Err(Error::ResponseTooLarge {
                size,
                limit: self.max_body_bytes,
            });
        }
        self.held.complete(executor, response).await
    }

    /// Lets the lease last at least `extra` from now (1 second to 24 hours). It never gets shorter.
    pub async fn renew(&self, executor: &impl Executor, extra: Duration) -> Result<()> {
        check_lease(extra)?;
        let result = self.held.renew(executor, extra).await;
        metrics::settled("renew", &result);
        result
    }

    /// What renews the lease to its whole length while its holder keeps it; fenced like every action.
    #[cfg(feature = "http")]
    pub(crate) fn renewer(&self) -> Renewer {
        Renewer {
            held: self.held.clone(),
            length: self.length,
        }
    }

    /// Renews the lease at a third of its length until the guard is dropped, and tells when it is lost.
    ///
    /// `executor` is used from a task of its own: an `Arc` of a connection that others use too will do.
    pub fn keep_alive<E: Executor + 'static>(&self, executor: E) -> KeepAlive {
        keep_alive::start(self.held.clone(), executor, self.length)
    }

    /// Gives the key back: the work had not begun.
    ///
    /// After a takeover, and after [`Lease::outcome_unknown`], the row is kept ([`Abandoned::Kept`]): the provider
    /// may have been reached before.
    pub async fn abandon(&mut self, executor: &impl Executor) -> Result<Abandoned> {
        let result = self.try_abandon(executor).await;
        metrics::settled("abandon", &result);
        self.note(&result);
        result
    }

    async fn try_abandon(&self, executor: &impl Executor) -> Result<Abandoned> {
        let reason = "abandoned before the work began; an earlier attempt may have done it";
        let deleted = self.held.abandon(executor, reason).await?;
        Ok(if deleted {
            Abandoned::Deleted
        } else {
            Abandoned::Kept
        })
    }

    /// The provider may have done it (time-out, 5xx, connection lost). Ends the lease now and keeps the row in
    /// progress with the reason: a retry may take it over with the same provider key, or somebody asks the
    /// provider and resolves it.
    pub async fn outcome_unknown(&mut self, executor: &impl Executor, reason: &str) -> Result<()> {
        let result = self.held.end(executor, reason, false).await;
        metrics::settled("outcome_unknown", &result);
        self.note(&result);
        result
    }

    fn note<T>(&mut self, result: &Result<T>) {
        if matches!(result, Ok(_) | Err(Error::LeaseLost { .. })) {
            self.settled = true;
        }
    }
}

/// Renews a lease for somebody who does not hold it.
#[cfg(feature = "http")]
#[derive(Debug, Clone)]
pub(crate) struct Renewer {
    held: Held,
    length: Duration,
}

#[cfg(feature = "http")]
impl Renewer {
    pub(crate) async fn renew(&self, executor: &impl Executor) -> Result<()> {
        let result = self.held.renew(executor, self.length).await;
        metrics::settled("renew", &result);
        result
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.settled {
            tracing::warn!(
                client_id = self.held.id.client_id(),
                key = self.held.id.key(),
                attempt = self.attempt,
                "lease dropped without complete, abandon or outcome_unknown; the key stays in progress until it runs out"
            );
        }
    }
}

/// Serialization failures and deadlocks are tried again: the statement did nothing.
pub(super) async fn retried<T, F, Fut>(mut statement: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T>>,
{
    let mut tries = 0;
    loop {
        match statement().await {
            Err(error) if error.is_retryable() && tries < 10 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=5 * tries))).await;
            }
            other => return other,
        }
    }
}
