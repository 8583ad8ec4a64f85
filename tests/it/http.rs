//! The tower layer under axum, over real sockets: what clients get, and what is stored.

mod claims;
mod policy;
mod trouble;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idemctl::error::Error;
use idemctl::http::{Attempt, Connections, IdempotencyLayer};
use idemctl::protocol::Idempotency;
use tokio::sync::Semaphore;
use tokio_postgres::Client;

use crate::protocol::{Table, open};

/// What the handler counts and waits for.
#[derive(Debug)]
struct Work {
    runs: AtomicUsize,
    begun: Semaphore,
    gate: Semaphore,
}

/// A running service with its own connections.
struct Service {
    url: String,
    work: Arc<Work>,
}

type Connect = std::pin::Pin<Box<dyn Future<Output = idemctl::error::Result<Arc<Client>>> + Send>>;
type Layer = IdempotencyLayer<Box<dyn Fn() -> Connect + Send + Sync>>;

/// The client is whatever the header `client` says.
fn client(parts: &Parts) -> Option<String> {
    let value = parts.headers.get("client")?;
    Some(value.to_str().ok()?.to_owned())
}

fn layer(keys: Idempotency, connection: Arc<Client>) -> Layer {
    layer_of(keys, move || Ok(Arc::clone(&connection)))
}

fn layer_of(
    keys: Idempotency,
    connect: impl Fn() -> idemctl::error::Result<Arc<Client>> + Send + Sync + 'static,
) -> Layer {
    let connect: Box<dyn Fn() -> Connect + Send + Sync> = Box::new(move || {
        let connection = connect();
        Box::pin(async move { connection })
    });
    IdempotencyLayer::new(keys, connect, client)
}

async fn service<P: Connections>(layer: IdempotencyLayer<P>) -> Service {
    let work = Arc::new(Work {
        runs: AtomicUsize::new(0),
        begun: Semaphore::new(0),
        gate: Semaphore::new(0),
    });
    let router = Router::new()
        .route("/payments", post(pay))
        .route("/refunds", post(pay))
        .layer(layer)
        .with_state(Arc::clone(&work));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    Service { url, work }
}

/// Does what the body's member `do` says.
async fn pay(State(work): State<Arc<Work>>, attempt: Option<Extension<Attempt>>, body: Bytes) -> Response {
    let run = work.runs.fetch_add(1, Ordering::SeqCst) + 1;
    let json: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let what = json["do"].as_str().unwrap_or("charge");
    let key = attempt
        .as_ref()
        .map(|attempt| attempt.number())
        .unwrap_or_default();
    if what == "refuse" {
        return (axum::http::StatusCode::BAD_REQUEST, "no").into_response();
    }
    if what == "fail-early" {
        return (axum::http::StatusCode::INTERNAL_SERVER_ERROR, "early").into_response();
    }
    if what == "renew-and-fail" {
        // A provider without keys: nothing but the renewal says that the work begins.
        attempt.unwrap().renew().await.unwrap();
        return (axum::http::StatusCode::BAD_GATEWAY, "late").into_response();
    }
    if let Some(Extension(attempt)) = &attempt {
        assert!(!attempt.provider_key().is_empty());
    }
    work.begun.add_permits(1);
    match what {
        "wait" => work.gate.acquire().await.unwrap().forget(),
        "keep" => {
            attempt.unwrap().keep_alive();
            work.gate.acquire().await.unwrap().forget();
        }
        "renew" => {
            work.gate.acquire().await.unwrap().forget();
            if let Err(error) = attempt.unwrap().renew().await {
                return (axum::http::StatusCode::BAD_GATEWAY, error.to_string()).into_response();
            }
        }
        "decline" => return (axum::http::StatusCode::PAYMENT_REQUIRED, "declined").into_response(),
        "gave-up" => return (axum::http::StatusCode::REQUEST_TIMEOUT, "slow").into_response(),
        "leave-behind" => {
            let (attempt, left) = (attempt.clone().unwrap(), Arc::clone(&work));
            tokio::spawn(async move {
                left.gate.acquire().await.unwrap().forget();
                let refused = attempt.renew().await.is_err();
                left.begun.add_permits(if refused { 7 } else { 1_000 });
            });
            return (axum::http::StatusCode::GATEWAY_TIMEOUT, "late").into_response();
        }
        "fail" => return (axum::http::StatusCode::BAD_GATEWAY, "late").into_response(),
        "panic" => panic!("as asked"),
        "large" => return "x".repeat(2 * 1024 * 1024).into_response(),
        _ => {}
    }
    let body = format!("{{\"charge_id\": {run},  \"attempt\": {key}}}");
    (
        axum::http::StatusCode::CREATED,
        [("content-type", "application/json"), ("location", "/payments/1")],
        body,
    )
        .into_response()
}

/// What a client got.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    status: u16,
    body: String,
    /// `true` where the header says that it was stored before.
    replayed: bool,
    /// The last part of the problem's type.
    problem: String,
    headers: Vec<(String, String)>,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Service {
    async fn post(&self, client: &str, key: Option<&str>, body: &str) -> Got {
        self.post_to("/payments", client, key, body).await
    }

    async fn post_to(&self, path: &str, client: &str, key: Option<&str>, body: &str) -> Got {
        // The client wants one even for plain http; a second installation changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut request = reqwest::Client::builder()
            .no_proxy()
            .build()
            .unwrap()
            .post(format!("{}{path}", self.url))
            .header("client", client)
            .header("content-type", "application/json")
            .body(body.to_owned());
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let headers: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let body = response.text().await.unwrap();
        let json: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let kind = json["type"].as_str().unwrap_or_default();
        let replayed = headers
            .iter()
            .any(|(name, value)| name == "idempotent-replayed" && value == "true");
        Got {
            status,
            problem: kind.rsplit(':').next().unwrap_or_default().to_owned(),
            replayed,
            body,
            headers,
        }
    }

    fn runs(&self) -> usize {
        self.work.runs.load(Ordering::SeqCst)
    }

    async fn begun(&self) {
        self.work.begun.acquire().await.unwrap().forget();
    }
}

/// A table and a service on it.
async fn fixture() -> (Table, Service) {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let keys = open(&connection).await;
    let service = service(layer(keys, connection).retention(Duration::from_hours(24))).await;
    (table, service)
}

/// An error that says that there is no connection.
fn unreachable() -> Error {
    Error::Unreachable {
        what: "the test says so".to_owned(),
    }
}
