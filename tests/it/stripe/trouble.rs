//! Whatever keeps Stripe from answering, or the answer from being understood, is unknown: never "not charged".

use std::time::{Duration, Instant};

use idemctl::provider::{StatusQuery, Verdict};

use super::vendor::{Fault, Intent, Vendor, intent};
use super::{adapter, ask, checked, query, reason};
use crate::support::localstripe;

const NO_HITS: &str = r#"{"object":"search_result","has_more":false,"data":[]}"#;

#[tokio::test]
async fn every_way_not_to_answer_the_list() {
    for (fault, said) in [
        (Fault::Answer(500, "oops"), "HTTP 500"),
        (
            Fault::Answer(503, r#"{"object":"list","has_more":false,"data":[]}"#),
            "HTTP 503",
        ),
        (
            Fault::Answer(429, r#"{"error":{"type":"rate_limit"}}"#),
            "HTTP 429",
        ),
        (
            Fault::Answer(400, r#"{"error":{"type":"invalid_request_error"}}"#),
            "HTTP 400",
        ),
        (
            Fault::Answer(401, r#"{"error":{"type":"invalid_request_error"}}"#),
            "HTTP 401",
        ),
        (
            Fault::Answer(403, r#"{"error":{"type":"invalid_request_error"}}"#),
            "HTTP 403",
        ),
        // Not the look-up of one object: this address does not exist.
        (
            Fault::Answer(404, r#"{"error":{"type":"invalid_request_error"}}"#),
            "HTTP 404",
        ),
        (Fault::Answer(204, ""), "HTTP 204"),
        (
            Fault::Answer(302, r#"{"object":"list","has_more":false,"data":[]}"#),
            "redirect",
        ),
        (Fault::Close, "cannot be reached"),
        (Fault::Hang, "no answer within"),
    ] {
        list_gives(fault, said).await;
    }
}

/// Asks where the list gives this, and the search nothing.
async fn list_gives(fault: Fault, said: &str) {
    let vendor = Vendor::start(vec![]).await;
    vendor.fault("/v1/payment_intents", fault);
    vendor.fault("/v1/payment_intents/search", Fault::Answer(200, NO_HITS));
    let status = ask(&adapter(vendor.port, "timeout = \"1s\""), "order-1").await;
    assert!(reason(&status).contains(said), "{said}: {status:?}");
}

#[tokio::test]
async fn every_body_that_is_no_list() {
    let unsaid = "does not say whether there is more";
    for (body, said) in [
        ("", "cannot be read"),
        ("<html>", "cannot be read"),
        (r#"{"object":"list","has_more":false,"data":["#, "cannot be read"),
        ("null", unsaid),
        ("{}", unsaid),
        (r#"{"data":[]}"#, unsaid),
        (r#"{"has_more":0,"data":[]}"#, unsaid),
        (r#"{"has_more":false}"#, "no list of objects"),
        (r#"{"has_more":false,"data":null}"#, "no list of objects"),
        (r#"{"has_more":false,"data":[null]}"#, "no list of objects"),
        (r#"{"has_more":false,"data":[{"id":1}]}"#, "no list of objects"),
        (r#"{"has_more":true,"data":[]}"#, "does not say where"),
        (
            r#"{"has_more":true,"data":[{"id":"pi_1"}]}"#,
            "does not say where",
        ),
    ] {
        list_gives(Fault::Answer(200, body), said).await;
    }
}

#[tokio::test]
async fn every_way_not_to_answer_for_one_object() {
    for (fault, said) in [
        (Fault::Answer(500, "oops"), "HTTP 500"),
        (Fault::Answer(404, "<html>"), "cannot be read"),
        (Fault::Answer(404, "{}"), "HTTP 404"),
        (Fault::Answer(400, "{}"), "HTTP 400"),
        (
            Fault::Answer(200, r#"{"id":"pi_2","status":"canceled"}"#),
            "another object",
        ),
        (Fault::Answer(200, r#"{"id":"pi_1"}"#), "no status"),
        (
            Fault::Answer(200, r#"{"id":"pi_1","status":"Succeeded"}"#),
            "does not know",
        ),
        (
            Fault::Answer(200, r#"{"id":"pi_1","status":["canceled"]}"#),
            "no status",
        ),
        (Fault::Close, "cannot be reached"),
        (Fault::Hang, "no answer within"),
    ] {
        let vendor = Vendor::start(vec![]).await;
        vendor.fault("/v1/payment_intents/pi_1", fault);
        let status = ask(&adapter(vendor.port, "timeout = \"1s\""), "pi_1").await;
        assert!(reason(&status).contains(said), "{said}: {status:?}");
    }
}

#[tokio::test]
async fn a_hit_that_cannot_be_confirmed_is_left_to_the_list() {
    let vendor = Vendor::start(vec![intent("pi_1", "order-1", "succeeded")]).await;
    vendor.fault("/v1/payment_intents/pi_1", Fault::Answer(404, "{}"));
    let adapter = adapter(vendor.port, "timeout = \"1s\"");
    let status = ask(&adapter, "order-1").await;
    assert!(
        status.evidence.contains("0 of 1 hits confirmed"),
        "{}",
        status.evidence
    );
    assert_eq!(status.verdict, Verdict::Charged, "the list has it");
}

#[tokio::test]
async fn words_that_nobody_knows_are_shown() {
    for word in ["requires_source", "paid", "SUCCEEDED", ""] {
        let vendor = Vendor::start(vec![intent("pi_1", "order-1", word)]).await;
        let status = ask(&adapter(vendor.port, ""), "order-1").await;
        assert!(reason(&status).contains("does not know"), "{status:?}");
        assert_eq!(status.raw_status.as_deref(), Some(word));
        assert_eq!(status.reference.as_deref(), Some("pi_1"));
    }
}

#[tokio::test]
async fn money_that_was_received_was_charged() {
    let partly = Intent {
        received: 1000,
        ..intent("pi_1", "order-1", "canceled")
    };
    let vendor = Vendor::start(vec![partly]).await;
    assert_eq!(
        ask(&adapter(vendor.port, ""), "order-1").await.verdict,
        Verdict::Charged
    );
}

#[tokio::test]
async fn a_list_that_is_too_long_proves_nothing() {
    // Pages of three objects, though a hundred are asked for.
    let many = (0..310).map(|i| intent(&format!("pi_{i}"), &format!("order-{i}"), "succeeded"));
    let vendor = Vendor::start(many.collect()).await;
    vendor.pages_of(3);
    vendor.fault("/v1/payment_intents/search", Fault::Answer(404, "{}"));
    let adapter = adapter(vendor.port, "timeout = \"30s\"");
    let status = ask(&adapter, "nobody").await;
    assert!(reason(&status).contains("more than 100 pages"), "{status:?}");
    // The search, the question for the time, and the list.
    assert_eq!(vendor.paths().len(), 102);
    // What is found counts all the same.
    let status = ask(&adapter, "order-0").await;
    assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
    // Nobody says how far back to look: fewer pages are read for it.
    let before = vendor.paths().len();
    checked(adapter.status(&StatusQuery::new("nobody")).await);
    assert_eq!(vendor.paths().len() - before, 6);
}

#[tokio::test]
async fn the_window_is_from_before_the_first_attempt_until_now() {
    let hour = 3600;
    let at = |id: &str, age| Intent {
        age,
        indexed: None,
        ..intent(id, "order-1", "succeeded")
    };
    for (age, verdict) in [
        (24 * hour, Verdict::Charged),
        // The clocks of two servers differ.
        (25 * hour, Verdict::Charged),
        (25 * hour + 1, Verdict::NotCharged),
        (12 * hour, Verdict::Charged),
        // A holder that stood still charges long after its lease.
        (11 * hour, Verdict::Charged),
        (0, Verdict::Charged),
    ] {
        let vendor = Vendor::start(vec![at("pi_1", age)]).await;
        let query = query("order-1", 24 * 3600, 12 * 3600);
        let status = checked(adapter(vendor.port, "").status(&query).await);
        assert_eq!(status.verdict, verdict, "{age}: {status:?}");
    }
}

#[tokio::test]
async fn all_requests_together_keep_within_the_timeout() {
    let vendor = Vendor::start(vec![]).await;
    vendor.fault("/", Fault::Hang);
    let adapter = adapter(vendor.port, "timeout = \"600ms\"");
    assert_eq!(adapter.facts().timeout, Duration::from_millis(600));
    let start = Instant::now();
    let status = ask(&adapter, "order-1").await;
    reason(&status);
    assert!(
        start.elapsed() < Duration::from_millis(1500),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn nobody_there() {
    let port = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap().port()
    };
    for order in ["order-1", "pi_1"] {
        let status = ask(&adapter(port, "timeout = \"500ms\""), order).await;
        assert!(reason(&status).contains("cannot be reached"), "{status:?}");
        assert!(!status.answered);
    }
    let vendor = Vendor::start(vec![]).await;
    let status = checked(
        adapter(vendor.port, "")
            .status(&StatusQuery::new("order-1"))
            .await,
    );
    assert!(status.answered, "it only could not tell: {status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_does_not_implement_is_no_miss() {
    // localstripe's list of charges takes no window.
    let status = ask(
        &adapter(localstripe().await.port, "object = \"charge\"\ntimeout = \"1s\""),
        "order-1",
    )
    .await;
    assert!(
        reason(&status).contains("HTTP 500") || reason(&status).contains("HTTP 400"),
        "{status:?}"
    );
}
