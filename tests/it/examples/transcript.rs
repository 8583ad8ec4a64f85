//! The story that the project began with, word for word, over real processes.

use super::{PAYMENT, Server, charges, order, pay};
use crate::protocol::Table;

#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_a_retry_another_amount_and_another_client() {
    let table = Table::new().await;
    let provider = Server::start("provider", &["--delay", "300"]).await;
    let service = Server::payments(&table, &provider, &[]).await;

    let pair = tokio::join!(
        pay(&service, "shop-1", "order-1", PAYMENT),
        pay(&service, "shop-1", "order-1", PAYMENT)
    );
    let (won, lost) = if pair.0.status == 201 {
        pair
    } else {
        (pair.1, pair.0)
    };
    assert_eq!((won.status, lost.status), (201, 409), "{won:?} {lost:?}");
    assert!(lost.body.contains("urn:idemctl:problem:in-progress"), "{lost:?}");
    assert!(!won.replayed);

    let retry = pay(&service, "shop-1", "order-1", PAYMENT).await;
    assert_eq!((retry.status, &retry.body), (201, &won.body));
    assert!(retry.replayed);

    // Another serializer and a member that does not define the operation make no other request.
    let reworded = r#"{ "note": "second try", "currency": "EUR", "amount": 4990.0 }"#;
    assert_eq!(pay(&service, "shop-1", "order-1", reworded).await, retry);

    let other = pay(&service, "shop-1", "order-1", r#"{"amount":1,"currency":"EUR"}"#).await;
    assert_eq!(other.status, 422, "{other:?}");
    assert!(other.body.contains("urn:idemctl:problem:mismatch"), "{other:?}");

    let shop_2 = pay(&service, "shop-2", "order-1", PAYMENT).await;
    assert_eq!((shop_2.status, shop_2.replayed), (201, false));
    assert_ne!(shop_2.body, won.body);

    assert_eq!(charges(&provider, &order("shop-1", "order-1")).await, ["ch_1"]);
    assert_eq!(charges(&provider, &order("shop-2", "order-1")).await, ["ch_2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_declined_card_is_final_and_a_request_that_cannot_be_read_gives_the_key_back() {
    let table = Table::new().await;
    let provider = Server::start("provider", &[]).await;
    let service = Server::payments(&table, &provider, &[]).await;
    let declined = r#"{"amount":1,"currency":"EUR","card":"declined"}"#;
    let first = pay(&service, "shop-1", "order-1", declined).await;
    assert_eq!((first.status, first.replayed), (402, false));
    let again = pay(&service, "shop-1", "order-1", declined).await;
    assert_eq!(
        (again.status, again.replayed, &again.body),
        (402, true, &first.body)
    );

    let wrong = pay(&service, "shop-1", "order-2", r#"{"amount":-1,"currency":"EUR"}"#).await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert_eq!(pay(&service, "shop-1", "order-2", PAYMENT).await.status, 201);
    assert_eq!(charges(&provider, &order("shop-1", "order-1")).await.len(), 0);
    assert_eq!(charges(&provider, &order("shop-1", "order-2")).await.len(), 1);
}

/// Wherever the boundary between client and key lies, and however long both are, each pair is a payment of its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_keys_share_an_order_id_and_the_longest_key_works() {
    let table = Table::new().await;
    let provider = Server::start("provider", &[]).await;
    let service = Server::payments(&table, &provider, &["--look-up"]).await;
    let (client, key) = ("c".repeat(255), "k".repeat(255));
    for (number, (client, key)) in [("a", "b/c"), ("a/b", "c"), (client.as_str(), key.as_str())]
        .into_iter()
        .enumerate()
    {
        let first = pay(&service, client, key, PAYMENT).await;
        assert_eq!((first.status, first.replayed), (201, false), "{first:?}");
        let again = pay(&service, client, key, PAYMENT).await;
        assert_eq!((again.replayed, &again.body), (true, &first.body));
        let charge = format!("ch_{}", number + 1);
        assert_eq!(charges(&provider, &order(client, key)).await, [charge]);
    }
    let recorded = "select count(distinct order_id) = 3 from idempotency";
    table.until(recorded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_tells_its_numbers() {
    let table = Table::new().await;
    let provider = Server::start("provider", &[]).await;
    let service = Server::payments(&table, &provider, &[]).await;
    for _ in 0..2 {
        assert_eq!(pay(&service, "shop-1", "order-1", PAYMENT).await.status, 201);
    }
    let numbers = super::http().get(format!("{}/metrics", service.url)).send().await;
    let numbers = numbers.unwrap().text().await.unwrap();
    for line in [
        r#"idemctl_reserve_total{outcome="acquired"} 1"#,
        r#"idemctl_reserve_total{outcome="replay"} 1"#,
        r#"idemctl_settle_total{action="complete",outcome="done"} 1"#,
        r#"idemctl_reserve_seconds_count{outcome="replay"} 1"#,
        "idemctl_connection_wait_seconds_count 3",
    ] {
        assert!(numbers.lines().any(|found| found == line), "{line} in\n{numbers}");
    }
    for name in [
        "idemctl_reserve_total",
        "idemctl_reserve_seconds",
        "idemctl_settle_total",
        "idemctl_connection_wait_seconds",
    ] {
        assert!(
            numbers.contains(&format!("# HELP {name} ")),
            "{name} in\n{numbers}"
        );
    }
}
