//! What the handler gets to know of its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::key::KeyId;
use crate::protocol::Lease;

/// The attempt that a handler is: it stands in the request's extensions.
///
/// Saying that the work begins ([`Attempt::begin`], or asking for the [`Attempt::provider_key`]) decides what a
/// failure means: before that the key is given back, after it the outcome is unknown.
#[derive(Debug, Clone)]
pub struct Attempt {
    id: KeyId,
    number: i32,
    order_id: String,
    provider_key: String,
    begun: Arc<AtomicBool>,
    keep: Arc<watch::Sender<bool>>,
}

impl Attempt {
    /// The attempt of a lease, and what tells when it shall be kept alive.
    pub(super) fn of(lease: &Lease) -> (Self, watch::Receiver<bool>) {
        let (keep, wanted) = watch::channel(false);
        let attempt = Self {
            id: lease.id().clone(),
            number: lease.attempt(),
            order_id: lease.order_id().to_owned(),
            provider_key: lease.provider_key(),
            begun: Arc::default(),
            keep: Arc::new(keep),
        };
        (attempt, wanted)
    }

    /// The key.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// How many times the key was acquired, this time included. From 2 on, an earlier attempt may have reached
    /// the provider: one without idempotency keys must be asked before it is told again.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Under which of our ids the provider knows the operation.
    pub fn order_id(&self) -> &str {
        &self.order_id
    }

    /// The work begins: from here on a failure means that the outcome is unknown.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Release);
    }

    /// The idempotency key to send to the provider, the same for every attempt. Asking for it begins the work.
    pub fn provider_key(&self) -> &str {
        self.begin();
        &self.provider_key
    }

    /// Keeps the lease from running out until the handler ends, for work that takes long.
    pub fn keep_alive(&self) {
        self.keep.send_replace(true);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }
}
