//! Payment providers: what became of an operation that we sent them, asked by our own order id.
//!
//! An adapter answers with a [`ProviderStatus`], never with an error: "cannot tell" is a verdict of its own
//! ([`Verdict::Unknown`]), because whoever reads "not found" repeats the charge. Not charged is said only where
//! the provider itself says so, or where a look-up that covers the attempt has found nothing and the provider
//! has had the time to make the payment visible.

mod clock;
pub mod config;
mod fetch;
mod http;
mod judge;
mod proxy;
pub mod secret;
mod stripe;
mod template;
mod test_mode;
mod tls;
mod url;
mod vendor;
mod window;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;

pub use config::ProviderConfig;
pub use http::HttpProvider;
pub use proxy::Proxies;
pub use stripe::StripeProvider;
pub use vendor::VendorProvider;

use crate::error::Result;
use crate::fingerprint::json::Value;
use crate::provider_key::KeyScheme;
use crate::response::Response;

/// The future of [`Provider::status`].
pub type StatusFuture<'a> = Pin<Box<dyn Future<Output = ProviderStatus> + Send + 'a>>;

/// One configured provider.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// The name it is configured under.
    fn name(&self) -> &str;

    /// What is known of it without asking.
    fn facts(&self) -> &Facts;

    /// Asks what became of an order. Answers within [`Facts::timeout`]; dropping the future gives up.
    fn status<'a>(&'a self, query: &'a StatusQuery) -> StatusFuture<'a>;

    /// The response to store for a payment that was found charged or authorized, so that the client's next
    /// retry is told what it would have been told; `None` where the configuration has no template.
    ///
    /// Returns [`Error::Local`](crate::error::Error::Local) where the payment lacks what the template names.
    fn response(&self, payment: &Payment) -> Result<Option<Response>>;
}

/// What an adapter knows of its provider without asking.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// Which adapter it is: `http`, ...
    pub kind: &'static str,
    /// How its idempotency keys are made from ours.
    pub key_scheme: KeyScheme,
    /// The longest idempotency key it takes, in bytes, if known.
    pub key_limit: Option<usize>,
    /// How long it remembers an idempotency key, if known. A retry after that charges again.
    pub key_retention: Option<Duration>,
    /// Whether it replays errors as well as successes under one key, if known.
    pub replays_errors: Option<bool>,
    /// How it can be asked.
    pub look_up: LookUp,
    /// The longest that one question takes, retries included. A lease must be longer than this.
    pub timeout: Duration,
}

/// How a provider can be asked for one of our orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookUp {
    /// By the order id itself.
    Exact {
        /// How long a new payment may stay invisible.
        lag: Duration,
    },
    /// By listing a window of time and searching it.
    Window {
        /// How long a new payment may stay invisible.
        lag: Duration,
    },
    /// Not at all: every answer is unknown.
    None,
}

/// A question about one order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusQuery {
    /// The id under which we sent the operation.
    pub order_id: String,
    /// How long ago the last attempt began, by the database's clock. `None`: not known, and a miss proves
    /// nothing.
    pub attempted_at_age: Option<Duration>,
    /// How long ago the first attempt began, by the database's clock: where a window has to begin.
    pub first_attempted_at_age: Option<Duration>,
}

impl StatusQuery {
    /// A question about an order of which nothing else is known.
    pub fn new(order_id: impl Into<String>) -> Self {
        Self {
            order_id: order_id.into(),
            attempted_at_age: None,
            first_attempted_at_age: None,
        }
    }

    /// Says how long ago the last attempt began.
    #[must_use]
    pub fn attempted_at_age(self, age: Duration) -> Self {
        Self {
            attempted_at_age: Some(age),
            ..self
        }
    }

    /// Says how long ago the first attempt began.
    #[must_use]
    pub fn first_attempted_at_age(self, age: Duration) -> Self {
        Self {
            first_attempted_at_age: Some(age),
            ..self
        }
    }
}

/// What became of an operation, as far as the provider says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The money moved, whatever happened to it later: a refunded payment was charged.
    Charged,
    /// The money is held and can still be captured or given back.
    Authorized,
    /// The money did not move and will not.
    NotCharged,
    /// It is under way.
    Pending,
    /// Cannot be told; the reason says why.
    Unknown,
}

impl Verdict {
    /// The verdict as it is written: `charged`, `authorized`, `not_charged`, `pending`, `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Charged => "charged",
            Self::Authorized => "authorized",
            Self::NotCharged => "not_charged",
            Self::Pending => "pending",
            Self::Unknown => "unknown",
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A provider's answer.
///
/// Texts that come from the provider may hold anything, terminal commands too: escape them before showing.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProviderStatus {
    /// Whom was asked.
    pub provider: String,
    /// About which order.
    pub order_id: String,
    /// What it comes to.
    pub verdict: Verdict,
    /// The provider's own id of the payment.
    pub reference: Option<String>,
    /// The amount as the provider writes it, digit for digit: a JSON number or string.
    pub amount: Option<Box<RawValue>>,
    /// The currency.
    pub currency: Option<String>,
    /// The provider's own word for the state, even where it is not in the configuration.
    pub raw_status: Option<String>,
    /// What was asked and what came back, in one line; never a secret.
    pub evidence: String,
    /// Why nothing can be told; always there for [`Verdict::Unknown`].
    pub reason: Option<String>,
    /// For [`Verdict::Unknown`]: how long from now it makes no sense to ask again, where that is known.
    pub not_before: Option<Duration>,
    /// Whether the provider answered at all: `false` when it could not be reached, or refused to be asked.
    pub answered: bool,
    /// The payment that was found, for [`Provider::response`].
    pub payment: Option<Payment>,
}

impl ProviderStatus {
    fn new(provider: &str, order_id: &str, verdict: Verdict, evidence: String) -> Self {
        Self {
            provider: provider.to_owned(),
            order_id: order_id.to_owned(),
            verdict,
            reference: None,
            amount: None,
            currency: None,
            raw_status: None,
            evidence,
            reason: None,
            not_before: None,
            answered: true,
            payment: None,
        }
    }

    /// Takes "not charged" back, for something else that the look-up showed; every other verdict stands.
    fn doubted(mut self, reason: String) -> Self {
        if self.verdict == Verdict::NotCharged {
            self.verdict = Verdict::Unknown;
            self.reason = Some(reason);
        }
        self
    }
}

/// A payment as the provider describes it.
#[derive(Clone)]
pub struct Payment(Value);

impl Payment {
    /// The whole description as compact JSON, numbers digit for digit. It may hold personal data.
    pub fn to_json(&self) -> String {
        self.0.compact()
    }
}

impl std::fmt::Debug for Payment {
    /// Without the content, which may hold personal data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Payment(..)")
    }
}

/// Looks an environment variable up.
pub type EnvLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What adapters take from outside instead of reading it from the process.
#[derive(Clone)]
pub struct Surroundings {
    /// Looks an environment variable up, for secrets of the form `{ env = "NAME" }`.
    pub env: EnvLookup,
    /// The proxy for all requests of providers that name none themselves (`http://host:port`). Variables such
    /// as `HTTPS_PROXY` are honoured only if the caller puts them here.
    pub proxy: Proxies,
}

impl std::fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("proxy", &self.proxy)
            .finish_non_exhaustive()
    }
}

/// Makes the adapter of a configured provider. Secrets are not read yet: they are read at each question, so
/// that a rotated one works at once.
///
/// Returns [`Error::Settings`](crate::error::Error::Settings) naming the key (`providers.NAME.url`) that is
/// absent or wrong.
pub fn build(name: &str, config: &ProviderConfig, surroundings: &Surroundings) -> Result<Arc<dyn Provider>> {
    match config.kind {
        config::Kind::Http => Ok(Arc::new(HttpProvider::new(name, config, surroundings)?)),
        config::Kind::Stripe => Ok(Arc::new(StripeProvider::new(name, config, surroundings)?)),
        config::Kind::Braintree
        | config::Kind::Checkout
        | config::Kind::Mollie
        | config::Kind::Square
        | config::Kind::Yookassa => Ok(Arc::new(VendorProvider::new(name, config, surroundings)?)),
    }
}
