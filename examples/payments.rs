//! A payment service: `POST /payments` under the tower layer, charging a provider over HTTP (`examples/provider.rs`).
//!
//! What it shows: claim before money moves; the same key to the provider at every attempt; a definite answer is
//! stored, an unknown outcome is not; a provider without keys is asked before it is told again (`--look-up`), and
//! only a record that says that this very payment succeeded counts; and what the mistake costs that everybody makes
//! once (`--mistake fresh-keys`).

#![expect(clippy::print_stdout, reason = "the address goes to standard output")]

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use clap::{Parser, ValueEnum};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use idemctl::error::Error;
use idemctl::fingerprint::Fields;
use idemctl::http::{Attempt, Connections, IdempotencyLayer};
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, describe_metrics};
use idemctl::provider_key;
use idemctl::store::Pooled;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::NoTls;

/// Upper bounds of the histograms, in seconds.
const BUCKETS: [f64; 9] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0];

/// What a key is for; the order id depends on it, so it never changes.
const OPERATION: &str = "POST /payments";

/// A payment service for trials.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on; port 0 takes any
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The database that `idemctl migrate` was run on
    #[arg(long, env = "IDEMCTL_DATABASE_URL")]
    database_url: String,
    /// Schema of the table, where it is not on the search path
    #[arg(long)]
    schema: Option<String>,
    /// The provider's base address
    #[arg(long, default_value = "http://127.0.0.1:9080")]
    provider: String,
    /// How long a request may take before a retry takes over, in milliseconds; longer than every timeout below
    #[arg(long, default_value_t = 10_000)]
    lease: u64,
    /// How long the provider may take to answer, in milliseconds
    #[arg(long, default_value_t = 3_000)]
    provider_timeout: u64,
    /// Connections to the database
    #[arg(long, default_value_t = 8)]
    pool: usize,
    /// For a provider without idempotency keys: ask it by our order id before a repeat
    #[arg(long)]
    look_up: bool,
    /// With --look-up: how long after an attempt the provider may still come to show its charge, in milliseconds
    #[arg(long, default_value_t = 5_000)]
    lag: u64,
    /// Ask the database once for equal requests that come in the same moment
    #[arg(long)]
    single_flight: bool,
    /// Does it wrong, to see what happens
    #[arg(long, value_enum)]
    mistake: Option<Mistake>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mistake {
    /// Another idempotency key to the provider at each attempt
    FreshKeys,
    /// Charges although somebody else is at work: a lease is taken for good advice
    IgnoreLeases,
}

/// What clients send. Its amount, currency and card define the operation; a note may differ in a repeat.
#[derive(Debug, Deserialize)]
struct Payment {
    amount: u64,
    currency: String,
    #[serde(default)]
    card: String,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone)]
struct Provider {
    http: reqwest::Client,
    base: String,
    look_up: bool,
    lag: Duration,
    mistake: Option<Mistake>,
}

impl Payment {
    /// What the provider's records of our order prove. A failed or pending attempt, another amount, a second record:
    /// none of them says that this payment was made, and none that it was not. People or `idemctl reconcile` decide.
    fn judge(&self, order_id: &str, mut records: Vec<Value>) -> Charged {
        let paid = |record: &Value| {
            record["order_id"] == order_id
                && record["status"] == "succeeded"
                && record["amount"] == self.amount
                && record["currency"] == self.currency.as_str()
        };
        match records.pop() {
            Some(record) if records.is_empty() && paid(&record) => Charged::Yes(record),
            _ => Charged::Unknown("the provider's records do not show exactly this payment".to_owned()),
        }
    }
}

/// What the provider answers a look-up with.
#[derive(Debug, Deserialize)]
struct Found {
    data: Vec<Value>,
}

/// What is known after the provider was told to charge.
#[derive(Debug)]
enum Charged {
    Yes(Value),
    Declined,
    /// It may have, or not.
    Unknown(String),
}

impl Provider {
    async fn charge(&self, attempt: &Attempt, payment: &Payment) -> Charged {
        let order_id = attempt.order_id();
        // Asking for the key begins the work: from here on a failure means that the outcome is unknown.
        let mut key = attempt.provider_key().to_owned();
        if self.mistake == Some(Mistake::FreshKeys) {
            key = uuid::Uuid::new_v4().to_string();
        }
        if self.look_up && attempt.number() > 1 {
            match self.recorded_before(attempt, order_id).await {
                Ok(records) if records.is_empty() => {}
                Ok(records) => return payment.judge(order_id, records),
                Err(error) => return Charged::Unknown(error.to_string()),
            }
            // The look took its time: whoever has lost the key by now must not charge.
            if let Err(error) = attempt.renew().await {
                return Charged::Unknown(error.to_string());
            }
        }
        self.tell(order_id, &key, payment).await
    }

    async fn tell(&self, order_id: &str, key: &str, payment: &Payment) -> Charged {
        let order = json!({
            "order_id": order_id,
            "amount": payment.amount,
            "currency": payment.currency,
            "card": payment.card,
        });
        let request = self.http.post(format!("{}/v1/charges", self.base));
        let sent = request.header("idempotency-key", key).json(&order).send().await;
        let response = match sent {
            Ok(response) => response,
            Err(error) => return Charged::Unknown(error.to_string()),
        };
        match response.status() {
            StatusCode::CREATED => match response.json().await {
                Ok(charge) => payment.judge(order_id, vec![charge]),
                Err(error) => Charged::Unknown(error.to_string()),
            },
            StatusCode::PAYMENT_REQUIRED => Charged::Declined,
            status => Charged::Unknown(format!("the provider answered {status}")),
        }
    }

    /// What the provider has recorded for earlier attempts. It shows a charge late, so one miss proves nothing: it
    /// is asked again when an earlier attempt's charge would have to be there.
    async fn recorded_before(&self, attempt: &Attempt, order_id: &str) -> Result<Vec<Value>, BoxError> {
        let records = self.find(order_id).await?;
        if !records.is_empty() {
            return Ok(records);
        }
        attempt.keep_alive();
        tokio::time::sleep(self.lag).await;
        self.find(order_id).await
    }

    async fn find(&self, order_id: &str) -> Result<Vec<Value>, BoxError> {
        let mut url = reqwest::Url::parse(&format!("{}/v1/charges", self.base))?;
        url.query_pairs_mut().append_pair("order_id", order_id);
        let response = self.http.get(url).send().await?.error_for_status()?;
        // An answer without the list must not be taken for an empty one.
        let Found { data } = response.json().await?;
        Ok(data)
    }
}

/// What [`Mistake::IgnoreLeases`] does around the layer: told that another request is at work, it charges itself.
async fn charge_anyway(State(provider): State<Provider>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let key = client(&parts).zip(parts.headers.get("idempotency-key").cloned());
    let Ok(body) = axum::body::to_bytes(body, 1 << 20).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let again = Request::from_parts(parts, Body::from(body.clone()));
    let response = next.run(again).await;
    let payment = serde_json::from_slice::<Payment>(&body).ok();
    let id = key.and_then(|(client, key)| KeyId::new(client, key.to_str().ok()?).ok());
    if let (StatusCode::CONFLICT, Some(payment), Some(id)) = (response.status(), payment, id) {
        let order_id = provider_key::derive(&id, Some(OPERATION));
        provider.tell(&order_id, &order_id, &payment).await;
    }
    response
}

/// The handler: everything about repeats is the layer's affair.
async fn pay(
    State(provider): State<Provider>,
    Extension(attempt): Extension<Attempt>,
    body: Bytes,
) -> Response {
    let payment: Payment = match serde_json::from_slice(&body) {
        Ok(payment) => payment,
        // Before the work began: the key is given back, and a corrected request may use it.
        Err(error) => {
            return (
                StatusCode::BAD_REQUEST,
                json!({ "error": error.to_string() }).to_string(),
            )
                .into_response();
        }
    };
    let (status, body) = match provider.charge(&attempt, &payment).await {
        Charged::Yes(charge) => {
            let answer = json!({ "charge_id": charge["id"], "amount": charge["amount"] });
            (StatusCode::CREATED, answer)
        }
        Charged::Declined => (StatusCode::PAYMENT_REQUIRED, json!({ "error": "declined" })),
        // Not stored: a repeat runs again, with the same key to the provider.
        Charged::Unknown(why) => {
            tracing::warn!(id = %attempt.id(), "outcome unknown: {why}");
            (
                StatusCode::BAD_GATEWAY,
                json!({ "error": "outcome unknown, repeat with the same key" }),
            )
        }
    };
    (status, [("content-type", "application/json")], body.to_string()).into_response()
}

type Layer = IdempotencyLayer<FromPool>;

/// Connections for the layer's statements.
#[derive(Debug, Clone)]
struct FromPool(Pool);

impl Connections for FromPool {
    type Connection = Pooled<Object>;

    async fn connection(&self) -> idemctl::error::Result<Pooled<Object>> {
        let unreachable = |error: deadpool_postgres::PoolError| Error::Unreachable {
            what: error.to_string(),
        };
        let connection = self.0.get().await.map_err(unreachable)?;
        Ok(Pooled::new(connection, |connection| connection))
    }
}

fn pool(args: &Args) -> Result<Pool, Box<dyn std::error::Error>> {
    let mut config: tokio_postgres::Config = args.database_url.parse()?;
    // A peer that vanishes without a word must not hold a request for ever.
    config.connect_timeout(Duration::from_secs(2));
    config.tcp_user_timeout(Duration::from_secs(5));
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Verified,
    };
    let wait = Some(Duration::from_secs(3));
    let timeouts = Timeouts {
        wait,
        create: wait,
        recycle: wait,
    };
    let pool = Pool::builder(Manager::from_config(config, NoTls, recycling))
        .max_size(args.pool)
        .runtime(Runtime::Tokio1)
        .timeouts(timeouts)
        .build()?;
    Ok(pool)
}

/// Who sends the request. Here a header is believed; a real service takes what its authentication found.
fn client(parts: &axum::http::request::Parts) -> Option<String> {
    Some(parts.headers.get("x-client")?.to_str().ok()?.to_owned())
}

fn router(
    args: &Args,
    keys: Idempotency,
    pool: Pool,
    metrics: PrometheusHandle,
) -> Result<(Router, Layer), Box<dyn std::error::Error>> {
    let mut layer = IdempotencyLayer::new(keys, FromPool(pool), client)
        .fields(Fields::new(["/amount", "/currency", "/card"])?)
        .lease(Duration::from_millis(args.lease))
        .provider("acme")?
        // The very id that the provider is sent. Derived, because two clients may both send `order-1`, and because the
        // two parts joined would be ambiguous and might be longer than an id may be.
        .order_id(|_, id| provider_key::derive(id, Some(OPERATION)))
        .retention(Duration::from_hours(24));
    if args.single_flight {
        layer = layer.single_flight();
    }
    let provider = Provider {
        http: reqwest::Client::builder()
            .timeout(Duration::from_millis(args.provider_timeout))
            .build()?,
        base: args.provider.clone(),
        look_up: args.look_up,
        lag: Duration::from_millis(args.lag),
        mistake: args.mistake,
    };
    reqwest::Url::parse(&provider.base)?;
    let mut payments = Router::new().route("/payments", post(pay)).layer(layer.clone());
    if args.mistake == Some(Mistake::IgnoreLeases) {
        payments = payments.layer(from_fn_with_state(provider.clone(), charge_anyway));
    }
    let payments = payments.with_state(provider);
    let router = payments.route("/metrics", get(move || async move { metrics.render() }));
    Ok((router, layer))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    // reqwest wants one chosen even for plain HTTP; an error says that there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)?
        .install_recorder()?;
    describe_metrics();
    let pool = pool(&args)?;
    let connection = FromPool(pool.clone()).connection().await?;
    let keys = Idempotency::open(&connection, args.schema.as_deref(), Options::default()).await?;
    drop(connection);
    let (router, layer) = router(&args, keys, pool, metrics)?;
    let listener = TcpListener::bind(args.listen).await?;
    let mut terminated = signal(SignalKind::terminate())?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            terminated.recv().await;
        })
        .await?;
    // The server waits for its clients. Those that have hung up left work behind that must not end half-way.
    layer.idle().await;
    Ok(())
}
