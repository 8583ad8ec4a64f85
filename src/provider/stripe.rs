//! The adapter for Stripe (API v1): payment intents, or charges, that carry our order id in their metadata.
//!
//! Two look-ups with opposite faults. The search (`docs.stripe.com/api/payment_intents/search`) finds an order
//! whenever it was made, but new and changed objects reach it late, usually within a minute and within an hour in
//! outages, it takes similar texts for matches, and some accounts do not have it. The list
//! (`docs.stripe.com/api/payment_intents/list`) is what `docs.stripe.com/search` names for reading right after writing,
//! but can only be narrowed by the time of creation. So both are asked: a payment that the search finds counts if the
//! object itself confirms it, and only a list that was read to its end says that there is no other. What the search
//! shows for our order and nothing confirms or refutes is a gap.

mod list;
mod object;
mod page;
mod search;
mod settings;

use std::time::Duration;

use tokio::time::Instant;

use super::config::{ProviderConfig, wrong};
use super::fetch::{Answer, Credentials, Fetcher, Request, Trouble};
use super::judge::Judge;
use super::template::ResponseTemplate;
use super::test_mode::TestMode;
use super::url::BaseUrl;
use super::{
    Facts, LookUp, Payment, Provider, ProviderStatus, StatusFuture, StatusQuery, Surroundings,
    window::{self, BEFORE},
};
use crate::error::Result;
use crate::fingerprint::json::{self, Value};
use crate::key::check_name;
use crate::response::Response;
use object::{Object, id, member};
use search::Searched;
use settings::{field, fields, is_account};

/// Where the API is.
const PRODUCTION: &str = "https://api.stripe.com";

/// The version of the API that is asked for (`docs.stripe.com/api/versioning`), whatever the account's default is:
/// with today's names of the statuses, with the search (since 2020-08-27), and with payment intents that do not
/// carry a copy of each of their charges (since 2022-11-15), a hundred of which would make a long answer.
const API_VERSION: &str = "2024-06-20";

/// The longest idempotency key (`docs.stripe.com/api/idempotent_requests`).
const KEY_LIMIT: usize = 255;

/// How long Stripe keeps a key at least (`docs.stripe.com/api/idempotent_requests`).
const KEY_RETENTION: Duration = Duration::from_hours(24);

/// How long after an attempt a list without it proves nothing. The list itself has no lag; but the request of the
/// attempt may be on its way for the 80 s that Stripe's own libraries wait for an answer.
const DEFAULT_LAG: Duration = Duration::from_mins(2);

/// The keys of the configuration that only vendors have.
const STRIPE_KEYS: [&str; 4] = ["secret", "account", "object", "test_mode"];

/// How secret and restricted keys of test mode begin (`docs.stripe.com/keys`).
const TEST_KEYS: &[&str] = &["sk_test_", "rk_test_"];

/// How much the list begins before the first attempt where the search cannot be relied on for what is older: a page of
/// the shop may have created the intent long before somebody paid it.
const BEFORE_WITHOUT_SEARCH: Duration = Duration::from_hours(24);

/// A provider of `kind = "stripe"`.
#[derive(Debug)]
pub struct StripeProvider {
    name: String,
    facts: Facts,
    base: BaseUrl,
    fetcher: Fetcher,
    test_mode: TestMode,
    object: Object,
    /// Below `metadata`: where our order id is.
    field: String,
    judge: Judge,
    response: Option<ResponseTemplate>,
}

/// What asking for one object by its own id came to.
enum Direct {
    Found(Value),
    Missing,
    /// The answer cannot be judged; why.
    Unclear(String),
    /// There is no answer.
    Silent(Trouble),
}

impl StripeProvider {
    /// Checks the section and prepares the client.
    ///
    /// Returns [`Error::Settings`](crate::error::Error::Settings) naming the key that is absent or wrong.
    pub fn new(name: &str, config: &ProviderConfig, surroundings: &Surroundings) -> Result<Self> {
        check_name("provider", name)?;
        config.refuse_foreign_keys(name, &STRIPE_KEYS)?;
        let secret = config.needed(name, "secret", config.secret.as_ref())?;
        let base = config.url.as_ref().map_or(PRODUCTION, |url| url.reveal());
        let base = BaseUrl::parse(base, config.allow_http).map_err(|problem| wrong(name, "url", problem))?;
        let object = Object::parse(config.object.as_deref())
            .ok_or_else(|| wrong(name, "object", "is neither \"payment_intent\" nor \"charge\""))?;
        let field = field(name, config.order_id.as_deref())?;
        let mut fetcher = Fetcher::new(name, config, surroundings, base.is_https())?
            .with_credentials(Credentials::Bearer(secret.clone()))
            .with_header("stripe-version", API_VERSION);
        if let Some(account) = &config.account {
            // docs.stripe.com/api/connected-accounts
            if !is_account(account) {
                return Err(wrong(
                    name,
                    "account",
                    "is no id of a connected account, such as acct_1A2b3C",
                ));
            }
            fetcher = fetcher.with_header("stripe-account", account);
        }
        let facts = Facts {
            kind: config.kind.as_str(),
            key_scheme: config.key_scheme,
            key_limit: Some(config.key_limit.unwrap_or(KEY_LIMIT)),
            key_retention: Some(config.key_retention.unwrap_or(KEY_RETENTION)),
            // Once the execution began, a failure is kept and replayed like a success
            // (docs.stripe.com/error-low-level, "Content errors" and "Server errors").
            replays_errors: Some(config.replays_errors.unwrap_or(true)),
            look_up: LookUp::Window {
                lag: config.lag.unwrap_or(DEFAULT_LAG),
            },
            timeout: fetcher.timeout(),
        };
        let judge = Judge {
            name: name.to_owned(),
            look_up: facts.look_up,
            fields: fields(name)?,
            words: object.words(),
            special: Some(object.verdict()),
            unlisted: "the adapter does not know".to_owned(),
        };
        let response = ResponseTemplate::of(name, config.response.as_ref())?;
        Ok(Self {
            name: name.to_owned(),
            facts,
            base,
            fetcher,
            test_mode: TestMode {
                secret: secret.clone(),
                surroundings: surroundings.clone(),
                prefixes: TEST_KEYS,
                is_meant: config.test_mode,
            },
            object,
            field,
            judge,
            response,
        })
    }

    async fn ask(&self, query: &StatusQuery) -> ProviderStatus {
        self.test_mode.judge(self.look_up(query).await).await
    }

    async fn look_up(&self, query: &StatusQuery) -> ProviderStatus {
        if let Err(error) = check_name("order_id", &query.order_id) {
            let evidence = format!("{}: not sent", self.asked(""));
            return self.judge.unknown(query, evidence, error.to_string().into());
        }
        let deadline = self.fetcher.deadline();
        let mut missing = None;
        if self.object.is_id(&query.order_id) {
            match self.by_id(query, deadline).await {
                Ok(status) => return status,
                Err(evidence) => missing = Some(evidence),
            }
        }
        let status = self.by_metadata(query, deadline).await;
        match missing {
            Some(evidence) if status.payment.is_none() => {
                let reason = "the order id has the form of Stripe's own ids, but this key sees no such object: it may \
                              belong to another account, or to the other one of live and test mode";
                let evidence = format!("{evidence}; {}", status.evidence);
                ProviderStatus { evidence, ..status }.doubted(reason.to_owned())
            }
            _ => status,
        }
    }

    /// An order id that is Stripe's own id: the object itself is asked for. `Err`: there is none.
    async fn by_id(&self, query: &StatusQuery, deadline: Instant) -> Result<ProviderStatus, String> {
        let asked = self.asked(&format!("/{}", query.order_id));
        match self.direct(&query.order_id, deadline).await {
            Direct::Found(payment) => Ok(self.judge.object(query, format!("{asked}: one payment"), payment)),
            Direct::Missing => Err(format!("{asked}: no such object")),
            Direct::Unclear(reason) => Ok(self.judge.unknown(query, asked, reason.into())),
            Direct::Silent(trouble) => Ok(ProviderStatus {
                answered: false,
                ..self
                    .judge
                    .unknown(query, format!("{asked}: no answer that can be judged"), trouble)
            }),
        }
    }

    async fn by_metadata(&self, query: &StatusQuery, deadline: Instant) -> ProviderStatus {
        let Searched {
            mut found,
            unconfirmed,
            is_whole,
            date,
            evidence,
        } = self.search(&query.order_id, deadline).await;
        let answered = !found.is_empty();
        let before = if is_whole { BEFORE } else { BEFORE_WITHOUT_SEARCH };
        // A charge that was found is no reason to leave the list out: a second one may not be in the search yet.
        let listed = window::read(self, query, self.facts.look_up, before, date, deadline).await;
        let evidence = format!("{evidence}; {}", listed.evidence);
        // The list was read later, so that its view of a payment is the newer one.
        found.retain(|payment| !listed.found.iter().any(|other| id(other) == id(payment)));
        found.extend(listed.found);
        let is_found = |wanted: &String| found.iter().any(|payment| id(payment) == Some(wanted.as_str()));
        let lost = unconfirmed.iter().find(|wanted| !is_found(wanted));
        let gap = listed.gap.or_else(|| {
            let lost = lost?;
            let reason = format!(
                "the search shows {lost:?} as a payment of this order, which neither the object itself nor the list \
                 confirms or refutes"
            );
            Some(reason.into())
        });
        let status = self.judge.payments(query, evidence, found, gap);
        ProviderStatus {
            answered: answered || listed.answered,
            ..status
        }
    }

    /// One object by Stripe's own id.
    async fn direct(&self, wanted: &str, deadline: Instant) -> Direct {
        let path = format!("{}/{wanted}", self.object.path());
        let answer = match self.get(&path, &[], deadline).await {
            Ok(answer) => answer,
            Err(trouble) => return Direct::Silent(trouble),
        };
        let document = match json::parse(&answer.body) {
            Ok(document) => document,
            Err(error) => return Direct::Unclear(format!("the answer cannot be read: {error}")),
        };
        match answer.status.as_u16() {
            200 if id(&document) == Some(wanted) => Direct::Found(document),
            200 => Direct::Unclear("another object came back than was asked for".to_owned()),
            // Only with an error object (docs.stripe.com/api/errors): a gateway has its own 404.
            404 if member(&document, "error").is_some_and(|error| member(error, "type").is_some()) => {
                Direct::Missing
            }
            code => Direct::Unclear(format!("the provider answered HTTP {code}")),
        }
    }

    async fn get(
        &self,
        path: &str,
        parameters: &[(&str, &str)],
        deadline: Instant,
    ) -> Result<Answer, Trouble> {
        let url = self.base.with(path, parameters)?;
        self.fetcher.ask(&Request::get(url), deadline).await
    }

    /// What is asked, for the evidence.
    fn asked(&self, what: &str) -> String {
        format!("GET {}{}{what}", self.base.origin(), self.object.path())
    }
}

impl Provider for StripeProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn status<'a>(&'a self, query: &'a StatusQuery) -> StatusFuture<'a> {
        Box::pin(self.ask(query))
    }

    fn response(&self, payment: &Payment) -> Result<Option<Response>> {
        self.response
            .as_ref()
            .map(|response| response.fill(&self.name, payment))
            .transpose()
    }
}
