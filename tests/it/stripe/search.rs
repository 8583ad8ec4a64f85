//! The search, which the other servers lack: what it finds is confirmed, and what it does not find proves nothing.

use idemctl::provider::{StatusQuery, Verdict};

use super::vendor::{Fault, Intent, Vendor, intent};
use super::{adapter, ask, checked, query, reason};

#[tokio::test]
async fn a_hit_that_the_object_confirms_decides() {
    let vendor = Vendor::start(vec![
        intent("pi_1", "order-1", "succeeded"),
        intent("pi_2", "order-2", "succeeded"),
    ])
    .await;
    let adapter = adapter(vendor.port, "");
    // Nothing but the order id is known.
    let status = checked(adapter.status(&StatusQuery::new("order-1")).await);
    assert_eq!(
        (status.verdict, status.reference.as_deref()),
        (Verdict::Charged, Some("pi_1"))
    );
    assert!(
        status.evidence.contains("1 of 1 hits confirmed"),
        "{}",
        status.evidence
    );
    assert!(
        status.evidence.ends_with("the key is one of test mode"),
        "{}",
        status.evidence
    );
    assert_eq!(
        vendor.paths(),
        [
            "/v1/payment_intents/search",
            "/v1/payment_intents/pi_1",
            "/v1/payment_intents"
        ]
    );
    for head in vendor.heads() {
        assert!(head.contains("stripe-version: 2024-06-20\r\n"), "{head}");
        assert!(!head.contains("stripe-account"), "{head}");
    }
}

#[tokio::test]
async fn what_the_search_shows_may_be_old() {
    let stale = |status, indexed| Intent {
        indexed: Some(indexed),
        ..intent("pi_1", "order-1", status)
    };
    for (payment, verdict) in [
        (stale("succeeded", "processing"), Verdict::Charged),
        (stale("succeeded", "requires_payment_method"), Verdict::Charged),
        (stale("requires_capture", "processing"), Verdict::Authorized),
        (stale("canceled", "requires_capture"), Verdict::NotCharged),
        (stale("canceled", "succeeded"), Verdict::NotCharged),
    ] {
        let vendor = Vendor::start(vec![payment]).await;
        let status = ask(&adapter(vendor.port, ""), "order-1").await;
        assert_eq!(status.verdict, verdict, "{status:?}");
    }
}

#[tokio::test]
async fn the_search_may_show_the_order_of_before() {
    let moved = Intent {
        indexed_order: Some("order-1"),
        ..intent("pi_1", "order-2", "succeeded")
    };
    let vendor = Vendor::start(vec![moved]).await;
    let status = ask(&adapter(vendor.port, ""), "order-1").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
    let status = ask(&adapter(vendor.port, ""), "order-2").await;
    assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
}

#[tokio::test]
async fn what_the_search_does_not_show_yet_the_list_has() {
    for (status, verdict) in [
        ("succeeded", Verdict::Charged),
        ("requires_capture", Verdict::Authorized),
        ("processing", Verdict::Pending),
        ("requires_confirmation", Verdict::Pending),
        ("canceled", Verdict::NotCharged),
    ] {
        let fresh = Intent {
            indexed: None,
            age: 30,
            ..intent("pi_1", "order-1", status)
        };
        let vendor = Vendor::start(vec![fresh]).await;
        let answer = adapter(vendor.port, "lag = \"60s\"")
            .status(&query("order-1", 60, 60))
            .await;
        assert_eq!(checked(answer).verdict, verdict);
        assert_eq!(
            vendor.paths(),
            ["/v1/payment_intents/search", "/v1/payment_intents"]
        );
    }
    // A first attempt that the search has and a second that only the list has.
    let void = intent("pi_1", "order-1", "canceled");
    let paid = Intent {
        indexed: None,
        ..intent("pi_2", "order-1", "succeeded")
    };
    let vendor = Vendor::start(vec![void, paid]).await;
    let status = ask(&adapter(vendor.port, ""), "order-1").await;
    assert_eq!(
        (status.verdict, status.reference.as_deref()),
        (Verdict::Charged, Some("pi_2"))
    );
}

#[tokio::test]
async fn a_search_without_a_hit_proves_nothing() {
    let vendor = Vendor::start(vec![]).await;
    let adapter = adapter(vendor.port, "");
    // No list can be made of this.
    let status = checked(adapter.status(&StatusQuery::new("order-1")).await);
    assert!(reason(&status).contains("how far back to look"), "{status:?}");
    let status = checked(adapter.status(&query("order-1", 7200, 60)).await);
    assert!(reason(&status).contains("until 2m after"), "{status:?}");
    assert_eq!(
        ask(&adapter, "order-1").await.verdict,
        Verdict::NotCharged,
        "the list is complete"
    );
    // Neither does it when the list cannot be read.
    vendor.fault(
        "/v1/payment_intents",
        Fault::Answer(400, r#"{"error":{"type":"invalid_request_error"}}"#),
    );
    vendor.fault(
        "/v1/payment_intents/search",
        Fault::Answer(200, r#"{"object":"search_result","has_more":false,"data":[]}"#),
    );
    let status = ask(&adapter, "order-1").await;
    assert!(reason(&status).contains("HTTP 400"), "{status:?}");
}

#[tokio::test]
async fn without_the_search_the_list_decides() {
    for fault in [
        Fault::Answer(
            404,
            r#"{"error":{"type":"invalid_request_error","message":"Unrecognized request URL"}}"#,
        ),
        Fault::Answer(400, r#"{"error":{"type":"invalid_request_error"}}"#),
        Fault::Answer(403, r#"{"error":{"type":"invalid_request_error"}}"#),
        Fault::Answer(500, "oops"),
        Fault::Answer(200, "<html>"),
        Fault::Answer(200, "[]"),
        Fault::Answer(200, r#"{"has_more":false,"data":{}}"#),
        Fault::Answer(
            200,
            r#"{"has_more":false,"data":[{"metadata":{"order_id":"order-1"}}]}"#,
        ),
        Fault::Answer(301, ""),
        Fault::Close,
        Fault::Hang,
    ] {
        let vendor = Vendor::start(vec![intent("pi_1", "order-1", "succeeded")]).await;
        vendor.fault("/v1/payment_intents/search", fault);
        let adapter = adapter(vendor.port, "timeout = \"2s\"");
        let status = ask(&adapter, "order-1").await;
        assert_eq!(
            (status.verdict, status.reference.as_deref()),
            (Verdict::Charged, Some("pi_1")),
            "{status:?}"
        );
        assert_eq!(ask(&adapter, "order-2").await.verdict, Verdict::NotCharged);
    }
}

#[tokio::test]
async fn similar_orders_are_not_ours() {
    // For the search, an exact match is one that holds the words, in any case.
    let others = ["an order-1", "order-10", "an order-1 of somebody"];
    let intents = others.iter().enumerate();
    let intents = intents
        .map(|(i, order)| intent(&format!("pi_{i}"), order, "succeeded"))
        .collect();
    let vendor = Vendor::start(intents).await;
    let adapter = adapter(vendor.port, "");
    let status = ask(&adapter, "order-1").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
    let status = checked(adapter.status(&StatusQuery::new("order-1")).await);
    assert_eq!(status.verdict, Verdict::Unknown);
    let asked_for_one = |path: &String| path.contains("/pi_");
    assert!(!vendor.paths().iter().any(asked_for_one), "{:?}", vendor.paths());
    assert_eq!(ask(&adapter, "order-10").await.reference.as_deref(), Some("pi_1"));
}

#[tokio::test]
async fn no_order_id_breaks_out_of_the_query() {
    for order in [
        r#"x" OR status:"succeeded"#,
        r#"x" OR metadata["order_id"]:"victim"#,
        r#"x\" OR metadata["order_id"]:"victim"#,
        "x' OR status:'succeeded",
        r"x\",
        r"\",
        "\"",
        "x&query=victim",
        "x#y?z/../%2e%2e",
        "*",
        "null",
        "é\u{1f600}",
    ] {
        let victim = intent("pi_victim", "victim", "succeeded");
        let ours = intent("pi_ours", order, "requires_capture");
        let vendor = Vendor::start(vec![victim.clone()]).await;
        let status = ask(&adapter(vendor.port, ""), order).await;
        assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
        let vendor = Vendor::start(vec![victim, ours]).await;
        let status = ask(&adapter(vendor.port, ""), order).await;
        assert_eq!(
            (status.verdict, status.reference.as_deref()),
            (Verdict::Authorized, Some("pi_ours")),
            "{status:?}"
        );
        let searches = vendor.searches();
        if order.contains('\\') {
            assert!(
                searches.is_empty(),
                "nobody says how a backslash is read: {searches:?}"
            );
        } else {
            assert_eq!(searches.len(), 1);
            assert!(
                status.evidence.contains("1 of 1 hits confirmed"),
                "{}",
                status.evidence
            );
        }
    }
}

#[tokio::test]
async fn several_hits() {
    let vendor = Vendor::start(vec![
        intent("pi_1", "order-1", "succeeded"),
        intent("pi_2", "order-1", "succeeded"),
        intent("pi_3", "order-2", "succeeded"),
        intent("pi_4", "order-2", "canceled"),
    ])
    .await;
    let adapter = adapter(vendor.port, "");
    let status = ask(&adapter, "order-1").await;
    assert!(
        reason(&status).contains("2 payments") && reason(&status).contains("pi_2"),
        "{status:?}"
    );
    let status = ask(&adapter, "order-2").await;
    assert_eq!(
        (status.verdict, status.reference.as_deref()),
        (Verdict::Charged, Some("pi_3"))
    );
}

#[tokio::test]
async fn another_name_in_the_metadata() {
    let vendor = Vendor::start(vec![]).await;
    let adapter = adapter(vendor.port, "match = \"/metadata/our order\"");
    ask(&adapter, "order-1").await;
    assert_eq!(vendor.searches(), [r#"metadata["our order"]:"order-1""#]);
}
