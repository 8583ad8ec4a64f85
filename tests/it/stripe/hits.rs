//! Search and list together: what the search shows and nothing confirms, and what it does not show yet.

use idemctl::provider::Verdict;

use super::vendor::{Fault, Intent, Vendor, intent};
use super::{adapter, ask, reason};

#[tokio::test]
async fn a_charge_that_the_search_does_not_show_yet_is_not_hidden_by_one_that_it_shows() {
    let late = Intent {
        indexed: None,
        age: 600,
        ..intent("pi_2", "order-1", "succeeded")
    };
    let vendor = Vendor::start(vec![intent("pi_1", "order-1", "succeeded"), late]).await;
    let adapter = adapter(vendor.port, "timeout = \"1s\"");
    let status = ask(&adapter, "order-1").await;
    assert!(reason(&status).contains("2 payments"), "{status:?}");
    // Without the list, what was found stands, and it is said that nobody looked for another.
    for fault in [Fault::Answer(500, "oops"), Fault::Hang] {
        vendor.fault("/v1/payment_intents", fault);
        vendor.no_fault("/v1/payment_intents/");
        let status = ask(&adapter, "order-1").await;
        assert_eq!(
            (status.verdict, status.reference.as_deref(), status.answered),
            (Verdict::Charged, Some("pi_1"), true),
            "{status:?}"
        );
        assert!(
            status.evidence.contains("others may have been missed"),
            "{}",
            status.evidence
        );
    }
}

/// An intent of so long ago that the list does not go back to it.
fn old(id: &str, status: &'static str) -> Intent {
    Intent {
        age: 30 * 86_400,
        ..intent(id, "order-1", status)
    }
}

#[tokio::test]
async fn a_hit_that_nothing_confirms_or_refutes_is_no_miss() {
    let vendor = Vendor::start(vec![old("pi_1", "succeeded")]).await;
    let adapter = adapter(vendor.port, "timeout = \"1s\"");
    assert_eq!(ask(&adapter, "order-1").await.verdict, Verdict::Charged);
    for fault in [
        Fault::Answer(500, "oops"),
        Fault::Answer(404, "{}"),
        Fault::Answer(200, "{\"id\":\"pi_2\"}"),
        Fault::Close,
    ] {
        vendor.fault("/v1/payment_intents/pi_1", fault);
        let status = ask(&adapter, "order-1").await;
        assert!(reason(&status).contains("\"pi_1\""), "{status:?}");
    }
    // What Stripe itself says that it does not have is not there.
    let missing = Fault::Answer(
        404,
        r#"{"error":{"type":"invalid_request_error","code":"resource_missing"}}"#,
    );
    vendor.fault("/v1/payment_intents/pi_1", missing);
    assert_eq!(ask(&adapter, "order-1").await.verdict, Verdict::NotCharged);
    // The list may confirm what the object does not.
    let vendor = Vendor::start(vec![intent("pi_1", "order-1", "canceled")]).await;
    vendor.fault("/v1/payment_intents/pi_1", Fault::Close);
    let status = ask(&super::adapter(vendor.port, "timeout = \"1s\""), "order-1").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
}

#[tokio::test]
async fn more_hits_than_are_looked_at_are_no_miss() {
    let ids = ["pi_1", "pi_2", "pi_3", "pi_4", "pi_5", "pi_6"];
    let mut intents: Vec<_> = ids.map(|id| old(id, "canceled")).into();
    let vendor = Vendor::start(intents[..5].to_vec()).await;
    let status = ask(&adapter(vendor.port, ""), "order-1").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
    intents[5].status = "succeeded";
    let vendor = Vendor::start(intents).await;
    let status = ask(&adapter(vendor.port, ""), "order-1").await;
    assert!(reason(&status).contains("\"pi_6\""), "{status:?}");
    // Nor is one whose id cannot be asked for.
    let vendor = Vendor::start(vec![old("pi_../x", "succeeded")]).await;
    let status = ask(&adapter(vendor.port, ""), "order-1").await;
    assert!(reason(&status).contains("pi_../x"), "{status:?}");
}

#[tokio::test]
async fn without_a_whole_search_the_list_goes_back_a_day() {
    let day = 86_400;
    for fault in [
        Some(Fault::Answer(404, "{}")),
        Some(Fault::Answer(429, "{}")),
        Some(Fault::Answer(200, "<html>")),
        Some(Fault::Answer(200, r#"{"has_more":true,"data":[]}"#)),
        Some(Fault::Hang),
        None,
    ] {
        for (age, order) in [
            (day + 3500, "order-1"),
            (day + 3500, r"order\1"),
            (day + 3700, "order-1"),
        ] {
            // Made with the page of the shop, and paid a day later.
            let early = Intent {
                age,
                indexed: None,
                ..intent("pi_1", order, "succeeded")
            };
            let vendor = Vendor::start(vec![early]).await;
            if let Some(fault) = &fault {
                vendor.fault("/v1/payment_intents/search", fault.clone());
            }
            let status = ask(&adapter(vendor.port, "timeout = \"1s\""), order).await;
            let is_seen = age < day + 3600 && (fault.is_some() || order.contains('\\'));
            let expected = if is_seen {
                Verdict::Charged
            } else {
                Verdict::NotCharged
            };
            assert_eq!(status.verdict, expected, "{age} {order}: {status:?}");
        }
    }
}

#[tokio::test]
async fn payments_without_any_order_id_are_no_miss() {
    let vendor = Vendor::start(vec![intent("pi_1", "order-2", "succeeded")]).await;
    assert_eq!(
        ask(&adapter(vendor.port, ""), "order-1").await.verdict,
        Verdict::NotCharged
    );
    vendor.fault("/v1/payment_intents/search", Fault::Answer(404, "{}"));
    let elsewhere = adapter(vendor.port, "match = \"/metadata/order\"");
    let status = ask(&elsewhere, "order-1").await;
    assert!(
        reason(&status)
            .contains("none of the 1 payments of the window carries an order id at \"/metadata/order\""),
        "{status:?}"
    );
}
