//! The example services as real processes: the proof that nothing is charged twice, and that the same harness sees
//! it when something is.

mod consumer;
mod crash;
mod look_up;
mod readme;
mod transcript;

use serde_json::Value;

use crate::protocol::Table;
use crate::support::{Spawned, example, until};

/// Amount and currency of most payments.
const PAYMENT: &str = r#"{"amount":4990,"currency":"EUR"}"#;

/// What a client got.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Got {
    status: u16,
    replayed: bool,
    body: String,
}

/// A process of `examples/` and where it listens.
struct Server {
    process: Spawned,
    url: String,
}

impl Server {
    async fn start(name: &str, args: &[&str]) -> Self {
        let mut process = example(name, &[&["--listen", "127.0.0.1:0"], args].concat()).spawn();
        let line = process.wait_for_line("listening on ").await;
        let (_, url) = line.rsplit_once(' ').unwrap();
        let url = url.to_owned();
        Self { process, url }
    }

    /// The payment service on a table, with leases of two seconds.
    async fn payments(table: &Table, provider: &Self, args: &[&str]) -> Self {
        let fixed = ["--database-url", &table.db.url, "--provider", &provider.url];
        let times = ["--lease", "2000", "--provider-timeout", "1500"];
        Self::start("payments", &[&fixed, &times, args].concat()).await
    }
}

fn http() -> reqwest::Client {
    // The client wants one even for plain HTTP; a second installation changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// `None`: the service went away.
async fn try_pay(service: &str, client: &str, key: &str, body: &str) -> Option<Got> {
    let request = http()
        .post(format!("{service}/payments"))
        .header("x-client", client)
        .header("idempotency-key", key)
        .header("content-type", "application/json")
        .body(body.to_owned());
    let response = request.send().await.ok()?;
    let replayed = response.headers().contains_key("idempotent-replayed");
    Some(Got {
        status: response.status().as_u16(),
        replayed,
        body: response.text().await.ok()?,
    })
}

async fn pay(service: &Server, client: &str, key: &str, body: &str) -> Got {
    try_pay(&service.url, client, key, body).await.expect("an answer")
}

/// As a client does that does not give up: again while the answer is no final one.
async fn pay_until_answered(service: &Server, key: &str) -> Got {
    let mut last = None;
    until("a final answer", async || {
        let got = pay(service, "shop-1", key, PAYMENT).await;
        let is_final = !matches!(got.status, 409 | 502 | 503);
        last = Some(got);
        is_final
    })
    .await;
    last.unwrap()
}

/// Under which id the provider knows a payment.
fn order(client: &str, key: &str) -> String {
    let id = idemctl::key::KeyId::new(client, key).unwrap();
    idemctl::provider_key::derive(&id, Some("POST /payments"))
}

/// The ids of all charges that moved money for an order.
async fn charges(provider: &Server, order: &str) -> Vec<String> {
    let ledger = http()
        .get(format!("{}/v1/ledger", provider.url))
        .send()
        .await
        .unwrap();
    let ledger: Value = ledger.json().await.unwrap();
    let all = ledger["charges"].as_array().unwrap();
    let of_order = all.iter().filter(|charge| charge["order_id"] == order);
    of_order
        .map(|charge| charge["id"].as_str().unwrap().to_owned())
        .collect()
}

/// How often the provider was told to charge.
async fn calls(provider: &Server) -> usize {
    let url = format!("{}/v1/calls", provider.url);
    let calls: Value = http().get(url).send().await.unwrap().json().await.unwrap();
    calls["calls"].as_array().unwrap().len()
}

/// What goes wrong with the provider's next charges.
async fn faults(provider: &Server, names: &[&str]) {
    let request = http().post(format!("{}/v1/faults", provider.url)).json(names);
    assert!(request.send().await.unwrap().status().is_success());
}
