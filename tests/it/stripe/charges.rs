//! Charges of stripe-stateful-mock, whose idempotency keys work: one key, one charge.

use std::sync::Arc;

use idemctl::key::KeyId;
use idemctl::provider::{Provider, Verdict};
use idemctl::provider_key::derive;

use super::api::{Answer, Api};
use super::{adapter, ask, checked, query, reason};
use crate::support::stateful_mock;

async fn server() -> (Api, Arc<dyn Provider>) {
    let port = stateful_mock().await.port;
    (Api { port }, adapter(port, "object = \"charge\""))
}

/// Charges an order as a service does, with the key that the library derives.
async fn charge(api: Api, order: &str, amount: &str, more: &[(&str, &str)]) -> Answer {
    let form = [
        ("amount", amount),
        ("currency", "eur"),
        ("metadata[order_id]", order),
    ];
    let source = [("source", "tok_visa")];
    let source = if more.iter().any(|(name, _)| *name == "source") {
        &[][..]
    } else {
        &source[..]
    };
    let key = derive(&KeyId::new("shop-1", order).unwrap(), Some("POST /payments"));
    let header = format!("idempotency-key: {key}\r\n");
    api.post("/v1/charges", &[&form, source, more].concat(), &header)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_attempts_under_our_key_are_one_charge() {
    let (api, adapter) = server().await;
    let first = charge(api, "twice", "4990", &[]).await;
    let second = charge(api, "twice", "4990", &[]).await;
    assert!(second.head.contains("idempotent-replayed: true"), "{second:?}");
    assert_eq!(first.status, 200);
    assert_eq!(first.body, second.body);
    let ledger = api.get("/v1/charges?limit=100").await.ok();
    let ours = ledger["data"].as_array().unwrap().iter();
    let ours = ours.filter(|charge| charge["metadata"]["order_id"] == "twice");
    assert_eq!(ours.count(), 1);
    let status = ask(&adapter, "twice").await;
    assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
    assert_eq!(status.reference.as_deref(), first.body["id"].as_str());
    assert_eq!(status.amount.as_ref().map(|amount| amount.get()), Some("4990"));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_parameters_under_one_key_are_refused_and_charge_nothing() {
    let (api, adapter) = server().await;
    charge(api, "changed", "4990", &[]).await.ok();
    let other = charge(api, "changed", "5990", &[]).await;
    assert_eq!(
        (other.status, &other.body["error"]["type"]),
        (400, &"idempotency_error".into())
    );
    let status = ask(&adapter, "changed").await;
    assert_eq!(status.verdict, Verdict::Charged, "one charge, not two");
    assert_eq!(status.amount.as_ref().map(|amount| amount.get()), Some("4990"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_has_its_verdict() {
    let (api, adapter) = server().await;
    let held = charge(api, "held", "4990", &[("capture", "false")]).await.ok();
    assert_eq!(ask(&adapter, "held").await.verdict, Verdict::Authorized);
    let path = format!("/v1/charges/{}/capture", held["id"].as_str().unwrap());
    // Without a body, this server thinks that a parameter is there.
    api.post(&path, &[("expand[]", "refunds")], "").await.ok();
    assert_eq!(ask(&adapter, "held").await.verdict, Verdict::Charged);
    let refund = [("charge", held["id"].as_str().unwrap())];
    api.post("/v1/refunds", &refund, "").await.ok();
    assert_eq!(ask(&adapter, "held").await.verdict, Verdict::Charged, "it was");

    let declined = charge(api, "declined", "4990", &[("source", "tok_chargeDeclined")]).await;
    assert_eq!(declined.status, 402);
    let status = ask(&adapter, "declined").await;
    assert_eq!(
        (status.verdict, status.raw_status.as_deref()),
        (Verdict::NotCharged, Some("failed"))
    );
    // The decline is kept under the key and comes again.
    let again = charge(api, "declined", "4990", &[("source", "tok_chargeDeclined")]).await;
    assert!(again.head.contains("idempotent-replayed: true"), "{again:?}");
    assert_eq!(again.body, declined.body);

    let failed = charge(api, "broken", "4990", &[("source", "tok_500")]).await;
    assert_eq!(failed.status, 500);
    let status = checked(adapter.status(&query("broken", 5, 5)).await);
    assert!(reason(&status).contains("proves nothing until"), "{status:?}");
    assert_eq!(ask(&adapter, "broken").await.verdict, Verdict::NotCharged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_by_its_own_id_and_one_of_nobody() {
    let (api, adapter) = server().await;
    let made = charge(api, "by-id", "4990", &[]).await.ok();
    let id = made["id"].as_str().unwrap();
    let status = checked(adapter.status(&idemctl::provider::StatusQuery::new(id)).await);
    assert_eq!(
        (status.verdict, status.reference.as_deref()),
        (Verdict::Charged, Some(id))
    );
    let status = ask(&adapter, "ch_3MtwBwLkdIwHu7ix28a3tqPa").await;
    assert!(reason(&status).contains("another account"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_page_and_a_connected_account() {
    let (api, main) = server().await;
    let account = api.post("/v1/accounts", &[("type", "custom")], "").await.ok();
    let account = account["id"].as_str().unwrap();
    let header = format!("stripe-account: {account}\r\n");
    for i in 0..120 {
        let order = format!("connected-{i}");
        let form = [
            ("amount", "100"),
            ("currency", "usd"),
            ("source", "tok_visa"),
            ("metadata[order_id]", order.as_str()),
        ];
        api.post("/v1/charges", &form, &header).await.ok();
    }
    let connected = adapter(api.port, &format!("object = \"charge\"\naccount = {account:?}"));
    for order in ["connected-0", "connected-60", "connected-119"] {
        assert_eq!(ask(&connected, order).await.verdict, Verdict::Charged, "{order}");
        assert_eq!(
            ask(&main, order).await.verdict,
            Verdict::NotCharged,
            "another account"
        );
    }
    let status = ask(&connected, "connected-120").await;
    assert!(
        status
            .evidence
            .contains("0 of 120 objects on 2 pages; the key is one of test mode"),
        "{}",
        status.evidence
    );
    assert_eq!(status.verdict, Verdict::NotCharged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_or_account_proves_nothing() {
    let port = stateful_mock().await.port;
    for (more, said) in [
        ("secret = \"sk_live_wrong\"", "refused our credentials, HTTP 401"),
        ("account = \"acct_nobody\"", "HTTP 40"),
    ] {
        let adapter = adapter(port, &format!("object = \"charge\"\n{more}"));
        let status = ask(&adapter, "whatever").await;
        assert!(reason(&status).contains(said), "{status:?}");
    }
}
