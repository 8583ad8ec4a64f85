//! `idemctl inspect`.

use std::fmt::Write as _;

use serde_json::Value;

use super::fixture::{answering, calm, cli, filled, provider, redactor};

#[tokio::test(flavor = "multi_thread")]
async fn every_state_on_one_screen() {
    let cli = filled().await;
    let mut all = String::new();
    for (client, key) in [
        ("shop-1", "order-1"),
        ("shop-1", "order-7"),
        ("shop-2", "receipt-12"),
        ("shop-2", "order-3"),
        ("shop-2", "order-9"),
        ("shop-2", "gone"),
        ("shop-2", "never"),
    ] {
        let output = cli.run(&["inspect", client, key]).await;
        writeln!(all, "$ idemctl inspect {client} {key}\n{}", output.transcript()).unwrap();
    }
    insta::assert_snapshot!(redactor(&cli).redact(&all));
}

#[tokio::test(flavor = "multi_thread")]
async fn json_has_exactly_the_fields_of_the_contract() {
    let cli = filled().await;
    let output = cli
        .run(&["inspect", "shop-1", "order-7", "-o", "json"])
        .await
        .ok();
    let json: Value = serde_json::from_str(&output).unwrap();
    let fields: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let mut contract = vec![
        "client_id",
        "key",
        "state",
        "status",
        "operation",
        "fingerprint",
        "attempt",
        "owner",
        "provider",
        "order_id",
        "provider_key",
        "created_at",
        "locked_until",
        "lease_remaining_seconds",
        "completed_at",
        "expires_at",
        "response",
        "safe",
        "last_error",
        "history",
        "next",
    ];
    contract.sort_unstable();
    assert_eq!(fields, contract);
    let response: Vec<&String> = json["response"].as_object().unwrap().keys().collect();
    assert_eq!(
        response,
        ["body_bytes", "body_sha256", "content_type", "status_code"]
    );
    assert_eq!(json["state"], "done");
    assert!(json["lease_remaining_seconds"].is_null() && json["next"].is_null());
    let expires = json["expires_at"].as_str().unwrap();
    assert!(expires.ends_with('Z'), "{expires}");

    let output = cli
        .run(&["inspect", "shop-1", "order-1", "-o", "json"])
        .await
        .ok();
    let json: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        (&json["state"], &json["status"]),
        (&"expired".into(), &"in_progress".into())
    );
    assert!(json["lease_remaining_seconds"].as_f64().unwrap() < -800.0);
    assert_eq!(json["history"], Value::Array(vec![]));
    assert_eq!(json["next"], "idemctl provider list");
    assert!(json["response"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_are_masked_unless_told_and_that_is_logged() {
    let cli = filled().await;
    let show = ["inspect", "shop-1", "order-7", "-o", "json", "--show-response"];
    let json: Value = serde_json::from_str(&cli.run(&show).await.ok()).unwrap();
    assert_eq!(
        json["response"]["body"],
        serde_json::json!({"charge_id": "pay_6A9", "card": "424242******4242", "client_secret": "***"})
    );
    assert_eq!(
        cli.number("select count(*) from idempotency_event where action = 'unmask'")
            .await,
        0
    );
    let unmask = [&show[..], &["--unmask", "--reason", "dispute 7"]].concat();
    let json: Value = serde_json::from_str(&cli.run(&unmask).await.ok()).unwrap();
    assert_eq!(json["response"]["body"]["card"], "4242424242424242");
    let event = cli
        .text(
            "select client_id || ' ' || key || ' ' || reason from idempotency_event where action = 'unmask'",
        )
        .await;
    assert_eq!(event, "shop-1 order-7 dispute 7");

    let text = ["inspect", "shop-2", "receipt-12", "-o", "json", "--show-response"];
    let json: Value = serde_json::from_str(&cli.run(&text).await.ok()).unwrap();
    assert_eq!(json["response"]["body_base64"], "VGhhbmsgeW91IQ==");
    assert_eq!(json["response"]["body_bytes"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_csv_and_jsonl() {
    let cli = filled().await;
    let ids = cli.run(&["inspect", "shop-1", "order-1", "-o", "ids"]).await.ok();
    assert_eq!(ids, "shop-1\torder-1\n");
    let csv = cli.run(&["inspect", "shop-1", "order-1", "-o", "csv"]).await.ok();
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("client_id"), "{csv}");
    let jsonl = cli
        .run(&["inspect", "shop-1", "order-1", "-o", "jsonl"])
        .await
        .ok();
    assert_eq!(jsonl.lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_is_asked_when_told() {
    let cli = filled().await;
    let address = answering(&[("order-1", "succeeded"), ("order-9", "500")]).await;
    let config = cli.config(&provider("acme", address));
    let ask = |key: &'static str, client: &'static str| {
        let run = cli.command(&["inspect", client, key, "--provider", "-c", &config]);
        run.env("ACME_KEY", super::fixture::SECRET).run()
    };
    let said = calm(ask("order-1", "shop-1").await);
    insta::assert_snapshot!(redactor(&cli).redact(&said.transcript()));
    let unknown = calm(ask("order-9", "shop-2").await);
    assert_eq!(unknown.code, 8, "{}", unknown.transcript());
    // Nobody can be asked.
    let nobody = cli.run(&["inspect", "shop-1", "order-1", "--provider"]).await;
    assert_eq!(nobody.code, 2, "{}", nobody.transcript());
    assert!(
        nobody.stderr.contains("acme"),
        "the row names it: {}",
        nobody.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_ends_with_the_final_answer() {
    let cli = filled().await;
    let mut watching = cli.command(&["inspect", "shop-2", "order-9", "--watch"]).spawn();
    watching.wait_for_line("in_progress").await;
    cli.execute("update idempotency set status = 'done', status_code = 201, completed_at = now() where key = 'order-9'")
        .await;
    watching.wait_for_line("done").await;
    assert_eq!(watching.wait().await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_goes_while_it_is_watched_is_not_found() {
    let cli = filled().await;
    let mut watching = cli.command(&["inspect", "shop-2", "order-9", "--watch"]).spawn();
    watching.wait_for_line("in_progress").await;
    cli.execute("delete from idempotency where key = 'order-9'").await;
    assert_eq!(calm(watching.wait().await).code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_schema_is_another_table() {
    let cli = cli().await;
    let nowhere = cli.run(&["inspect", "a", "b", "--schema", "elsewhere"]).await;
    assert_eq!(nowhere.code, 9, "{}", nowhere.transcript());
    assert!(
        nowhere.stderr.contains("elsewhere.idempotency"),
        "{}",
        nowhere.stderr
    );
}
