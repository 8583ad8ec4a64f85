//! `idemctl inspect`.

use std::fmt::Write as _;

use serde_json::Value;

use super::fixture::{SECRET, answering, calm, cli, filled, provider, redactor};

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
    // How wide a column of ages is depends on the moment.
    let blanks =
        regex::Regex::new(r"(?m)(\[time\]|^) +(\[duration\] ago|in \[duration\]|not stored|now)").unwrap();
    let all = redactor(&cli).redact(&all);
    insta::assert_snapshot!(blanks.replace_all(&all, "$1  $2"));
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
        "timeline",
        "meaning",
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

/// Everything that is known of one key, in order, with the times that are not stored left open.
#[tokio::test(flavor = "multi_thread")]
async fn the_timeline_says_what_is_stored_and_no_more() {
    let cli = filled().await;
    cli.execute(
        "update idempotency set attempt = 3 where (client_id, key) = ('shop-2', 'order-3');
         update idempotency_event set at = now() - interval '30 min' where key = 'order-3';
         insert into idempotency_event (at, client_id, key, action, os_user, host, reason)
         values (now() - interval '2 h', 'shop-2', 'order-3', 'release', 'bob', 'ops-2', 'an earlier life')",
    )
    .await;
    let why = cli.run(&["why", "shop-2", "order-3", "-o", "json"]).await.ok();
    let json: Value = serde_json::from_str(&why).unwrap();
    let timeline = json["timeline"].as_array().unwrap();
    let whats: Vec<&str> = timeline
        .iter()
        .map(|entry| entry["what"].as_str().unwrap())
        .collect();
    assert_eq!(
        whats,
        [
            "release",
            "created",
            "acquired_again",
            "failed",
            "fail",
            "may_be_purged"
        ]
    );
    let at = |what: &str| {
        let entry = timeline.iter().find(|entry| entry["what"] == what);
        entry.unwrap()["at"].clone()
    };
    assert_eq!(at("created"), json["created_at"]);
    assert_eq!(at("failed"), json["completed_at"]);
    assert_eq!(at("may_be_purged"), json["expires_at"]);
    assert!(at("acquired_again").is_null(), "{why}");
    assert_eq!(
        json["meaning"],
        "The janitor or an operator stored a final error: every repeat gets 500."
    );
    let text = cli.run(&["why", "shop-2", "order-3"]).await.ok();
    assert!(text.contains("2h00m ago  release by bob@ops-2"), "{text}");
}

/// An ordinary key, with the provider's answer, fits the smallest usual terminal.
#[tokio::test(flavor = "multi_thread")]
async fn one_screen_is_one_screen() {
    let cli = filled().await;
    let address = answering(&[("order-1", "succeeded")]).await;
    let config = cli.config(&provider("acme", address));
    let command = format!(
        "stty cols 80 rows 24; exec {} inspect shop-1 order-1 --provider -c {config}",
        env!("CARGO_BIN_EXE_idemctl")
    );
    let run = crate::support::Run::new("/bin/sh", &["-c", &command]).on(&cli.db.url);
    let output = run
        .env("ACME_KEY", super::fixture::SECRET)
        .env("NO_COLOR", "1")
        .pty()
        .run()
        .await;
    let lines: Vec<&str> = output.stdout.lines().map(str::trim_end).collect();
    assert!(lines.len() < 24, "{} lines: {}", lines.len(), output.stdout);
    assert!(
        lines.iter().all(|line| line.chars().count() <= 80),
        "{}",
        output.stdout
    );
    assert!(
        lines.last().unwrap().contains("idemctl reconcile shop-1 order-1"),
        "{}",
        output.stdout
    );
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

/// The wrong client's name is the most common mistake of the night.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_client_is_pointed_to() {
    let cli = filled().await;
    let output = cli.run(&["inspect", "shop1", "order-1"]).await;
    assert_eq!(output.code, 3, "{}", output.transcript());
    assert!(
        output
            .stderr
            .contains("hint: that key is in progress for shop-9, shop-1; of this client: never used"),
        "the longest over first: {}",
        output.stderr
    );
}

/// The advice is of what is known now.
#[tokio::test(flavor = "multi_thread")]
async fn while_the_provider_cannot_tell_it_is_asked_again() {
    let cli = filled().await;
    let acme = provider("acme", answering(&[("order-1", "500")]).await);
    let config = cli.config(&acme);
    let output = cli
        .command(&["inspect", "shop-1", "order-1", "--provider", "-c", &config])
        .env("ACME_KEY", SECRET)
        .run()
        .await;
    assert_eq!(output.code, 8, "{}", output.transcript());
    for part in [
        "the provider cannot tell now: wait",
        "idemctl reconcile shop-1 order-1",
    ] {
        assert!(output.stdout.contains(part), "{}", output.stdout);
    }
}
