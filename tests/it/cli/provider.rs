//! `idemctl provider`.

use std::fmt::Write as _;

use serde_json::Value;

use super::fixture::{SECRET, answering, calm, filled, provider, redactor};
use crate::provider_http::server::{Reply, Server};

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

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_the_attempt_makes_a_miss_count() {
    let cli = filled().await;
    let config = cli.config(&provider("acme", answering(&[("d", "failed")]).await));
    let now = cli
        .text(r#"select to_char(now() at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US')"#)
        .await;
    let ago = |minutes: i64| {
        let now = chrono::NaiveDateTime::parse_from_str(&now, "%Y-%m-%dT%H:%M:%S%.f")
            .unwrap()
            .and_utc();
        (now - chrono::TimeDelta::minutes(minutes)).to_rfc3339()
    };
    for (order, at, verdict, code) in [
        ("missing", "2h", "not_charged", 0),
        ("missing", "61s", "not_charged", 0),
        ("missing", "59s", "unknown", 8),
        ("missing", "0s", "unknown", 8),
        ("missing", &ago(120), "not_charged", 0),
        ("missing", &ago(0), "unknown", 8),
        ("d", "2h", "not_charged", 0),
    ] {
        let args = [
            "provider", "status", order, "--at", at, "-o", "json", "-c", &config,
        ];
        let output = calm(cli.command(&args).env("ACME_KEY", SECRET).run().await);
        assert_eq!(output.code, code, "{at}: {}", output.transcript());
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(json["verdict"], verdict, "{at}");
    }
    for (at, problem) in [
        ("2", "or a time such as"),
        ("yesterday", "or a time such as"),
        ("2026-11-29T10:00:00", "with its zone"),
        ("2026-11-29", "with its zone"),
        ("-2h", "with its zone"),
        ("", "is empty"),
        (&ago(-60), "in the future"),
    ] {
        let args = [
            "provider",
            "status",
            "missing",
            &format!("--at={at}"),
            "-c",
            &config,
        ];
        let output = calm(cli.command(&args).env("ACME_KEY", SECRET).run().await);
        assert_eq!(output.code, 2, "{at}: {}", output.transcript());
        assert!(output.stderr.contains(problem), "{at}: {}", output.stderr);
    }
    // An age needs no database, a time does.
    for (at, code) in [("2h", 0), (ago(120).as_str(), 7)] {
        let args = [
            "provider",
            "status",
            "missing",
            "--at",
            at,
            "-c",
            &config,
            "-d",
            "host=127.0.0.1 port=9",
        ];
        let output = calm(cli.command(&args).env("ACME_KEY", SECRET).run().await);
        assert_eq!(output.code, code, "{}", output.transcript());
        assert_eq!(output.stderr.contains("--at 2h"), code == 7, "{}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_row_says_whom_to_ask_and_since_when() {
    let cli = filled().await;
    cli.execute(
        "update idempotency set order_id = 'shipment-3' where key = 'order-1' and client_id = 'shop-1'",
    )
    .await;
    let address = answering(&[("order-9", "processing")]).await;
    let config = cli.config(&(provider("acme", address) + &provider("zeta", address)));
    let before = cli.everything().await;
    for (args, verdict, order, code) in [
        // Its lease ended 14 minutes ago.
        (
            &["order-1", "--client", "shop-1"][..],
            "not_charged",
            "shipment-3",
            0,
        ),
        (
            &["shipment-3", "--client", "shop-1", "--key", "order-1"],
            "not_charged",
            "shipment-3",
            0,
        ),
        (&["order-9", "--client", "shop-2"], "pending", "order-9", 0),
        (
            &["order-9", "--client", "shop-2", "--provider", "acme"],
            "pending",
            "order-9",
            0,
        ),
        // The row names no provider, the operator does.
        (
            &["order-1", "--client", "shop-9", "--provider", "zeta"],
            "not_charged",
            "order-1",
            0,
        ),
    ] {
        let args = [&["provider", "status", "-o", "json", "-c", &config], args].concat();
        let output = calm(cli.command(&args).env("ACME_KEY", SECRET).run().await);
        assert_eq!(output.code, code, "{}", output.transcript());
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(
            (&json["verdict"], &json["order_id"]),
            (&verdict.into(), &order.into()),
            "{args:?}"
        );
    }
    assert_eq!(cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_does_not_fit_the_flags_is_not_asked_about() {
    let cli = filled().await;
    cli.execute(
        "update idempotency set order_id = 'shipment-3' where key = 'order-1' and client_id = 'shop-1'",
    )
    .await;
    let address = answering(&[]).await;
    let config = cli.config(&(provider("acme", address) + &provider("zeta", address)));
    for (args, problem, code) in [
        (&["nothing", "--client", "shop-1"][..], "no key", 3),
        (
            &["order-1", "--client", "shop-1", "--at", "2h"],
            "cannot be used with",
            2,
        ),
        (&["order-1", "--key", "order-1"], "--client", 2),
        (
            &["order-1", "--client", "shop-1", "--key", "order-1"],
            "is of the order",
            2,
        ),
        (
            &["order-1", "--client", "shop-1", "--provider", "zeta"],
            "\"acme\" was used",
            2,
        ),
        (&["order-1", "--client", "shop-9"], "name one with --provider", 2),
        (&["order-1", "--client", ""], "client", 2),
    ] {
        let args = [&["provider", "status", "-c", &config], args].concat();
        let output = calm(cli.command(&args).env("ACME_KEY", SECRET).run().await);
        assert_eq!(output.code, code, "{}", output.transcript());
        assert!(output.stderr.contains(problem), "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxies_of_the_environment_are_taken() {
    let cli = filled().await;
    let charged = r#"{"data":[{"order":"a","id":"p1","status":"succeeded","amount":1,"currency":"eur"}]}"#;
    let section = |scheme: &str| {
        // No name server knows this host, so that only a proxy can reach it.
        provider("acme", ([127, 0, 0, 1], 1).into())
            .replace("http://127.0.0.1:1", &format!("{scheme}://api.vendor.invalid"))
            + "\nallow_http = true\n"
    };
    for (variable, scheme, exempt, through) in [
        (
            "HTTP_PROXY",
            "http",
            "",
            Some("GET http://api.vendor.invalid/v1/payments?"),
        ),
        (
            "http_proxy",
            "http",
            "",
            Some("GET http://api.vendor.invalid/v1/payments?"),
        ),
        (
            "ALL_PROXY",
            "http",
            "",
            Some("GET http://api.vendor.invalid/v1/payments?"),
        ),
        (
            "HTTPS_PROXY",
            "https",
            "",
            Some("CONNECT api.vendor.invalid:443 "),
        ),
        ("ALL_PROXY", "https", "", Some("CONNECT api.vendor.invalid:443 ")),
        ("HTTPS_PROXY", "http", "", None),
        ("ALL_PROXY", "http", "vendor.invalid", None),
        ("ALL_PROXY", "https", "example.com,.vendor.invalid", None),
    ] {
        let proxy = Server::start(vec![Reply::json(200, charged)]).await;
        let config = cli.config(&section(scheme));
        let run = cli.command(&["provider", "status", "a", "-c", &config]);
        let run = run.env("ACME_KEY", SECRET).env("NO_PROXY", exempt);
        let output = calm(run.env(variable, format!("http://{}", proxy.address)).run().await);
        let requests = proxy.requests();
        match through {
            None => assert_eq!(requests, [""; 0], "{variable} {scheme}"),
            Some(begin) => assert!(requests[0].starts_with(begin), "{variable}: {requests:?}"),
        }
        let reached = through.is_some() && scheme == "http";
        assert_eq!(
            output.code,
            if reached { 0 } else { 8 },
            "{}",
            output.transcript()
        );
        // What is meant for the provider alone is not told to a proxy that only connects.
        assert_eq!(requests.iter().any(|head| head.contains(SECRET)), reached);
    }
    let config = cli.config(&section("https"));
    let run = cli.command(&["provider", "status", "a", "-c", &config]);
    let output = calm(
        run.env("HTTPS_PROXY", format!("socks5://u:{SECRET}@h:1"))
            .run()
            .await,
    );
    assert_eq!(output.code, 2, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn vendors_in_the_list() {
    let cli = filled().await;
    let mut sections = String::new();
    for (kind, more) in [
        ("braintree", "account = \"public-1\""),
        ("checkout", ""),
        ("mollie", "lag = \"5m\""),
        ("square", "location = \"L1\""),
        ("stripe", ""),
        ("yookassa", "account = \"shop-1\""),
    ] {
        writeln!(
            sections,
            "[providers.{kind}]\nkind = \"{kind}\"\nsecret = \"{SECRET}\"\n{more}"
        )
        .unwrap();
    }
    let config = cli.config(&sections);
    let output = cli.run(&["provider", "list", "-c", &config]).await;
    insta::assert_snapshot!(output.ok());
    let output = cli.run(&["provider", "list", "-o", "json", "-c", &config]).await;
    let json: Value = serde_json::from_str(&output.ok()).unwrap();
    assert_eq!(json[2]["lag_seconds"], 300.0);
    assert_eq!(json[5]["key_retention_seconds"], 86_400.0);
}
