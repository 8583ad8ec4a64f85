//! Where somebody can be asked, the provider is asked first.

use super::{BODY, details, file, resolve, row};
use crate::cli::fixture::{Cli, cli};
use crate::reconcile::provider::{Fault, Provider, section};

async fn stuck(cli: &Cli, key: &str, provider: &str) {
    cli.execute(&format!(
        "insert into idempotency (client_id, key, fingerprint, locked_until, created_at, lease_token, provider)
         values ('shop-1', '{key}', '', now() - interval '1 h', now() - interval '2 h', gen_random_uuid(),
                 nullif('{provider}', ''))"
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictions_are_refused_and_can_be_overridden() {
    let cli = cli().await;
    let provider = Provider::start().await;
    let config = cli.config(&section("acme", provider.address));
    let body = file(&cli, "body", BODY);
    let failed = ["--failed"];
    let done = ["--done", "--response", &body, "--status-code", "201"];
    let declined = ["--done", "--response", &body, "--status-code", "402"];
    for (word, verdict, bad) in [
        ("succeeded", "charged", [false, true, true]),
        ("held", "authorized", [false, true, true]),
        ("processing", "pending", [true, true, true]),
        ("failed", "not_charged", [true, false, false]),
        ("quantum", "unknown", [false, true, true]),
    ] {
        for ((name, args), bad) in [("done", &done[..]), ("failed", &failed), ("declined", &declined)]
            .into_iter()
            .zip(bad)
        {
            let key = format!("{word}-{name}");
            stuck(&cli, &key, "acme").await;
            provider.book(&key, word);
            let args = [&["shop-1", &key, "-c", &config], args].concat();
            if bad {
                let before = cli.everything().await;
                for dry in [&[][..], &["--dry-run"]] {
                    let (code, json, output) = resolve(&cli, &[&args[..], dry].concat()).await;
                    assert_eq!(
                        (code, json["result"].as_str()),
                        (4, Some("refused")),
                        "{}",
                        output.transcript()
                    );
                    assert_eq!(json["provider_says"]["verdict"], verdict);
                    let why = if verdict == "unknown" {
                        "cannot say whether the money moved"
                    } else {
                        "contradicts"
                    };
                    assert!(output.stderr.contains(why), "{}", output.stderr);
                }
                assert_eq!(cli.everything().await, before);
            }
            let over = [&args[..], &["--against-provider"]].concat();
            let args = if bad { &over } else { &args };
            let (code, json, output) = resolve(&cli, args).await;
            assert_eq!(code, 0, "{key}: {}", output.transcript());
            assert_eq!(json["result"], if name == "failed" { "failed" } else { "done" });
            let details = details(&cli, "resolve").await;
            assert_eq!(details["provider_says"]["verdict"], verdict);
            assert_eq!(details["against_provider"], bad, "{key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_cannot_tell_stops_what_would_hide_a_charge() {
    let cli = cli().await;
    let provider = Provider::start().await;
    let config = cli.config(&section("acme", provider.address));
    for (key, fault) in [
        ("hang", Fault::Hang),
        ("down", Fault::Status(500)),
        ("garbage", Fault::Garbage),
    ] {
        stuck(&cli, key, "acme").await;
        provider.fault(None, Some(fault));
        let failed = ["shop-1", key, "--failed", "-c", &config];
        let before = cli.everything().await;
        let (code, json, output) = resolve(&cli, &failed).await;
        assert_eq!(
            (code, json["result"].as_str()),
            (4, Some("refused")),
            "{}",
            output.transcript()
        );
        assert!(output.stderr.contains("--against-provider"), "{}", output.stderr);
        assert_eq!(cli.everything().await, before);
        let (code, json, output) = resolve(&cli, &[&failed[..], &["--against-provider"]].concat()).await;
        assert_eq!(
            (code, json["result"].as_str()),
            (0, Some("failed")),
            "{}",
            output.transcript()
        );
        assert_eq!(json["provider_says"]["verdict"], "unknown");
        let details = details(&cli, "resolve").await;
        assert_eq!(details["provider_says"]["verdict"], "unknown");
        assert!(details["provider_says"]["reason"].is_string());
    }
    provider.fault(None, None);
    // The row names a provider that has no interface, so nobody configured it.
    stuck(&cli, "elsewhere", "cash").await;
    let (code, json, output) = resolve(&cli, &["shop-1", "elsewhere", "--failed", "-c", &config]).await;
    assert_eq!(
        (code, &json["provider_says"]),
        (0, &serde_json::Value::Null),
        "{}",
        output.transcript()
    );
    assert!(
        details(&cli, "resolve").await["provider_says"]["why"]
            .as_str()
            .unwrap()
            .contains("cash")
    );
    let asked = provider.questions();
    assert!(asked.iter().all(|(_, order)| order != "elsewhere"), "{asked:?}");
    // A miss of a provider that the row does not name proves nothing; that it charged does.
    stuck(&cli, "unnamed", "").await;
    provider.book("unnamed", "succeeded");
    let (code, _, output) = resolve(&cli, &["shop-1", "unnamed", "--failed", "-c", &config]).await;
    assert_eq!(code, 4, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_could_be_asked_but_is_not_is_refused() {
    let cli = cli().await;
    let provider = Provider::start().await;
    let config = cli.config(&(section("one", provider.address) + &section("two", provider.address)));
    stuck(&cli, "order-1", "").await;
    let before = cli.everything().await;
    let (code, json, output) = resolve(&cli, &["shop-1", "order-1", "--failed", "-c", &config]).await;
    assert_eq!(
        (code, json["result"].as_str()),
        (4, Some("refused")),
        "{}",
        output.transcript()
    );
    assert!(output.stderr.contains("several providers"), "{}", output.stderr);
    assert_eq!(cli.everything().await, before);
    let named = [
        "shop-1",
        "order-1",
        "--failed",
        "-c",
        &config,
        "--provider",
        "two",
    ];
    let (code, _, output) = resolve(&cli, &named).await;
    assert_eq!(code, 0, "{}", output.transcript());
    assert_eq!(details(&cli, "resolve").await["provider_says"]["provider"], "two");
    assert!(row(&cli, "shop-1", "order-1").await.starts_with("failed 500"));
}
