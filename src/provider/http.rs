//! The adapter for any API that answers a GET with JSON, told by the configuration what its answers mean.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::config::{DEFAULT_LAG, ProviderConfig, ResponseConfig, wrong};
use super::fetch::{Answer, Fetcher, Trouble};
use super::template::Template;
use super::url::UrlTemplate;
use super::{
    Facts, LookUp, Payment, Provider, ProviderStatus, StatusFuture, StatusQuery, Surroundings, Verdict,
};
use crate::error::{Error, Result};
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
    response: Option<(u16, Template)>,
}

/// How an answer is read.
#[derive(Debug)]
struct Reading {
    find: Pointer,
    status: Pointer,
    reference: Option<Pointer>,
    amount: Option<Pointer>,
    currency: Option<Pointer>,
    order_id: Option<Pointer>,
    verdicts: BTreeMap<String, Verdict>,
    miss_status: Vec<u16>,
    absent_is_miss: bool,
}

/// What an answer holds for an order.
enum Found {
    /// No payment; in words.
    Miss(String),
    One(Value),
    /// It cannot be told; why.
    Unclear(String),
}

impl HttpProvider {
    /// Checks the section and prepares the client.
    ///
    /// Returns [`Error::Settings`] naming the key that is absent or wrong.
    pub fn new(name: &str, config: &ProviderConfig, surroundings: &Surroundings) -> Result<Self> {
        check_name("provider", name)?;
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
            status: pointer("status", &config.status)?.ok_or_else(|| missing("status"))?,
            reference: pointer("reference", &config.reference)?,
            amount: pointer("amount", &config.amount)?,
            currency: pointer("currency", &config.currency)?,
            order_id: pointer("match", &config.order_id)?,
            verdicts: config
                .verdicts
                .as_ref()
                .ok_or_else(|| missing("verdicts"))?
                .checked(name)?,
            miss_status: miss_status(name, config.miss_status.as_deref(), url.is_in_path())?,
            absent_is_miss: config.absent_is_miss,
        };
        let response = config
            .response
            .as_ref()
            .map(|response| template(name, response))
            .transpose()?;
        Ok(Self {
            name: name.to_owned(),
            facts,
            url,
            fetcher,
            reading,
            response,
        })
    }

    async fn ask(&self, query: &StatusQuery) -> ProviderStatus {
        let asked = format!("GET {}", self.url.origin());
        if let Err(error) = check_name("order_id", &query.order_id) {
            return self.unknown(query, format!("{asked}: not sent"), error.to_string().into());
        }
        let url = match self.url.fill(&query.order_id) {
            Ok(url) => url,
            Err(problem) => return self.unknown(query, format!("{asked}: not sent"), problem.into()),
        };
        match self.fetcher.get(&url).await {
            Ok(answer) => self.judge(
                query,
                &format!("{asked}: HTTP {}", answer.status.as_u16()),
                &answer,
            ),
            Err(trouble) => ProviderStatus {
                answered: false,
                ..self.unknown(query, format!("{asked}: no answer that can be judged"), trouble)
            },
        }
    }

    fn judge(&self, query: &StatusQuery, evidence: &str, answer: &Answer) -> ProviderStatus {
        match self.reading.find(answer, &query.order_id) {
            Found::Miss(what) => self.miss(query, format!("{evidence}, {what}")),
            Found::Unclear(reason) => self.unknown(query, evidence.to_owned(), reason.into()),
            Found::One(payment) => self.payment(query, format!("{evidence}, one payment"), payment),
        }
    }

    /// Nothing was found, which proves something only when the provider has had the time to show it.
    fn miss(&self, query: &StatusQuery, evidence: String) -> ProviderStatus {
        let LookUp::Exact { lag } = self.facts.look_up else {
            return self.unknown(query, evidence, "the look-up is not exact".to_owned().into());
        };
        let Some(age) = query.attempted_at_age else {
            let reason = "no payment was found, which proves nothing while it is not known when the last attempt began";
            return self.unknown(query, evidence, reason.to_owned().into());
        };
        if age < lag {
            let reason = format!(
                "no payment was found, which proves nothing until {} after the last attempt",
                crate::duration::format(lag)
            );
            return self.unknown(
                query,
                evidence,
                Trouble {
                    reason,
                    not_before: Some(lag.saturating_sub(age)),
                },
            );
        }
        ProviderStatus::new(&self.name, &query.order_id, Verdict::NotCharged, evidence)
    }

    fn payment(&self, query: &StatusQuery, evidence: String, payment: Value) -> ProviderStatus {
        let Reading {
            status,
            reference,
            amount,
            currency,
            verdicts,
            ..
        } = &self.reading;
        let scalar = |pointer: &Option<Pointer>| pointer.as_ref()?.find(&payment)?.scalar_text();
        let raw_status = status.find(&payment).and_then(Value::scalar_text);
        let mut answer = match raw_status.as_ref().map(|raw| (raw, verdicts.get(raw))) {
            Some((_, Some(Verdict::NotCharged))) => self.not_charged(query, evidence),
            Some((_, Some(verdict))) => ProviderStatus::new(&self.name, &query.order_id, *verdict, evidence),
            Some((raw, None)) => {
                let reason = format!(
                    "the payment has the status {raw:?}, which providers.{}.verdicts does not list",
                    self.name
                );
                self.unknown(query, evidence, reason.into())
            }
            None => self.unknown(
                query,
                evidence,
                format!("the payment has no status at {:?}", status.to_string()).into(),
            ),
        };
        answer.reference = scalar(reference);
        answer.currency = scalar(currency);
        answer.amount = amount.as_ref().and_then(|pointer| exact(pointer.find(&payment)?));
        answer.raw_status = raw_status;
        answer.payment = Some(Payment(payment));
        answer
    }

    /// The payment that was found failed; but unless it is known to be of the only attempt, a later one may not
    /// be visible yet.
    fn not_charged(&self, query: &StatusQuery, evidence: String) -> ProviderStatus {
        let LookUp::Exact { lag } = self.facts.look_up else {
            return self.unknown(query, evidence, "the look-up is not exact".to_owned().into());
        };
        let settled = query.attempts == Some(1) || query.attempted_at_age.is_some_and(|age| age >= lag);
        if settled {
            return ProviderStatus::new(&self.name, &query.order_id, Verdict::NotCharged, evidence);
        }
        let trouble = Trouble {
            reason: format!(
                "an attempt failed, but unless it was the only one, a later one may not be visible until {} after it",
                crate::duration::format(lag)
            ),
            not_before: query.attempted_at_age.map(|age| lag.saturating_sub(age)),
        };
        self.unknown(query, evidence, trouble)
    }

    fn unknown(&self, query: &StatusQuery, evidence: String, trouble: Trouble) -> ProviderStatus {
        let mut status = ProviderStatus::new(&self.name, &query.order_id, Verdict::Unknown, evidence);
        status.reason = Some(trouble.reason);
        status.not_before = trouble.not_before;
        status
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
        let Some((status_code, template)) = &self.response else {
            return Ok(None);
        };
        let body = template.fill(&payment.0).map_err(|problem| Error::Local {
            what: format!("providers.{}.response cannot be filled: {problem}", self.name),
        })?;
        Response::new(*status_code, body)?
            .with_header("content-type", "application/json")
            .map(Some)
    }
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
        match self.find.find(&document) {
            None if !self.absent_is_miss => Found::Unclear(format!(
                "the answer has nothing at {at:?}: an error, or another form of answer than configured \
                 (absent_is_miss = true, if that means that there is no payment)"
            )),
            None | Some(Value::Null) => Found::Miss(format!("nothing at {at:?}")),
            Some(Value::Array(payments)) if payments.is_empty() => {
                Found::Miss(format!("no payment at {at:?}"))
            }
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
            [payment] => Found::One((*payment).clone()),
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

/// The text of a number or string, digit for digit.
fn exact(value: &Value) -> Option<Box<RawValue>> {
    matches!(value, Value::Number(_) | Value::String(_))
        .then(|| RawValue::from_string(value.compact()).ok())?
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

fn template(name: &str, response: &ResponseConfig) -> Result<(u16, Template)> {
    let ResponseConfig { status_code, body } = response;
    if !(200..=599).contains(status_code) {
        return Err(wrong(
            name,
            "response.status_code",
            format!("is {status_code}; give 200 to 599"),
        ));
    }
    let template = Template::parse(body).map_err(|problem| wrong(name, "response.body", problem))?;
    Ok((*status_code, template))
}
