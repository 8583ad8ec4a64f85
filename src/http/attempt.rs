//! What the handler gets to know of its lease.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::protocol::Lease;
use crate::store::Executor;

type Renewal = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Renews the lease, over whatever connections the layer has.
#[derive(Clone)]
struct Renew(Arc<dyn Fn() -> Renewal + Send + Sync>);

impl std::fmt::Debug for Renew {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Renew")
    }
}

/// The attempt that a handler is: it stands in the request's extensions.
///
/// Saying that the work begins ([`Attempt::begin`], or asking for what the provider is sent) decides what a
/// failure means: before that the key is given back, after it the outcome is unknown.
#[derive(Debug, Clone)]
pub struct Attempt {
    id: KeyId,
    number: i32,
    order_id: String,
    provider_key: String,
    begun: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    keep: Arc<watch::Sender<bool>>,
    renew: Renew,
}

impl Attempt {
    /// The attempt of a lease, and what tells when it shall be kept alive.
    pub(super) fn of<E>(lease: &Lease, executor: E) -> (Self, watch::Receiver<bool>)
    where
        E: Executor + Clone + 'static,
    {
        let (keep, wanted) = watch::channel(false);
        let renewer = lease.renewer();
        let renew = move || {
            let (renewer, executor) = (renewer.clone(), executor.clone());
            let renewal: Renewal = Box::pin(async move { renewer.renew(&executor).await });
            renewal
        };
        let attempt = Self {
            id: lease.id().clone(),
            number: lease.attempt(),
            order_id: lease.order_id().to_owned(),
            provider_key: lease.provider_key(),
            begun: Arc::default(),
            over: Arc::default(),
            keep: Arc::new(keep),
            renew: Renew(Arc::new(renew)),
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

    /// Under which of our ids the provider knows the operation: what it has to be sent. Asking for it begins the
    /// work.
    pub fn order_id(&self) -> &str {
        self.begin();
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

    /// Takes the whole length of the lease again, and so finds out whether it is still ours. Ask right before what
    /// cannot be undone, when what came before may have taken long: above all before a charge at a provider without
    /// idempotency keys, after it was asked. It begins the work.
    ///
    /// After [`crate::error::Error::LeaseLost`] somebody else has the key: do not charge. Any other error leaves that
    /// open, and the same holds. Whatever is answered then, with 5xx, is not stored.
    ///
    /// Returns [`Error::Invalid`] when the handler has answered: a task that it left behind may not charge any more.
    pub async fn renew(&self) -> Result<()> {
        self.begin();
        if self.over.load(Ordering::Acquire) {
            let reason = "is over: the handler has answered, and the key may be another request's".to_owned();
            return Err(Error::Invalid {
                field: "attempt",
                reason,
            });
        }
        (self.renew.0)().await
    }

    /// The handler has answered.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }
}
