//! One question over HTTP: within a deadline, tried again where that can help, never redirected, never too big.

use std::error::Error as StdError;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use base64::Engine as _;
use chrono::{DateTime, Utc};
use reqwest::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName};
use reqwest::{Client, StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use super::Surroundings;
use super::clock::{date, retry_after};
use super::config::{ProviderConfig, wrong};
use super::secret::HeaderValue;
use crate::error::{Result, chain};

/// Longest body that is read: 1 MiB, what the JSON reader takes.
const MAX_BODY_BYTES: usize = crate::fingerprint::MAX_BYTES;

/// How often a question is put at most.
const MAX_ATTEMPTS: usize = 5;

/// Headers that belong to the transport, and must not be set in the configuration.
const TRANSPORT_HEADERS: [&str; 6] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "transfer-encoding",
    "upgrade",
];

/// A client for one provider.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: Client,
    headers: Vec<(HeaderName, HeaderValue)>,
    credentials: Option<Credentials>,
    timeout: Duration,
    surroundings: Surroundings,
}

/// What proves to a vendor who asks. The secret is read at each attempt, so that a rotated one works at once.
#[derive(Debug)]
pub(super) enum Credentials {
    /// `Authorization: Bearer SECRET` (RFC 6750 section 2.1).
    Bearer(HeaderValue),
    /// `Authorization: Basic` (RFC 7617).
    Basic {
        /// The user: no secret.
        account: String,
        /// The password.
        secret: HeaderValue,
    },
}

/// One question. It changes nothing at the provider, so that it may be put again, as a POST too.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) url: Url,
    /// JSON to be sent with POST; without it the question is a GET.
    pub(super) body: Option<String>,
}

impl Request {
    pub(super) fn get(url: Url) -> Self {
        Self { url, body: None }
    }

    /// A question that is put with POST, as GraphQL is.
    pub(super) fn post(url: Url, body: String) -> Self {
        Self {
            url,
            body: Some(body),
        }
    }
}

/// An answer that can be judged: neither a redirect, nor about credentials, nor about load.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// Whether it calls itself HTML: the page of a gateway, not the API's answer.
    pub(super) html: bool,
    /// When it was given, by the provider's own clock (RFC 9110 section 6.6.1).
    pub(super) date: Option<DateTime<Utc>>,
    pub(super) body: Vec<u8>,
}

/// Why there is no answer that can be judged.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) reason: String,
    /// How long the provider asked to wait.
    pub(super) not_before: Option<Duration>,
}

enum Attempt {
    Done(Answer),
    /// May be otherwise the next time.
    Again(Trouble),
    /// Will not be otherwise.
    Stop(Trouble),
}

impl From<String> for Trouble {
    fn from(reason: String) -> Self {
        Self {
            reason,
            not_before: None,
        }
    }
}

impl Fetcher {
    /// Prepares the client. Reads the certificates, but no secrets yet.
    pub(super) fn new(
        name: &str,
        config: &ProviderConfig,
        surroundings: &Surroundings,
        https: bool,
    ) -> Result<Self> {
        let timeout = config.checked_timeout(name)?;
        let mut headers = Vec::new();
        for (header, value) in &config.headers {
            let parsed = HeaderName::from_bytes(header.as_bytes());
            let parsed = parsed.map_err(|_| {
                wrong(
                    name,
                    "headers",
                    format!("has {header:?}, which is no header name"),
                )
            })?;
            if TRANSPORT_HEADERS.contains(&parsed.as_str()) {
                return Err(wrong(
                    name,
                    "headers",
                    format!("has {parsed}, which is not for you to set"),
                ));
            }
            if headers.iter().any(|(other, _)| *other == parsed) {
                return Err(wrong(name, "headers", format!("has {parsed} twice")));
            }
            headers.push((parsed, value.clone()));
        }
        let mut builder = Client::builder()
            // Only what the caller gives, never the process's own variables.
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            // Half of the time, so that one address that swallows packets leaves time for another attempt.
            .connect_timeout(timeout / 2)
            .user_agent(concat!("idemctl/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(super::tls::client(name, config.ca_file.as_deref(), https)?);
        for proxy in surroundings.proxy.for_provider(name, config.proxy.as_ref())? {
            builder = builder.proxy(proxy);
        }
        let client = builder
            .build()
            .map_err(|error| wrong(name, "url", format!("cannot be used: {}", chain(&error))))?;
        Ok(Self {
            client,
            headers,
            credentials: None,
            timeout,
            surroundings: surroundings.clone(),
        })
    }

    /// The same with credentials that the adapter makes a header of.
    pub(super) fn with_credentials(self, credentials: Credentials) -> Self {
        Self {
            credentials: Some(credentials),
            ..self
        }
    }

    /// The same with one more header, which is no secret.
    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers
            .push((HeaderName::from_static(name), HeaderValue::plain(value)));
        self
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// When a question that begins now has to be over, however many requests it takes.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Puts the question, and again after a growing, random wait or the one that the provider asks for
    /// (RFC 9110 section 10.2.3), as long as the deadline permits.
    pub(super) async fn ask(&self, request: &Request, deadline: Instant) -> Result<Answer, Trouble> {
        let mut waits = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .with_max_times(MAX_ATTEMPTS - 1)
            .with_jitter()
            .build();
        let mut last: Option<Trouble> = None;
        loop {
            let Ok(attempt) = timeout_at(deadline, self.once(request)).await else {
                return Err(self.too_late(last));
            };
            let trouble = match attempt {
                Attempt::Done(answer) => return Ok(answer),
                Attempt::Stop(trouble) => return Err(trouble),
                Attempt::Again(trouble) => trouble,
            };
            let Some(wait) = waits.next() else {
                return Err(trouble);
            };
            let wait = trouble.not_before.unwrap_or_default().max(wait);
            if Instant::now() + wait >= deadline {
                return Err(trouble);
            }
            tokio::time::sleep(wait).await;
            last = Some(trouble);
        }
    }

    fn too_late(&self, last: Option<Trouble>) -> Trouble {
        let within = crate::duration::format(self.timeout);
        match last {
            None => Trouble::from(format!("no answer within {within}")),
            Some(Trouble { reason, not_before }) => Trouble {
                reason: format!("no answer within {within}; before that: {reason}"),
                not_before,
            },
        }
    }

    async fn once(&self, request: &Request) -> Attempt {
        let mut headers = HeaderMap::new();
        headers.insert(
            ACCEPT,
            reqwest::header::HeaderValue::from_static("application/json"),
        );
        // What a cache on the way had before the payment was made is no answer (RFC 9111 section 5.2.1.4).
        headers.insert(
            CACHE_CONTROL,
            reqwest::header::HeaderValue::from_static("no-cache"),
        );
        for (name, value) in &self.headers {
            // At each attempt, so that a rotated secret works at once.
            match value.read(&self.surroundings).await {
                Ok(value) => drop(headers.insert(name.clone(), value)),
                Err(problem) => {
                    return Attempt::Stop(format!("the header {name} cannot be made: {problem}").into());
                }
            }
        }
        match self.authorization().await {
            Ok(Some(value)) => drop(headers.insert(AUTHORIZATION, value)),
            Ok(None) => {}
            Err(problem) => return Attempt::Stop(problem.into()),
        }
        let builder = match &request.body {
            None => self.client.get(request.url.clone()),
            Some(body) => self
                .client
                .post(request.url.clone())
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone()),
        };
        match builder.headers(headers).send().await {
            Ok(response) => receive(response).await,
            Err(error) => lost(error),
        }
    }
}

impl Fetcher {
    /// The header that the credentials make.
    async fn authorization(&self) -> Result<Option<reqwest::header::HeaderValue>, String> {
        let (text, problem) = match &self.credentials {
            None => return Ok(None),
            Some(Credentials::Bearer(secret)) => {
                let secret = secret.text(&self.surroundings).await;
                let secret = secret.map_err(|problem| format!("the secret cannot be had: {problem}"))?;
                (
                    format!("Bearer {secret}"),
                    "the secret has characters that no header may have",
                )
            }
            Some(Credentials::Basic { account, secret }) => {
                let secret = secret.text(&self.surroundings).await;
                let secret = secret.map_err(|problem| format!("the secret cannot be had: {problem}"))?;
                let pair = base64::engine::general_purpose::STANDARD.encode(format!("{account}:{secret}"));
                (
                    format!("Basic {pair}"),
                    "no header can be made of the account and the secret",
                )
            }
        };
        let mut value = reqwest::header::HeaderValue::from_str(&text).map_err(|_| problem.to_owned())?;
        value.set_sensitive(true);
        Ok(Some(value))
    }
}

async fn receive(mut response: reqwest::Response) -> Attempt {
    let status = response.status();
    let trouble = |reason: String| Trouble {
        reason,
        not_before: retry_after(response.headers()),
    };
    match status.as_u16() {
        408 | 429 | 500..=599 => {
            return Attempt::Again(trouble(format!("the provider answered HTTP {}", status.as_u16())));
        }
        300..=399 => {
            return Attempt::Stop(trouble(format!(
                "the provider answered with a redirect, HTTP {}, which is not followed",
                status.as_u16()
            )));
        }
        401 | 403 | 407 => {
            return Attempt::Stop(trouble(format!(
                "the provider refused our credentials, HTTP {}",
                status.as_u16()
            )));
        }
        _ => {}
    }
    let html = response.headers().get(CONTENT_TYPE).is_some_and(|value| {
        let kind = value.to_str().unwrap_or_default().to_ascii_lowercase();
        kind.starts_with("text/html") || kind.starts_with("application/xhtml")
    });
    let date = date(response.headers());
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_BODY_BYTES => {
                return Attempt::Stop(format!("the answer is longer than {MAX_BODY_BYTES} bytes").into());
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => {
                return Attempt::Done(Answer {
                    status,
                    html,
                    date,
                    body,
                });
            }
            Err(error) => return lost(error),
        }
    }
}

/// No answer, or not all of it. The address is left out, since its query may hold a secret.
fn lost(error: reqwest::Error) -> Attempt {
    let error = error.without_url();
    let trouble = Trouble::from(format!("the provider cannot be reached: {}", chain(&error)));
    if is_tls(&error) {
        Attempt::Stop(trouble)
    } else {
        Attempt::Again(trouble)
    }
}

/// A certificate that is not trusted will not be trusted in a second.
fn is_tls(error: &(dyn StdError + 'static)) -> bool {
    // An `io::Error` names as its source the source of what it wraps, so that what it wraps is asked for first.
    let wrapped = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref);
    error.is::<rustls::Error>()
        || wrapped.is_some_and(|inner| is_tls(inner))
        || error.source().is_some_and(is_tls)
}
