//! `idemctl provider`.

use std::fmt::Write as _;

use serde_json::Value;

use super::fixture::{SECRET, answering, calm, filled, provider, redactor};

#[tokio::test(flavor = "multi_thread")]
async fn each_verdict_with_its_code() {
    let cli = filled().await;
    let address = answering(&[
        ("a", "succeeded"),
        ("b", "held"),
        ("c", "processing"),
        ("d", "failed"),
        ("e", "500"),
    ])
    .await;
    let config = cli.config(&provider("acme", address));
    for (order, verdict, code) in [
        ("a", "charged", 0),
        ("b", "authorized", 0),
        ("c", "pending", 0),
        // Without the row nobody knows when the last attempt was, so a failed one is not the last word.
        ("d", "unknown", 8),
        ("e", "unknown", 8),
        ("missing", "unknown", 8),
    ] {
        let run = cli.command(&["provider", "status", order, "-o", "json", "-c", &config, "-vvv"]);
        let output = calm(run.env("ACME_KEY", SECRET).run().await);
        assert_eq!(output.code, code, "{}", output.transcript());
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(json["verdict"], verdict);
        for field in [
            "order_id",
            "provider",
            "reference",
            "amount",
            "currency",
            "raw_status",
            "checked_at",
            "reason",
            "not_before",
        ] {
            assert!(json.get(field).is_some(), "{field}");
        }
    }
    let output = calm(
        cli.command(&["provider", "status", "a", "-c", &config])
            .env("ACME_KEY", SECRET)
            .run()
            .await,
    );
    insta::assert_snapshot!(redactor(&cli).redact(&output.transcript()));
    let unset = cli.run(&["provider", "status", "a", "-c", &config]).await;
    assert_eq!(unset.code, 8, "{}", unset.transcript());
    assert!(unset.stderr.contains("ACME_KEY"), "{}", unset.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn list_and_key() {
    let cli = filled().await;
    let address = answering(&[]).await;
    let config = cli.config(&(provider("acme", address) + &provider("zeta", address)));
    let mut all = String::new();
    for args in [
        &["provider", "list"][..],
        &["provider", "list", "-o", "csv"],
        &["provider", "status", "x"],
        &["provider", "status", "x", "--provider", "nobody"],
        &["provider", "key", "shop-1", "order-1"],
        &["provider", "key", "shop-1", "none"],
        &[
            "provider",
            "key",
            "shop-1",
            "none",
            "--operation",
            "POST /payments",
            "--provider",
            "acme",
        ],
    ] {
        let output = cli.run(&[args, &["-c", &config]].concat()).await;
        writeln!(all, "$ idemctl {}\n{}", args.join(" "), output.transcript()).unwrap();
    }
    insta::assert_snapshot!(redactor(&cli).redact(&all));
    assert_eq!(cli.run(&["provider", "list", "-o", "json"]).await.ok(), "[]\n");
    assert_eq!(cli.run(&["provider", "status", "x"]).await.code, 2);
}
