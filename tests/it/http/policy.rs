//! What clients get, and which answers are stored.

use super::{fixture, layer, service};
use crate::protocol::{Table, open};
use std::sync::Arc;

const PAY: &str = r#"{"amount": 4990, "currency": "EUR"}"#;

/// The story that the articles tell.
#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_a_retry_another_amount_another_client() {
    let (_table, service) = fixture().await;
    let slow = r#"{"amount": 4990, "do": "wait"}"#;
    let first = service.post("shop-1", Some("order-1"), slow);
    let second = async {
        service.begun().await;
        let busy = service.post("shop-1", Some("\"order-1\""), slow).await;
        service.work.gate.add_permits(1);
        busy
    };
    let (first, second) = tokio::join!(first, second);
    assert_eq!((first.status, first.replayed), (201, false));
    assert_eq!((second.status, second.problem.as_str()), (409, "in-progress"));
    let wait: u64 = second.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=7).contains(&wait));
    assert_eq!(second.header("content-type"), Some("application/problem+json"));

    // Another order of members is the same request.
    let again = service
        .post("shop-1", Some("order-1"), r#"{"do":"wait","amount":4990}"#)
        .await;
    assert_eq!(
        (again.status, again.replayed, &again.body),
        (201, true, &first.body)
    );
    assert_eq!(again.header("location"), Some("/payments/1"));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    let expires = again.header("idempotency-expires").unwrap();
    assert!(expires.ends_with(" GMT"), "{expires}");
    assert_eq!(first.header("idempotency-retention"), Some("86400"));

    let other = service
        .post("shop-1", Some("order-1"), r#"{"amount": 1, "do": "wait"}"#)
        .await;
    assert_eq!((other.status, other.problem.as_str()), (422, "mismatch"));
    let other = service.post_to("/refunds", "shop-1", Some("order-1"), slow).await;
    assert_eq!((other.status, other.problem.as_str()), (422, "mismatch"));
    let theirs = service.post("shop-2", Some("order-1"), PAY).await;
    assert_eq!((theirs.status, theirs.replayed), (201, false));
    assert_eq!(service.runs(), 2, "two charges for two operations");
}

#[tokio::test(flavor = "multi_thread")]
async fn definite_answers_are_stored_and_others_are_not() {
    let (table, service) = fixture().await;
    for (what, status, again, runs, stored) in [
        ("charge", 201, 201, 1, "done 201"),
        ("decline", 402, 402, 1, "done 402"),
        ("refuse", 400, 400, 2, ""),
        ("fail-early", 500, 500, 2, ""),
        ("fail", 502, 502, 2, "in_progress"),
        ("renew-and-fail", 502, 502, 2, "in_progress"),
        ("gave-up", 408, 408, 2, "in_progress"),
        ("panic", 503, 503, 2, "in_progress"),
        ("large", 500, 500, 1, "done 500"),
    ] {
        let before = service.runs();
        let body = format!(r#"{{"do": "{what}"}}"#);
        let first = service.post("shop-1", Some(what), &body).await;
        assert_eq!(first.status, status, "{what}: {first:?}");
        let second = service.post("shop-1", Some(what), &body).await;
        assert_eq!(second.status, again, "{what}");
        assert_eq!(service.runs() - before, runs, "{what}");
        assert_eq!(second.replayed, runs == 1, "{what}");
        if runs == 1 {
            assert_eq!(first.body, second.body, "{what}");
        }
        let query = "select concat_ws(' ', status, status_code) from idempotency where key = $1";
        let row = table.db.client.query_opt(query, &[&what]).await.unwrap();
        let row = row.map(|row| row.get::<_, String>(0)).unwrap_or_default();
        assert_eq!(row, stored, "{what}");
    }
    // Unknown outcomes run again under the same provider key, as attempts of one operation.
    let attempts = "select attempt, last_error from idempotency where key = 'fail'";
    let row = table.db.client.query_one(attempts, &[]).await.unwrap();
    assert_eq!(
        (row.get::<_, i32>(0), row.get::<_, &str>(1)),
        (2, "the handler answered 502")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_key_never_reaches_the_handler() {
    let (_table, service) = fixture().await;
    for (client, key, body, status, problem) in [
        ("shop-1", None, PAY, 400, "key-missing"),
        ("shop-1", Some(""), PAY, 400, "key-invalid"),
        ("shop-1", Some("\"open"), PAY, 400, "key-invalid"),
        ("shop-1", Some("k"), "{", 400, "body-invalid"),
        ("shop-1", Some("k"), r#"{"a":1,"a":2}"#, 400, "body-invalid"),
        ("", Some("k"), PAY, 401, "client-unknown"),
    ] {
        let got = service.post(client, key, body).await;
        assert_eq!(
            (got.status, got.problem.as_str()),
            (status, problem),
            "{key:?} {body}"
        );
    }
    let large = format!(
        r#"{{"a":"{}"}}"#,
        "x".repeat(idemctl::http::DEFAULT_MAX_REQUEST_BYTES)
    );
    let got = service.post("shop-1", Some("k"), &large).await;
    assert_eq!((got.status, got.problem.as_str()), (413, "body-too-large"));
    let long = "k".repeat(256);
    let got = service.post("shop-1", Some(&long), PAY).await;
    assert_eq!(got.status, 400);
    assert_eq!(service.runs(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_optional_key_and_chosen_fields() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let keys = open(&connection).await;
    let layer = layer(keys, connection)
        .requirement(idemctl::http::Requirement::Optional)
        .fields(idemctl::fingerprint::Fields::new(["/amount"]).unwrap())
        .provider("acme")
        .unwrap()
        .order_id(|_, id| idemctl::provider_key::derive(id, Some("POST /payments")));
    let service = service(layer).await;
    for _ in 0..2 {
        assert_eq!(service.post("shop-1", None, PAY).await.status, 201);
    }
    assert_eq!(service.runs(), 2, "without a key there is no protection");
    let first = service
        .post("shop-1", Some("k"), r#"{"amount": 1, "at": "10:00"}"#)
        .await;
    let again = service
        .post("shop-1", Some("k"), r#"{"at": "10:01", "amount": 1}"#)
        .await;
    assert_eq!((again.replayed, &again.body), (true, &first.body));
    let query = "select concat_ws(' ', operation, provider, order_id) from idempotency";
    let row: String = table.db.client.query_one(query, &[]).await.unwrap().get(0);
    let id = idemctl::key::KeyId::new("shop-1", "k").unwrap();
    let order = idemctl::provider_key::derive(&id, Some("POST /payments"));
    assert_eq!(row, format!("POST /payments acme {order}"));
}
