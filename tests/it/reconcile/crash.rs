//! Crashes before and after the charge, at a provider without idempotency keys.

use idemctl::protocol::Reservation;

use super::provider::charge;
use super::{Fixture, fixture, result};
use crate::protocol::{acquire, open, print, replay};
use crate::support::{Spawned, connect};

const URL: &str = "TEST_URL";
const PROVIDER: &str = "TEST_PROVIDER";

fn request(key: &str) -> idemctl::protocol::Request {
    idemctl::protocol::Request::new(idemctl::key::KeyId::new("shop-1", key).unwrap(), print("pay 1"))
        .operation("POST /payments")
        .unwrap()
        .provider("acme")
        .unwrap()
        .lease(std::time::Duration::from_secs(1))
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process"]
async fn child_service() {
    let client = connect(&std::env::var(URL).unwrap()).await;
    let keys = open(&client).await;
    let _lease = acquire(&keys, &client, &request("order-1")).await;
    if let Ok(address) = std::env::var(PROVIDER) {
        charge(address.parse().unwrap(), "order-1").await;
        println!("charged, not completed");
    } else {
        println!("claimed, not charged");
    }
    std::future::pending::<()>().await;
}

async fn crash(f: &Fixture, after_the_charge: bool) {
    let address = f.provider.address.to_string();
    let mut env = vec![(URL, f.cli.db.url.as_str())];
    if after_the_charge {
        env.push((PROVIDER, address.as_str()));
    }
    let mut service = Spawned::test("reconcile::crash::child_service", &env);
    service.wait_for_line(", not ").await;
    service.kill9().await;
}

/// As if so much time had passed since the attempt.
async fn pass(f: &Fixture, time: &str) {
    f.cli
        .execute(&format!(
            "update idempotency set locked_until = least(locked_until, now()) - interval '{time}',
                                    created_at = created_at - interval '{time}'"
        ))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_charge_the_answer_is_stored_and_replayed() {
    let f = fixture().await;
    crash(&f, true).await;
    pass(&f, "1 s").await;
    let (code, json, output) = f
        .reconcile(&["shop-1", "order-1", "--yes", "--reason", "pager"])
        .await;
    assert_eq!(
        (code, result(&json).as_str()),
        (0, "completed"),
        "{}",
        output.transcript()
    );
    let keys = open(&f.cli.db.client).await;
    let response = replay(&keys, &f.cli.db.client, &request("order-1")).await;
    assert_eq!(
        (response.status_code(), response.body()),
        (201, &br#"{"amount":49.90,"charge_id":"pay_1"}"#[..])
    );
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(f.provider.ledger("order-1").len(), 1, "one charge");
    let before = f.cli.everything().await;
    let (code, json, _) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
    assert_eq!(
        (code, result(&json).as_str()),
        (0, "left"),
        "a second time there is nothing to do"
    );
    assert_eq!(f.cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_charge_the_key_is_given_back_after_the_lag_only() {
    let f = fixture().await;
    crash(&f, false).await;
    pass(&f, "1 s").await;
    let before = f.cli.everything().await;
    let (code, json, output) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
    assert_eq!(
        (code, result(&json).as_str()),
        (8, "waiting"),
        "{}",
        output.transcript()
    );
    assert_eq!(f.cli.everything().await, before);
    pass(&f, "61 s").await;
    let (code, json, output) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
    assert_eq!(
        (code, result(&json).as_str()),
        (0, "released"),
        "{}",
        output.transcript()
    );
    // The client's retry starts afresh and charges, once.
    let keys = open(&f.cli.db.client).await;
    let mut lease = acquire(&keys, &f.cli.db.client, &request("order-1")).await;
    charge(f.provider.address, "order-1").await;
    let response = idemctl::response::Response::new(201, "done").unwrap();
    lease.complete(&f.cli.db.client, &response).await.unwrap();
    assert_eq!(f.provider.ledger("order-1").len(), 1);
    let again = keys.reserve(&f.cli.db.client, &request("order-1")).await.unwrap();
    assert!(matches!(again, Reservation::Replay(_)), "{again:?}");
}
