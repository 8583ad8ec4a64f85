//! The adapters for vendors whose API answers one question, page by page: what each of them is like stands in its own
//! file below, as a [`Vendor`].

mod braintree;
mod checkout;
mod mollie;
mod square;
mod yookassa;

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::config::{Kind, ProviderConfig, wrong};
use super::fetch::{Credentials, Fetcher, Request, Trouble};
use super::judge::{Fields, Judge};
use super::template::ResponseTemplate;
use super::test_mode::TestMode;
use super::url::BaseUrl;
use super::window::{self, BEFORE, List, Page, Window};
use super::{
    Facts, LookUp, Payment, Provider, ProviderStatus, StatusFuture, StatusQuery, Surroundings, Verdict,
};
use crate::error::Result;
use crate::fingerprint::json::{self, Pointer, Value};
use crate::key::check_name;
use crate::response::Response;

/// How many payments a page has; a hundred of them stay well below the longest answer that is read.
const PER_PAGE: &str = "100";

/// What one vendor's API is like.
struct Vendor {
    /// Where it is in production.
    production: &'static str,
    /// The one path that is asked.
    path: &'static str,
    /// `GET` or `POST`, for the evidence.
    method: &'static str,
    /// Headers of every request.
    headers: &'static [(&'static str, &'static str)],
    /// Whether the vendor wants to know whose secret it is (Basic), or not (Bearer).
    has_account: bool,
    /// Whether its list shows the payments of one location only.
    has_location: bool,
    /// How secrets of test mode begin, where the same address takes them.
    test_keys: &'static [&'static str],
    /// The longest idempotency key, if published.
    key_limit: Option<usize>,
    /// How long a key is kept, if published.
    key_retention: Option<Duration>,
    /// Whether errors are replayed under the same key, if published.
    replays_errors: Option<bool>,
    /// How it can be asked, with the lag by default.
    look_up: LookUp,
    /// Where the order id is in a payment, by default.
    order: &'static str,
    /// The longest text, in characters, that can be there.
    order_limit: usize,
    status: &'static str,
    reference: &'static str,
    amount: &'static str,
    currency: &'static str,
    /// What the vendor's words mean. A word that is absent is unknown.
    words: &'static [(&'static str, Verdict)],
    /// The request for a page.
    request: fn(&Asking<'_>) -> Result<Request, String>,
    /// Reads the answer with a page; `Err`: what is wrong with it.
    page: fn(Value, &Asking<'_>) -> Result<Page, String>,
}

/// What a page is asked for with.
struct Asking<'a> {
    base: &'a BaseUrl,
    path: &'static str,
    order_id: &'a str,
    location: Option<&'a str>,
    window: &'a Window,
    cursor: Option<&'a str>,
    /// How many payments.
    limit: &'static str,
}

impl Asking<'_> {
    /// A GET with these parameters; those without a value are left out.
    fn get(&self, parameters: &[(&str, Option<&str>)]) -> Result<Request, String> {
        let given: Vec<(&str, &str)> = parameters
            .iter()
            .filter_map(|(name, value)| Some((*name, (*value)?)))
            .collect();
        Ok(Request::get(self.base.with(self.path, &given)?))
    }
}

/// A provider of `kind = "braintree"`, `"checkout"`, `"mollie"`, `"square"` or `"yookassa"`.
pub struct VendorProvider {
    name: String,
    facts: Facts,
    vendor: &'static Vendor,
    base: BaseUrl,
    fetcher: Fetcher,
    test_mode: TestMode,
    location: Option<String>,
    order: Pointer,
    /// Where the configuration says where the order id is, the vendor's limit of another field does not count.
    order_limit: usize,
    judge: Judge,
    response: Option<ResponseTemplate>,
}

impl std::fmt::Debug for VendorProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VendorProvider")
            .field("name", &self.name)
            .field("facts", &self.facts)
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl VendorProvider {
    /// Checks the section and prepares the client.
    ///
    /// Returns [`Error::Settings`](crate::error::Error::Settings) naming the key that is absent or wrong.
    pub fn new(name: &str, config: &ProviderConfig, surroundings: &Surroundings) -> Result<Self> {
        check_name("provider", name)?;
        let vendor = vendor(name, config.kind)?;
        let own = [
            Some("secret"),
            vendor.has_account.then_some("account"),
            vendor.has_location.then_some("location"),
            (!vendor.test_keys.is_empty()).then_some("test_mode"),
        ];
        let own: Vec<&str> = own.into_iter().flatten().collect();
        config.refuse_foreign_keys(name, &own)?;
        let base = config.url.as_ref().map_or(vendor.production, |url| url.reveal());
        let base = BaseUrl::parse(base, config.allow_http).map_err(|problem| wrong(name, "url", problem))?;
        let credentials = credentials(name, config, vendor)?;
        let mut fetcher =
            Fetcher::new(name, config, surroundings, base.is_https())?.with_credentials(credentials);
        for (header, value) in vendor.headers {
            fetcher = fetcher.with_header(header, value);
        }
        let location = match (vendor.has_location, config.location.as_deref()) {
            (true, given) => Some(config.needed(name, "location", given)?.to_owned()),
            (false, _) => None,
        };
        let test_mode = TestMode {
            secret: config.needed(name, "secret", config.secret.clone())?,
            surroundings: surroundings.clone(),
            prefixes: vendor.test_keys,
            is_meant: config.test_mode,
        };
        let (order, order_limit) = order(name, config, vendor)?;
        let facts = facts(config, vendor, fetcher.timeout());
        let judge = Judge {
            name: name.to_owned(),
            look_up: facts.look_up,
            fields: fields(name, vendor)?,
            words: vendor
                .words
                .iter()
                .map(|(word, verdict)| ((*word).to_owned(), *verdict))
                .collect(),
            special: None,
            unlisted: "the adapter does not know".to_owned(),
        };
        let response = ResponseTemplate::of(name, config.response.as_ref())?;
        Ok(Self {
            name: name.to_owned(),
            facts,
            vendor,
            base,
            fetcher,
            test_mode,
            location,
            order,
            order_limit,
            judge,
            response,
        })
    }

    async fn ask(&self, query: &StatusQuery) -> ProviderStatus {
        self.test_mode.judge(self.look_up(query).await).await
    }

    async fn look_up(&self, query: &StatusQuery) -> ProviderStatus {
        let list = Asked {
            provider: self,
            order_id: &query.order_id,
        };
        let not_sent = |reason: String| {
            let evidence = format!("{}: not sent", list.asked());
            self.judge.unknown(query, evidence, reason.into())
        };
        if let Err(error) = check_name("order_id", &query.order_id) {
            return not_sent(error.to_string());
        }
        if query.order_id.chars().count() > self.order_limit {
            return not_sent(format!(
                "the order id has more than the {} characters that {} takes, so that no payment can carry it as it is",
                self.order_limit, self.facts.kind
            ));
        }
        let deadline = self.fetcher.deadline();
        let listed = window::read(&list, query, self.facts.look_up, BEFORE, None, deadline).await;
        let answered = listed.answered;
        let status = self
            .judge
            .payments(query, listed.evidence, listed.found, listed.gap);
        ProviderStatus { answered, ..status }
    }
}

impl Provider for VendorProvider {
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

/// The list as it is asked for one order.
struct Asked<'a> {
    provider: &'a VendorProvider,
    order_id: &'a str,
}

impl Asked<'_> {
    fn asking<'b>(&'b self, window: &'b Window, cursor: Option<&'b str>, limit: &'static str) -> Asking<'b> {
        Asking {
            base: &self.provider.base,
            path: self.provider.vendor.path,
            order_id: self.order_id,
            location: self.provider.location.as_deref(),
            window,
            cursor,
            limit,
        }
    }
}

impl List for Asked<'_> {
    fn asked(&self) -> String {
        let Vendor { method, path, .. } = self.provider.vendor;
        format!("{method} {}{path}", self.provider.base.origin())
    }

    async fn page(&self, window: &Window, cursor: Option<&str>, deadline: Instant) -> Result<Page, Trouble> {
        let vendor = self.provider.vendor;
        let asking = self.asking(window, cursor, PER_PAGE);
        let request = (vendor.request)(&asking)?;
        let answer = self.provider.fetcher.ask(&request, deadline).await?;
        let code = answer.status.as_u16();
        if code != 200 {
            return Err(format!("the provider answered HTTP {code}").into());
        }
        let document =
            json::parse(&answer.body).map_err(|error| format!("the answer cannot be read: {error}"))?;
        Ok((vendor.page)(document, &asking)?)
    }

    async fn now(&self, deadline: Instant) -> Result<Option<DateTime<Utc>>, Trouble> {
        let request = (self.provider.vendor.request)(&self.asking(&Window::OPEN, None, "1"))?;
        let answer = self.provider.fetcher.ask(&request, deadline).await?;
        match answer.status.as_u16() {
            200 => Ok(answer.date),
            code => Err(format!("the provider answered HTTP {code}").into()),
        }
    }

    fn order(&self, payment: &Value) -> Option<String> {
        self.provider.order.find(payment)?.scalar_text()
    }

    fn order_at(&self) -> String {
        self.provider.order.to_string()
    }

    fn id(&self, payment: &Value) -> Option<String> {
        self.provider.judge.reference(payment)
    }
}

fn vendor(name: &str, kind: Kind) -> Result<&'static Vendor> {
    match kind {
        Kind::Braintree => Ok(&braintree::BRAINTREE),
        Kind::Checkout => Ok(&checkout::CHECKOUT),
        Kind::Mollie => Ok(&mollie::MOLLIE),
        Kind::Square => Ok(&square::SQUARE),
        Kind::Yookassa => Ok(&yookassa::YOOKASSA),
        Kind::Http | Kind::Stripe => Err(wrong(name, "kind", "has an adapter of its own")),
    }
}

fn credentials(name: &str, config: &ProviderConfig, vendor: &Vendor) -> Result<Credentials> {
    let secret = config.needed(name, "secret", config.secret.clone())?;
    if !vendor.has_account {
        return Ok(Credentials::Bearer(secret));
    }
    let account = config.needed(name, "account", config.account.clone())?;
    // RFC 7617 section 2: the colon ends the user.
    if account.is_empty()
        || !account
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b':')
    {
        let problem = "has a character that no account has, or none at all";
        return Err(wrong(name, "account", problem));
    }
    Ok(Credentials::Basic { account, secret })
}

/// Where the order id is, and how long it can be there.
fn order(name: &str, config: &ProviderConfig, vendor: &Vendor) -> Result<(Pointer, usize)> {
    let given = config.order_id.as_deref().filter(|given| *given != vendor.order);
    if given.is_some() && matches!(vendor.look_up, LookUp::Exact { .. }) {
        let problem = format!(
            "is not {}, which is all that kind {} can be asked by",
            vendor.order,
            config.kind.as_str()
        );
        return Err(wrong(name, "match", problem));
    }
    let limit = if given.is_some() {
        usize::MAX
    } else {
        vendor.order_limit
    };
    let pointer = Pointer::parse(given.unwrap_or(vendor.order));
    Ok((pointer.map_err(|problem| wrong(name, "match", problem))?, limit))
}

fn facts(config: &ProviderConfig, vendor: &Vendor, timeout: Duration) -> Facts {
    Facts {
        kind: config.kind.as_str(),
        key_scheme: config.key_scheme,
        key_limit: config.key_limit.or(vendor.key_limit),
        key_retention: config.key_retention.or(vendor.key_retention),
        replays_errors: config.replays_errors.or(vendor.replays_errors),
        look_up: match (vendor.look_up, config.lag) {
            (LookUp::Exact { .. }, Some(lag)) => LookUp::Exact { lag },
            (LookUp::Window { .. }, Some(lag)) => LookUp::Window { lag },
            (look_up, _) => look_up,
        },
        timeout,
    }
}

fn fields(name: &str, vendor: &Vendor) -> Result<Fields> {
    let at = |text: &str| Pointer::parse(text).map_err(|problem| wrong(name, "kind", problem));
    Ok(Fields {
        status: at(vendor.status)?,
        reference: Some(at(vendor.reference)?),
        amount: Some(at(vendor.amount)?),
        currency: Some(at(vendor.currency)?),
    })
}

/// A member of an object, taken out of it.
fn taken(document: &mut Value, name: &str) -> Option<Value> {
    match document {
        Value::Object(members) => members.remove(name),
        _ => None,
    }
}

/// The payments that an answer has under a name; otherwise what is wrong.
fn payments(document: &mut Value, name: &str) -> Result<Vec<Value>, String> {
    match taken(document, name) {
        Some(Value::Array(payments)) if payments.iter().all(|one| matches!(one, Value::Object(_))) => {
            Ok(payments)
        }
        _ => Err(format!("the answer has no list of payments at {name:?}")),
    }
}
