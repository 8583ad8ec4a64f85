//! The layer and its settings.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;
use tower_layer::Layer;

use super::at_work::AtWork;
use super::connections::{Connections, PerStatement};
use super::rules::{Requirement, Rules};
use super::service::IdempotencyService;
use crate::error::Result;
use crate::fingerprint::Fields;
use crate::key::KeyId;
use crate::protocol::{Idempotency, OnExpired, SingleFlight};

/// Largest request body unless the layer says otherwise: 1 MiB.
pub const DEFAULT_MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// How long a statement may take, the wait for its connection included, unless the layer says otherwise: 10 seconds.
pub const DEFAULT_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Protects the routes under it. One layer for each group of routes with the same rules.
pub struct IdempotencyLayer<P> {
    pub(super) keys: Idempotency,
    pub(super) executor: PerStatement<P>,
    pub(super) rules: Arc<Rules>,
    pub(super) at_work: AtWork,
}

impl<P> Clone for IdempotencyLayer<P> {
    fn clone(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            executor: self.executor.clone(),
            rules: Arc::clone(&self.rules),
            at_work: self.at_work.clone(),
        }
    }
}

impl<P> std::fmt::Debug for IdempotencyLayer<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyLayer").finish_non_exhaustive()
    }
}

impl<P: Connections> IdempotencyLayer<P> {
    /// A key is required for POST and PATCH; other methods pass untouched.
    ///
    /// `client`: who sends the request, by whatever authenticated it (a layer outside this one). A key means
    /// something only within one client; where it cannot be told the request gets 401.
    pub fn new(
        keys: Idempotency,
        connections: P,
        client: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let rules = Rules {
            client: Arc::new(client),
            requirement: Requirement::default(),
            methods: vec![Method::POST, Method::PATCH],
            max_request_bytes: DEFAULT_MAX_REQUEST_BYTES,
            fields: None,
            lease: None,
            provider: None,
            order: None,
            on_expired: OnExpired::default(),
            retention: None,
            single_flight: None,
        };
        Self {
            keys,
            executor: PerStatement::new(connections, DEFAULT_STATEMENT_TIMEOUT),
            rules: Arc::new(rules),
            at_work: AtWork::default(),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    /// Whether a request without a key is refused.
    #[must_use]
    pub fn requirement(self, requirement: Requirement) -> Self {
        self.with(|rules| rules.requirement = requirement)
    }

    /// Which methods are protected.
    #[must_use]
    pub fn methods(self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.with(|rules| rules.methods = methods.into_iter().collect())
    }

    /// Largest request body in bytes; more gets 413.
    #[must_use]
    pub fn max_request_bytes(self, limit: usize) -> Self {
        self.with(|rules| rules.max_request_bytes = limit)
    }

    /// Only these members of a JSON body define the operation; without this the whole body does.
    #[must_use]
    pub fn fields(self, fields: Fields) -> Self {
        self.with(|rules| rules.fields = Some(fields))
    }

    /// How long a handler may take before a retry may take over; it must outlast every timeout towards the
    /// provider. Checked at each request.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        self.with(|rules| rules.lease = Some(lease))
    }

    /// Which provider the handler calls, for whoever has to ask it later.
    ///
    /// Returns [`crate::error::Error::Invalid`] for a name that cannot be one.
    pub fn provider(self, name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        crate::key::check_name("provider", &name)?;
        Ok(self.with(|rules| rules.provider = Some(name)))
    }

    /// Under which of our ids the provider will know the operation. It must be what the handler sends, and
    /// unique at that provider ([`crate::protocol::Request::order_id`]).
    #[must_use]
    pub fn order_id(self, order: impl Fn(&Parts, &KeyId) -> String + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.order = Some(Arc::new(order)))
    }

    /// What to do with a key whose lease is over: run it again, or 409 until somebody has asked the provider.
    #[must_use]
    pub fn on_expired(self, on_expired: OnExpired) -> Self {
        self.with(|rules| rules.on_expired = on_expired)
    }

    /// How long each statement may take, the wait for its connection included.
    #[must_use]
    pub fn statement_timeout(self, timeout: Duration) -> Self {
        Self {
            executor: self.executor.timeout(timeout),
            ..self
        }
    }

    /// Waits until no request is at work under this layer and its clones.
    ///
    /// For an orderly end, after the server has stopped taking requests: handlers whose clients have gone are in no
    /// server's count, and a runtime that ends drops them, perhaps between the charge and its record.
    pub async fn idle(&self) {
        self.at_work.none().await;
    }

    /// Asks the database once for any number of equal requests that this process has to answer in the same moment
    /// ([`SingleFlight`]); for clients that send storms of repeats.
    #[must_use]
    pub fn single_flight(self) -> Self {
        let flight = SingleFlight::new(self.keys.clone());
        self.with(|rules| rules.single_flight = Some(flight))
    }

    /// How long the purge keeps answers, to tell clients ([`super::RETENTION_HEADER`], [`super::EXPIRES_HEADER`]).
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        self.with(|rules| rules.retention = Some(retention))
    }
}

impl<S, P> Layer<S> for IdempotencyLayer<P> {
    type Service = IdempotencyService<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        IdempotencyService::new(inner, self.clone())
    }
}
