//! The adapter for any API that answers a GET with JSON, told by the configuration what its answers mean.

use super::config::{DEFAULT_LAG, ProviderConfig, wrong};
use super::fetch::{Answer, Fetcher, Request};
use super::judge::{Fields, Judge};
use super::template::ResponseTemplate;
use super::url::UrlTemplate;
use super::{Facts, LookUp, Payment, Provider, ProviderStatus, StatusFuture, StatusQuery, Surroundings};
use crate::error::Result;
use crate::fingerprint::json::{self, Pointer, Value};
use crate::key::check_name;
use crate::response::Response;

/// A provider of `kind = "http"`.
#[derive(Debug)]
pub struct HttpProvider {
    name: String,
    facts: Facts,
    url: UrlTemplate,
    fetcher: Fetcher,
    reading: Reading,
    judge: Judge,
    response: Option<ResponseTemplate>,
}

/// How an answer is read.
#[derive(Debug)]
struct Reading {
    find: Pointer,
    order_id: Option<Pointer>,
    miss_status: Vec<u16>,
    absent_is_miss: bool,
}

/// The keys that only this kind has.
const HTTP_KEYS: [&str; 9] = [
    "headers",
    "find",
    "status",
    "reference",
    "amount",
    "currency",
    "verdicts",
    "miss_status",
    "absent_is_miss",
];

/// What an answer holds for an order.
enum Found {
    /// No payment; in words.
    Miss(String),
    /// The one payment of the order, and how many payments of others came back with it.
    One(Value, usize),
    /// It cannot be told; why.
    Unclear(String),
}

impl HttpProvider {
    /// Checks the section and prepares the client.
    ///
    /// Returns [`Error::Settings`](crate::error::Error::Settings) naming the key that is absent or wrong.
    pub fn new(name: &str, config: &ProviderConfig, surroundings: &Surroundings) -> Result<Self> {
        check_name("provider", name)?;
        config.refuse_foreign_keys(name, &HTTP_KEYS)?;
        let missing = |key: &str| wrong(name, key, "is missing; a provider of kind http needs it");
        let url = config.url.as_ref().ok_or_else(|| missing("url"))?;
        let url = UrlTemplate::parse(url.reveal(), config.allow_http)
            .map_err(|problem| wrong(name, "url", problem))?;
        let fetcher = Fetcher::new(name, config, surroundings, url.is_https())?;
        let facts = Facts {
            kind: "http",
            key_scheme: config.key_scheme,
            key_limit: config.key_limit,
            key_retention: config.key_retention,
            replays_errors: config.replays_errors,
            look_up: LookUp::Exact {
                lag: config.lag.unwrap_or(DEFAULT_LAG),
            },
            timeout: fetcher.timeout(),
        };
        let pointer = |key: &str, text: &Option<String>| ProviderConfig::pointer(name, key, text.as_deref());
        let reading = Reading {
            find: ProviderConfig::pointer(name, "find", Some(config.find.as_deref().unwrap_or("")))?
                .ok_or_else(|| missing("find"))?,
            order_id: pointer("match", &config.order_id)?,
            miss_status: miss_status(name, config.miss_status.as_deref(), url.is_in_path())?,
            absent_is_miss: config.absent_is_miss,
        };
        let judge = Judge {
            name: name.to_owned(),
            look_up: facts.look_up,
            fields: Fields {
                status: pointer("status", &config.status)?.ok_or_else(|| missing("status"))?,
                reference: pointer("reference", &config.reference)?,
                amount: pointer("amount", &config.amount)?,
                currency: pointer("currency", &config.currency)?,
            },
            words: config
                .verdicts
                .as_ref()
                .ok_or_else(|| missing("verdicts"))?
                .checked(name)?,
            special: None,
            unlisted: format!("providers.{name}.verdicts does not list"),
        };
        let response = ResponseTemplate::of(name, config.response.as_ref())?;
        Ok(Self {
            name: name.to_owned(),
            facts,
            url,
            fetcher,
            reading,
            judge,
            response,
        })
    }

    async fn ask(&self, query: &StatusQuery) -> ProviderStatus {
        let asked = format!("GET {}", self.url.origin());
        if let Err(error) = check_name("order_id", &query.order_id) {
            return self
                .judge
                .unknown(query, format!("{asked}: not sent"), error.to_string().into());
        }
        let url = match self.url.fill(&query.order_id) {
            Ok(url) => url,
            Err(problem) => {
                return self
                    .judge
                    .unknown(query, format!("{asked}: not sent"), problem.into());
            }
        };
        match self
            .fetcher
            .ask(&Request::get(url), self.fetcher.deadline())
            .await
        {
            Ok(answer) => self.judge(
                query,
                &format!("{asked}: HTTP {}", answer.status.as_u16()),
                &answer,
            ),
            Err(trouble) => ProviderStatus {
                answered: false,
                ..self
                    .judge
                    .unknown(query, format!("{asked}: no answer that can be judged"), trouble)
            },
        }
    }

    fn judge(&self, query: &StatusQuery, evidence: &str, answer: &Answer) -> ProviderStatus {
        let judge = &self.judge;
        match self.reading.find(answer, &query.order_id) {
            Found::Miss(what) => judge.miss(query, format!("{evidence}, {what}")),
            Found::Unclear(reason) => judge.unknown(query, evidence.to_owned(), reason.into()),
            Found::One(payment, 0) => {
                let status = judge.payment(query, format!("{evidence}, one payment"), payment);
                if self.reading.order_id.is_some() || self.url.is_in_path() {
                    return status;
                }
                // A provider that does not know the filter gives just any payment.
                status.doubted(
                    "a payment failed, but nothing says that it is of this order: set match to where the payment has \
                     our order id"
                        .to_owned(),
                )
            }
            Found::One(payment, others) => {
                let evidence = format!("{evidence}, one payment and {others} of other orders");
                // A list that was not narrowed by the order id may have another one of the order on a further page.
                let reason = format!(
                    "an attempt failed, but a later one may have been missed: {others} payments of other orders came \
                     back, so that the order id did not narrow the list"
                );
                judge.payment(query, evidence, payment).doubted(reason)
            }
        }
    }
}

impl Provider for HttpProvider {
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

/// Why an answer without a payment may not be the whole answer.
fn doubt(answer: &Answer, document: &Value) -> Option<String> {
    if answer.status.as_u16() != 200 {
        return Some(format!(
            "with HTTP {}, which is no whole answer",
            answer.status.as_u16()
        ));
    }
    if answer.html {
        return Some("it calls itself HTML".to_owned());
    }
    let Value::Object(members) = document else {
        return None;
    };
    let says_something = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(elements) => !elements.is_empty(),
        Value::String(text) => !text.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    };
    let telling = ["error", "errors", "has_more", "next", "next_cursor", "next_page"];
    let member = telling
        .into_iter()
        .find(|name| members.get(*name).is_some_and(says_something))?;
    Some(format!(
        "beside it stands {member:?}: an error, or a list that goes on"
    ))
}

impl Reading {
    fn find(&self, answer: &Answer, order_id: &str) -> Found {
        let code = answer.status.as_u16();
        if self.miss_status.contains(&code) {
            if answer.html {
                return Found::Unclear(format!(
                    "HTTP {code} came with a page of HTML, as a gateway gives for a wrong address; it is no answer of the API"
                ));
            }
            return Found::Miss("which means not found".to_owned());
        }
        if !answer.status.is_success() {
            return Found::Unclear(format!("the provider answered HTTP {code}"));
        }
        let document = match json::parse(&answer.body) {
            Ok(document) => document,
            Err(error) => return Found::Unclear(format!("the answer cannot be read: {error}")),
        };
        let at = self.find.to_string();
        let empty = |what: &str| match doubt(answer, &document) {
            Some(doubt) => Found::Unclear(format!("{what}, but {doubt}")),
            None => Found::Miss(what.to_owned()),
        };
        match self.find.find(&document) {
            None if !self.absent_is_miss => Found::Unclear(format!(
                "the answer has nothing at {at:?}: an error, or another form of answer than configured \
                 (absent_is_miss = true, if that means that there is no payment)"
            )),
            None | Some(Value::Null) => empty(&format!("nothing at {at:?}")),
            Some(Value::Array(payments)) if payments.is_empty() => empty(&format!("no payment at {at:?}")),
            Some(Value::Array(payments)) => self.ours(payments, order_id),
            Some(payment @ Value::Object(_)) => self.ours(std::slice::from_ref(payment), order_id),
            Some(_) => Found::Unclear(format!(
                "what the answer has at {at:?} is neither a payment nor an array of them"
            )),
        }
    }

    /// The one payment of this order among those that came back.
    fn ours(&self, payments: &[Value], order_id: &str) -> Found {
        let is_ours = |payment: &&Value| match &self.order_id {
            None => true,
            Some(pointer) => pointer.find(payment).and_then(Value::scalar_text).as_deref() == Some(order_id),
        };
        let ours: Vec<_> = payments.iter().filter(is_ours).collect();
        match ours.as_slice() {
            [payment] => Found::One((*payment).clone(), payments.len() - 1),
            // No miss: a provider that does not know the filter gives just any payments.
            [] => Found::Unclear(format!(
                "{} payments came back, none of them with our order id",
                payments.len()
            )),
            several => Found::Unclear(format!(
                "{} payments were found where there must be one",
                several.len()
            )),
        }
    }
}

fn miss_status(name: &str, given: Option<&[u16]>, in_path: bool) -> Result<Vec<u16>> {
    let given = given.unwrap_or(if in_path { &[404] } else { &[] });
    for code in given {
        let about_us = matches!(code, 401 | 403 | 407 | 408 | 429);
        if about_us || !(*code == 204 || (400..=499).contains(code)) {
            return Err(wrong(
                name,
                "miss_status",
                format!("has {code}, which does not say that there is no payment"),
            ));
        }
    }
    Ok(given.to_vec())
}
