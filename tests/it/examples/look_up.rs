//! A provider that is asked before it is told again: only a record of this very payment, succeeded, counts as paid.

use serde_json::{Value, json};

use super::{Got, PAYMENT, Server, charges, faults, http, order, pay};
use crate::protocol::Table;
use crate::support::until;

/// A first attempt whose outcome is unknown although nothing was charged; then what stands in the provider's records
/// by other ways; then the retry.
async fn retry_over(records: &[Value]) -> (Got, Vec<String>) {
    let table = Table::new().await;
    let provider = Server::start("provider", &["--keys", "ignore", "--record-declines"]).await;
    let service = Server::payments(&table, &provider, &["--look-up", "--lag", "100"]).await;
    faults(&provider, &["500-before"]).await;
    let first = pay(&service, "shop-1", "order-1", PAYMENT).await;
    assert_eq!(first.status, 502, "{first:?}");
    for record in records {
        let url = format!("{}/v1/charges", provider.url);
        let status = http().post(url).json(record).send().await.unwrap().status();
        assert!([201, 402].contains(&status.as_u16()), "{status}");
    }
    let retry = retry(&service, PAYMENT).await;
    let charges = charges(&provider, &order("shop-1", "order-1")).await;
    (retry, charges)
}

/// The first answer of an attempt that got to run.
async fn retry(service: &Server, payment: &str) -> Got {
    let mut last = None;
    until("the key is free", async || {
        let got = pay(service, "shop-1", "order-1", payment).await;
        let ran = got.status != 409;
        last = Some(got);
        ran
    })
    .await;
    last.unwrap()
}

fn record(amount: u64, currency: &str, card: &str) -> Value {
    let order = order("shop-1", "order-1");
    json!({ "order_id": order, "amount": amount, "currency": currency, "card": card })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_record_of_this_payment_is_its_proof() {
    let (retry, charges) = retry_over(&[record(4990, "EUR", "")]).await;
    assert_eq!(retry.body, r#"{"amount":4990,"charge_id":"ch_1"}"#);
    assert_eq!((retry.status, retry.replayed), (201, false));
    assert_eq!(charges, ["ch_1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_record_lets_it_charge() {
    let (retry, charges) = retry_over(&[]).await;
    assert_eq!(retry.status, 201, "{retry:?}");
    assert_eq!(charges, ["ch_1"]);
}

/// Neither proof that it was paid nor that it was not: nothing is told, nothing is charged.
#[tokio::test(flavor = "multi_thread")]
async fn anything_else_leaves_the_outcome_unknown() {
    let paid = record(4990, "EUR", "");
    for (what, records, moved) in [
        ("failed", vec![record(4990, "EUR", "declined")], 0),
        ("another amount", vec![record(4991, "EUR", "")], 1),
        ("another currency", vec![record(4990, "USD", "")], 1),
        ("two", vec![paid.clone(), paid.clone()], 2),
        (
            "a failed one as well",
            vec![record(4990, "EUR", "declined"), paid],
            1,
        ),
    ] {
        let (retry, charges) = retry_over(&records).await;
        assert_eq!(retry.status, 502, "{what}: {retry:?}");
        assert_eq!(charges.len(), moved, "{what}");
    }
}

/// A declined card whose answer was lost: the record of the failure is not taken for a charge.
#[tokio::test(flavor = "multi_thread")]
async fn a_recorded_decline_is_no_charge() {
    let table = Table::new().await;
    let provider = Server::start("provider", &["--keys", "ignore", "--record-declines"]).await;
    let service = Server::payments(&table, &provider, &["--look-up", "--lag", "100"]).await;
    faults(&provider, &["reset-after"]).await;
    let declined = r#"{"amount":4990,"currency":"EUR","card":"declined"}"#;
    let first = pay(&service, "shop-1", "order-1", declined).await;
    assert_eq!(first.status, 502, "{first:?}");
    let again = retry(&service, declined).await;
    assert_eq!(again.status, 502, "{again:?}");
    assert_eq!(charges(&provider, &order("shop-1", "order-1")).await.len(), 0);
    let url = format!(
        "{}/v1/charges?order_id={}",
        provider.url,
        order("shop-1", "order-1")
    );
    let shown: Value = http().get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(shown["data"][0]["status"], "failed");
    assert_eq!(
        shown["data"].as_array().unwrap().len(),
        1,
        "it was not told again"
    );
}
