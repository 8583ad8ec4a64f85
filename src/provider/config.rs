//! `[providers.NAME]` of the configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::secret::{HeaderValue, Redacted};
use crate::duration::deserialize_option as duration;
use crate::error::{Error, Result};
use crate::fingerprint::json::Pointer;
use crate::provider_key::KeyScheme;

/// How long one question may take where the configuration does not say, retries included.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a miss proves nothing where the configuration does not say.
pub const DEFAULT_LAG: Duration = Duration::from_mins(1);

/// Which adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Any API that answers a GET with JSON.
    Http,
    /// Braintree, over GraphQL.
    Braintree,
    /// Checkout.com.
    Checkout,
    /// Mollie.
    Mollie,
    /// Square.
    Square,
    /// Stripe.
    Stripe,
    /// YooKassa.
    Yookassa,
}

impl Kind {
    /// As it is written: `http`, `yookassa`, ...
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Braintree => "braintree",
            Self::Checkout => "checkout",
            Self::Mollie => "mollie",
            Self::Square => "square",
            Self::Stripe => "stripe",
            Self::Yookassa => "yookassa",
        }
    }
}

/// The section as written; [`build`](super::build) checks it. One flat structure for every kind, so that a
/// reader of TOML can name the line of a key that it does not know.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ProviderConfig {
    /// Which adapter.
    pub kind: Kind,
    /// Where to ask. With `kind = "http"`, `{order_id}` stands in the path or the query, and is percent-encoded;
    /// for a vendor it is the API's base address, by default that of production. Hidden in Debug, because a
    /// query may hold a secret.
    pub url: Option<Redacted>,
    /// A vendor's secret key or token. The adapter makes the header of it.
    pub secret: Option<HeaderValue>,
    /// Whose secret it is, where the vendor wants to know: YooKassa's shop id, Braintree's public key.
    pub account: Option<String>,
    /// Square's location, since its list shows the payments of one only.
    pub location: Option<String>,
    /// Which of Stripe's objects stands for an order: `payment_intent` (by default) or `charge`.
    pub object: Option<String>,
    /// Whether the payments that are asked about are those of the vendor's test mode. Without it, a key of test mode
    /// proves of no order that it was not charged.
    #[serde(default)]
    pub test_mode: bool,
    /// Headers of the request, credentials among them.
    #[serde(default)]
    pub headers: BTreeMap<String, HeaderValue>,
    /// How long one question may take, retries included: 100 ms to 5 min, by default [`DEFAULT_TIMEOUT`].
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    /// JSON Pointer to the payment or to an array of payments; by default the whole answer. Absent, null or an
    /// empty array: not found.
    pub find: Option<String>,
    /// JSON Pointer below the payment: the provider's word for its state.
    pub status: Option<String>,
    /// JSON Pointer below the payment: the provider's id of it.
    pub reference: Option<String>,
    /// JSON Pointer below the payment: the amount.
    pub amount: Option<String>,
    /// JSON Pointer below the payment: the currency.
    pub currency: Option<String>,
    /// JSON Pointer below the payment: our order id; for a vendor by default where its API has such a field. Where
    /// it is set, payments of other orders are not taken for ours; set it whenever the provider gives the id back,
    /// since some ignore a filter that they do not know.
    #[serde(rename = "match")]
    pub order_id: Option<String>,
    /// What the provider's words mean.
    pub verdicts: Option<Verdicts>,
    /// How long after the last attempt a miss proves nothing; by default [`DEFAULT_LAG`].
    #[serde(default, deserialize_with = "duration")]
    pub lag: Option<Duration>,
    /// HTTP statuses that mean "not found": 204 or 4xx other than those about credentials and load; by default
    /// 404 where the order id stands in the path, and none where it stands in the query alone: there a 404 says
    /// that the address is wrong. A page of HTML with such a status is not taken for the API's own answer.
    pub miss_status: Option<Vec<u16>>,
    /// Whether an answer in which `find` leads to nothing means "not found". By default it means that nobody
    /// knows: an error may come with status 200 and no payment in it. An empty array and null always mean "not
    /// found".
    #[serde(default)]
    pub absent_is_miss: bool,
    /// What to store when a payment is found charged.
    pub response: Option<ResponseConfig>,
    /// A PEM file of certificates to trust besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// A proxy for the requests: `http://host:port`.
    pub proxy: Option<Redacted>,
    /// Permits plain http to another machine.
    #[serde(default)]
    pub allow_http: bool,
    /// How the provider's idempotency keys are made from ours.
    #[serde(default)]
    pub key_scheme: KeyScheme,
    /// The longest idempotency key that the provider takes, in bytes.
    pub key_limit: Option<usize>,
    /// How long the provider remembers an idempotency key.
    #[serde(default, deserialize_with = "duration")]
    pub key_retention: Option<Duration>,
    /// Whether the provider replays errors under the same key.
    pub replays_errors: Option<bool>,
}

/// Which of the provider's words mean what. A word that is not listed is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Verdicts {
    /// The money moved.
    pub charged: Vec<String>,
    /// The money is held.
    pub authorized: Vec<String>,
    /// Under way.
    pub pending: Vec<String>,
    /// The money did not move and will not.
    pub not_charged: Vec<String>,
}

/// The response to store for a payment that was found.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseConfig {
    /// HTTP status, 200 to 399 and one that has a body.
    pub status_code: u16,
    /// The JSON body. Strings may have places for values of the payment: `{/id}`.
    pub body: serde_json::Value,
}

/// An error that names the key `providers.NAME.KEY`.
pub(super) fn wrong(name: &str, key: &str, problem: impl std::fmt::Display) -> Error {
    Error::Settings {
        what: format!("providers.{}.{key} {problem}", name.escape_debug()),
    }
}

impl ProviderConfig {
    /// The pointer under `key`, if it is set.
    pub(super) fn pointer(name: &str, key: &str, text: Option<&str>) -> Result<Option<Pointer>> {
        text.map(Pointer::parse)
            .transpose()
            .map_err(|problem| wrong(name, key, problem))
    }

    /// Refuses keys of other kinds than this one. `own`: those of this kind.
    pub(super) fn refuse_foreign_keys(&self, name: &str, own: &[&str]) -> Result<()> {
        let set = [
            ("headers", !self.headers.is_empty()),
            ("find", self.find.is_some()),
            ("status", self.status.is_some()),
            ("reference", self.reference.is_some()),
            ("amount", self.amount.is_some()),
            ("currency", self.currency.is_some()),
            ("verdicts", self.verdicts.is_some()),
            ("miss_status", self.miss_status.is_some()),
            ("absent_is_miss", self.absent_is_miss),
            ("secret", self.secret.is_some()),
            ("account", self.account.is_some()),
            ("location", self.location.is_some()),
            ("object", self.object.is_some()),
            ("test_mode", self.test_mode),
        ];
        match set.iter().find(|(key, set)| *set && !own.contains(key)) {
            Some((key, _)) => {
                let problem = format!("does not belong to kind {}", self.kind.as_str());
                Err(wrong(name, key, problem))
            }
            None => Ok(()),
        }
    }

    /// A key that this kind needs.
    pub(super) fn needed<T>(&self, name: &str, key: &str, value: Option<T>) -> Result<T> {
        let problem = format!("is missing; a provider of kind {} needs it", self.kind.as_str());
        value.ok_or_else(|| wrong(name, key, problem))
    }

    /// The checked timeout.
    pub(super) fn checked_timeout(&self, name: &str) -> Result<Duration> {
        let timeout = self.timeout.unwrap_or(DEFAULT_TIMEOUT);
        if timeout < Duration::from_millis(100) || timeout > Duration::from_mins(5) {
            let given = crate::duration::format(timeout);
            return Err(wrong(name, "timeout", format!("is {given}; give 100ms to 5m")));
        }
        Ok(timeout)
    }
}

impl Verdicts {
    /// Every word with its verdict. Refuses empty words, words under two verdicts, and a list under which
    /// nothing can be charged.
    pub(super) fn checked(&self, name: &str) -> Result<BTreeMap<String, super::Verdict>> {
        use super::Verdict;
        // By destructuring, so that a new field cannot be forgotten here.
        let Self {
            charged,
            authorized,
            pending,
            not_charged,
        } = self;
        let mut words = BTreeMap::new();
        for (key, list, verdict) in [
            ("verdicts.charged", charged, Verdict::Charged),
            ("verdicts.authorized", authorized, Verdict::Authorized),
            ("verdicts.pending", pending, Verdict::Pending),
            ("verdicts.not_charged", not_charged, Verdict::NotCharged),
        ] {
            for word in list {
                if word.is_empty() {
                    return Err(wrong(name, key, "has an empty word"));
                }
                if let Some(other) = words.insert(word.clone(), verdict) {
                    return Err(wrong(
                        name,
                        key,
                        format!("has the word {word:?}, which already means {other}"),
                    ));
                }
            }
        }
        if charged.is_empty() {
            return Err(wrong(
                name,
                "verdicts.charged",
                "is empty: nothing would ever count as charged",
            ));
        }
        Ok(words)
    }
}
