//! What each answer of the provider leads to.

use super::provider::{Fault, section};
use super::{Fixture, fixture, result};
use crate::cli::fixture::redactor;

#[tokio::test(flavor = "multi_thread")]
async fn each_verdict_has_its_action() {
    let f = fixture().await;
    for (key, status, code, expected) in [
        ("charged", "succeeded", 0, "completed"),
        ("held", "held", 4, "left"),
        ("pending", "processing", 4, "waiting"),
        ("failed", "failed", 0, "released"),
        ("odd", "quantum", 8, "waiting"),
    ] {
        f.stuck(key).await;
        let id = f.provider.book(key, status);
        let before = f.cli.everything().await;
        let (dry, json, output) = f.reconcile(&["shop-1", key, "--dry-run"]).await;
        assert_eq!(f.cli.everything().await, before);
        assert_eq!(dry, code, "{}", output.transcript());
        assert_eq!(json["reconciled"][0]["reference"], id);
        let (real, json, output) = f.reconcile(&["shop-1", key, "--yes"]).await;
        assert_eq!(real, code, "{}", output.transcript());
        assert_eq!(result(&json), expected);
        if code != 0 {
            assert_eq!(f.cli.everything().await, before, "nothing was changed");
        }
    }
    assert_eq!(
        f.row("charged").await.unwrap(),
        r#"done 201 {"amount":49.90,"charge_id":"pay_1"}"#
    );
    assert_eq!(f.row("failed").await, None);
    let details = f
        .cli
        .text("select details::text from idempotency_event where key = 'charged'")
        .await;
    for part in ["\"charged\"", "pay_1", "49.90", "EUR", "succeeded", "GET http"] {
        assert!(details.contains(part), "{part}: {details}");
    }
    // Not there at all, and long ago: the money did not move.
    f.stuck("missed").await;
    let (code, json, _) = f.reconcile(&["shop-1", "missed", "--yes"]).await;
    assert_eq!((code, result(&json).as_str()), (0, "released"));
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_not_stuck_are_left() {
    let f = fixture().await;
    f.stuck("live").await;
    f.cli
        .execute("update idempotency set locked_until = now() + interval '1 hour'")
        .await;
    f.stuck("done").await;
    f.cli
        .execute("update idempotency set status = 'done', status_code = 200 where key = 'done'")
        .await;
    f.stuck("odd").await;
    f.cli
        .execute("update idempotency set status = 'paused' where key = 'odd'")
        .await;
    f.stuck_at("elsewhere", "other", 1).await;
    let before = f.cli.everything().await;
    for (key, code, expected) in [
        ("live", 4, "waiting"),
        ("done", 0, "left"),
        ("odd", 4, "left"),
        ("elsewhere", 2, "left"),
    ] {
        let (got, json, output) = f.reconcile(&["shop-1", key, "--yes"]).await;
        assert_eq!(got, code, "{}", output.transcript());
        assert_eq!(result(&json), expected, "{}", output.transcript());
    }
    let (code, _, output) = f.reconcile(&["shop-1", "never", "--yes"]).await;
    assert_eq!(code, 3, "{}", output.transcript());
    assert_eq!(f.cli.everything().await, before);
    assert_eq!(f.provider.questions().len(), 0, "nobody was asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_tell_changes_nothing() {
    let mut f = fixture().await;
    f.stuck("order-1").await;
    let before = f.cli.everything().await;
    f.provider.book("order-1", "succeeded");
    for fault in [
        Fault::Hang,
        Fault::Status(500),
        Fault::Status(401),
        Fault::Status(404),
        Fault::Garbage,
        Fault::Error200,
    ] {
        f.provider.fault(None, Some(fault));
        unknown(&f, &before, &format!("{fault:?}")).await;
    }
    f.provider.fault(None, None);
    f.provider.book("order-1", "succeeded");
    unknown(&f, &before, "two payments").await;
    // Nobody listens there.
    let gone = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    f.config = f.cli.config(&section("acme", address));
    unknown(&f, &before, "down").await;
}

async fn unknown(f: &Fixture, before: &str, what: &str) {
    let (code, json, output) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
    assert_eq!(code, 8, "{what}: {}", output.transcript());
    assert_eq!(result(&json), "waiting", "{what}");
    assert_eq!(json["reconciled"][0]["verdict"], "unknown", "{what}");
    assert_eq!(f.cli.everything().await, before, "{what}");
}

/// First there is a 404, and later the payment is there: within the lag that is "wait".
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_shows_up_late_is_never_taken_for_none() {
    let mut f = fixture().await;
    f.provider.hide(true);
    let text = section("acme", f.provider.address)
        .replace(
            "/v1/payments?merchant_order_id={order_id}",
            "/v1/payments/{order_id}",
        )
        .replace("find = \"/data\"\n", "")
        .replace("lag = \"60s\"", "lag = \"30s\"");
    f.config = f.cli.config(&text);
    f.stuck("order-1").await;
    f.cli
        .execute("update idempotency set locked_until = now() - interval '1 ms'")
        .await;
    f.provider.book("order-1", "succeeded");
    let before = f.cli.everything().await;
    let (code, json, output) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
    assert_eq!(
        (code, result(&json).as_str()),
        (8, "waiting"),
        "{}",
        output.transcript()
    );
    assert!(
        json["reconciled"][0]["not_before_seconds"].as_f64().unwrap() > 20.0,
        "{json}"
    );
    assert_eq!(f.cli.everything().await, before);
    f.provider.hide(false);
    let (code, json, output) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
    assert_eq!(
        (code, result(&json).as_str()),
        (0, "completed"),
        "{}",
        output.transcript()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_anything_to_store_a_person_is_needed() {
    let mut f = fixture().await;
    f.stuck("order-1").await;
    f.provider.book("order-1", "succeeded");
    let before = f.cli.everything().await;
    let text = section("acme", f.provider.address);
    for (section, word) in [
        (text[..text.find("response").unwrap()].to_owned(), "no `response`"),
        (text.replace("{/id}", "{/absent}"), "/absent"),
    ] {
        f.config = f.cli.config(&section);
        let (code, json, output) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
        assert_eq!(
            (code, result(&json).as_str()),
            (4, "left"),
            "{}",
            output.transcript()
        );
        assert!(output.stderr.contains(word), "{}", output.transcript());
        assert_eq!(f.cli.everything().await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_see() {
    let f = fixture().await;
    for (key, status) in [
        ("order-1", "succeeded"),
        ("order-2", "failed"),
        ("order-3", "held"),
    ] {
        f.stuck(key).await;
        f.provider.book(key, status);
    }
    let mut all = String::new();
    for args in [
        &["reconcile", "shop-1", "order-1", "--dry-run"][..],
        &["reconcile", "shop-1", "order-1"],
        &["reconcile", "shop-1", "order-3", "--yes"],
        &["reconcile", "--expired", "--dry-run"],
        &["reconcile", "--expired", "--yes"],
        &["reconcile", "--expired", "--yes", "--client", "nobody"],
        &["reconcile"],
        &["reconcile", "shop-1"],
        &["reconcile", "--expired", "--rps", "0", "--yes"],
        &["reconcile", "--expired", "--rps", "1e-20", "--yes"],
        &["reconcile", "--apply", "/nonexistent/plan", "--yes"],
    ] {
        let args = [args, &["-c", &f.config, "--color", "never"]].concat();
        let output = f.cli.command(&args).run().await;
        all.push_str(&redactor(&f.cli).redact(&output.transcript()));
        all.push('\n');
    }
    // Rows come in the order of the answers.
    insta::assert_snapshot!(all.replace(&f.provider.address.to_string(), "[address]"));
}

/// Two clients chose the same key, and nobody recorded another order id: the payment is of one of them.
#[tokio::test(flavor = "multi_thread")]
async fn keys_that_share_an_order_id_wait_for_a_person() {
    let f = fixture().await;
    f.stuck("order-1").await;
    f.cli
        .execute(
            "insert into idempotency select (jsonb_populate_record(k, '{\"client_id\":\"shop-2\"}')).* from idempotency k",
        )
        .await;
    f.stuck("order-2").await;
    f.provider.book("order-1", "succeeded");
    f.provider.book("order-2", "succeeded");
    let (code, json, output) = f.reconcile(&["--expired", "--yes"]).await;
    assert_eq!(code, 6, "{}", output.transcript());
    let results = super::results(&json);
    let left = results
        .iter()
        .filter(|(key, result)| key == "order-1" && result == "left");
    assert_eq!(left.count(), 2, "{}", output.transcript());
    assert!(results.contains(&("order-2".to_owned(), "completed".to_owned())));
    assert!(
        output.stdout.contains("has the same order id"),
        "{}",
        output.transcript()
    );
}

/// That the only configured provider did not charge says nothing about another that may have been used.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_payment_at_a_provider_that_nobody_named_proves_nothing() {
    let f = fixture().await;
    f.stuck("order-1").await;
    f.cli.execute("update idempotency set provider = null").await;
    f.provider.book("order-1", "failed");
    let before = f.cli.everything().await;
    let (code, json, output) = f.reconcile(&["shop-1", "order-1", "--yes"]).await;
    assert_eq!(
        (code, result(&json).as_str()),
        (8, "waiting"),
        "{}",
        output.transcript()
    );
    assert_eq!(f.cli.everything().await, before);
    let (code, json, _) = f
        .reconcile(&["shop-1", "order-1", "--yes", "--provider", "acme"])
        .await;
    assert_eq!((code, result(&json).as_str()), (0, "released"));
}
