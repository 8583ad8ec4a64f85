//! Payment intents of localstripe, which has no search: all is decided by the list.

use idemctl::provider::Verdict;

use super::api::{Answer, Api};
use super::{adapter, ask, checked, query, reason};
use crate::support::localstripe;

async fn server() -> Api {
    Api {
        port: localstripe().await.port,
    }
}

/// Creates an intent as a service does.
async fn create(api: Api, order: &str, more: &[(&str, &str)]) -> Answer {
    let form = [
        ("amount", "4990"),
        ("currency", "eur"),
        ("metadata[order_id]", order),
    ];
    api.post("/v1/payment_intents", &[&form, more].concat(), "").await
}

/// Creates a payment method.
async fn method(api: Api, form: &[(&str, &str)]) -> String {
    text(&api.post("/v1/payment_methods", form, "").await.ok(), "id")
}

fn text(value: &serde_json::Value, name: &str) -> String {
    value[name].as_str().unwrap().to_owned()
}

const PAID: &[(&str, &str)] = &[("payment_method", "pm_card_visa"), ("confirm", "true")];
const HELD: &[(&str, &str)] = &[
    ("payment_method", "pm_card_visa"),
    ("confirm", "true"),
    ("capture_method", "manual"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_state_has_its_verdict() {
    let api = server().await;
    let adapter = adapter(api.port, "");
    let declined: &[(&str, &str)] = &[
        ("payment_method", "pm_card_chargeCustomerFail"),
        ("confirm", "true"),
    ];
    let asks_back = method(
        api,
        &[
            ("type", "card"),
            ("card[number]", "4000002500003155"),
            ("card[exp_month]", "12"),
            ("card[exp_year]", "2030"),
            ("card[cvc]", "123"),
        ],
    )
    .await;
    for (order, more, status, verdict) in [
        ("states-paid", PAID, "succeeded", Verdict::Charged),
        ("states-held", HELD, "requires_capture", Verdict::Authorized),
        ("states-new", &[], "requires_payment_method", Verdict::Pending),
        (
            "states-declined",
            declined,
            "requires_payment_method",
            Verdict::Pending,
        ),
        (
            "states-unconfirmed",
            &[("payment_method", "pm_card_visa")],
            "requires_confirmation",
            Verdict::Pending,
        ),
        (
            "states-3ds",
            &[("payment_method", asks_back.as_str()), ("confirm", "true")],
            "requires_action",
            Verdict::Pending,
        ),
    ] {
        let created = create(api, order, more).await;
        assert_eq!(
            created.status,
            if order == "states-declined" { 402 } else { 200 },
            "{created:?}"
        );
        let answer = ask(&adapter, order).await;
        assert_eq!(
            (answer.verdict, answer.raw_status.as_deref()),
            (verdict, Some(status)),
            "{answer:?}"
        );
        assert_eq!(answer.amount.as_ref().map(|amount| amount.get()), Some("4990"));
        assert_eq!(answer.currency.as_deref(), Some("eur"));
        if created.status == 200 {
            assert_eq!(answer.reference, Some(text(&created.body, "id")));
        }
        assert!(
            answer
                .evidence
                .contains("HTTP 404, not available; GET http://127.0.0.1"),
            "{}",
            answer.evidence
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_debit_that_will_fail_is_pending() {
    let api = server().await;
    let adapter = adapter(api.port, "");
    let account = [
        ("type", "sepa_debit"),
        ("sepa_debit[iban]", "DE62370400440532013001"),
    ];
    let debit = method(api, &account).await;
    // It is `processing` for half a second at this server, and then another account may be tried.
    let debit: &[(&str, &str)] = &[("payment_method", &debit), ("confirm", "true")];
    create(api, "states-debit", debit).await.ok();
    let answer = ask(&adapter, "states-debit").await;
    let status = answer.raw_status.as_deref().unwrap();
    assert!(
        ["processing", "requires_payment_method"].contains(&status),
        "{answer:?}"
    );
    assert_eq!(answer.verdict, Verdict::Pending);
}

#[tokio::test(flavor = "multi_thread")]
async fn captured_canceled_and_refunded() {
    let api = server().await;
    let adapter = adapter(api.port, "");
    let id = text(&create(api, "later-captured", HELD).await.ok(), "id");
    api.post(&format!("/v1/payment_intents/{id}/capture"), &[], "")
        .await
        .ok();
    assert_eq!(ask(&adapter, "later-captured").await.verdict, Verdict::Charged);

    let id = text(&create(api, "later-canceled", HELD).await.ok(), "id");
    api.post(&format!("/v1/payment_intents/{id}/cancel"), &[], "")
        .await
        .ok();
    let status = ask(&adapter, "later-canceled").await;
    assert_eq!(
        (status.verdict, status.reference.as_ref()),
        (Verdict::NotCharged, Some(&id))
    );
    // A later attempt may be on its way to them.
    for first in [3600, 5] {
        let status = checked(adapter.status(&query("later-canceled", first, 5)).await);
        assert!(reason(&status).contains("a later one"), "{status:?}");
    }
    // The object itself is no order that could have another payment.
    let status = checked(adapter.status(&query(&id, 5, 5)).await);
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");

    let paid = create(api, "later-refunded", PAID).await.ok();
    let charge = text(&paid["latest_charge"], "id");
    api.post("/v1/refunds", &[("charge", &charge)], "").await.ok();
    assert_eq!(
        ask(&adapter, "later-refunded").await.verdict,
        Verdict::Charged,
        "it was"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_miss_counts_after_the_lag_and_within_the_window() {
    let api = server().await;
    let adapter = adapter(api.port, "");
    assert_eq!(ask(&adapter, "misses-nobody").await.verdict, Verdict::NotCharged);
    let status = checked(adapter.status(&query("misses-nobody", 3600, 119)).await);
    assert!(
        reason(&status).contains("until 2m after the last attempt"),
        "{status:?}"
    );
    assert_eq!(status.not_before, Some(std::time::Duration::from_secs(1)));
    let status = checked(adapter.status(&query("misses-nobody", 3600, 120)).await);
    assert_eq!(status.verdict, Verdict::NotCharged);
    let without_begin = idemctl::provider::StatusQuery::new("misses-nobody");
    let status = checked(adapter.status(&without_begin).await);
    assert!(reason(&status).contains("how far back to look"), "{status:?}");

    // A payment of before the first attempt is outside the window: whoever asks says when it was.
    let id = text(&create(api, "misses-old", PAID).await.ok(), "id");
    let path = format!("/v1/payment_intents/{id}");
    api.post(&path, &[("created", "1600000000")], "").await.ok();
    assert_eq!(ask(&adapter, "misses-old").await.verdict, Verdict::NotCharged);
    let year = 365 * 86400;
    let status = checked(adapter.status(&query("misses-old", 20 * year, 3600)).await);
    assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
    // Without a window, the newest are looked through for it.
    let id = text(&create(api, "misses-new", PAID).await.ok(), "id");
    let status = checked(
        adapter
            .status(&idemctl::provider::StatusQuery::new("misses-new"))
            .await,
    );
    assert_eq!((status.verdict, status.reference), (Verdict::Charged, Some(id)));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_are_read() {
    let api = server().await;
    let adapter = adapter(api.port, "");
    let id = text(&create(api, "pages-first", PAID).await.ok(), "id");
    for i in 0..230 {
        create(api, &format!("pages-{i}"), &[]).await.ok();
    }
    let status = ask(&adapter, "pages-first").await;
    assert_eq!((status.verdict, status.reference), (Verdict::Charged, Some(id)));
    assert!(!status.evidence.contains("on 1 pages"), "{}", status.evidence);
    assert_eq!(ask(&adapter, "pages-229").await.verdict, Verdict::Pending);
    assert_eq!(ask(&adapter, "pages-230").await.verdict, Verdict::NotCharged);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_intents_of_one_order() {
    let api = server().await;
    let adapter = adapter(api.port, "");
    let first = text(&create(api, "two-attempts", HELD).await.ok(), "id");
    api.post(&format!("/v1/payment_intents/{first}/cancel"), &[], "")
        .await
        .ok();
    let second = text(&create(api, "two-attempts", PAID).await.ok(), "id");
    let status = ask(&adapter, "two-attempts").await;
    assert_eq!(
        (status.verdict, status.reference),
        (Verdict::Charged, Some(second)),
        "the void one does not count"
    );
    // This server ignores idempotency keys: the danger itself.
    create(api, "two-attempts", PAID).await.ok();
    let status = ask(&adapter, "two-attempts").await;
    assert!(reason(&status).contains("2 payments"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stripes_own_ids_are_asked_for_directly() {
    let api = server().await;
    let adapter = adapter(api.port, "");
    let id = text(&create(api, "by-id", PAID).await.ok(), "id");
    let status = checked(adapter.status(&idemctl::provider::StatusQuery::new(&id)).await);
    assert_eq!(
        (status.verdict, status.reference.as_ref()),
        (Verdict::Charged, Some(&id))
    );
    assert!(
        status
            .evidence
            .contains(&format!("/v1/payment_intents/{id}: one payment")),
        "{}",
        status.evidence
    );
    // Stripe knows its own ids, so that a miss says that the key is of elsewhere.
    let status = ask(&adapter, "pi_3MtwBwLkdIwHu7ix28a3tqPa").await;
    assert!(reason(&status).contains("another account"), "{status:?}");
    // Somebody's own ids may look like that.
    create(api, "pi_ours", PAID).await.ok();
    assert_eq!(ask(&adapter, "pi_ours").await.verdict, Verdict::Charged);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_proves_nothing() {
    let api = server().await;
    create(api, "wrong-key", PAID).await.ok();
    for secret in ["pk_test_wrong", "sk_"] {
        let adapter = adapter(api.port, &format!("secret = {secret:?}"));
        for order in ["wrong-key", "pi_3MtwBwLkdIwHu7ix28a3tqPa"] {
            let status = ask(&adapter, order).await;
            assert!(
                reason(&status).contains("refused our credentials, HTTP 401"),
                "{status:?}"
            );
            assert!(!format!("{status:?}").contains(secret), "{status:?}");
            assert!(!status.evidence.contains("test mode"), "{}", status.evidence);
        }
    }
}
