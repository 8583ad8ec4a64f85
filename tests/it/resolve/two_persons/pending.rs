//! Requests that wait for the other person.

use super::*;

/// Another configuration file does not undo what was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_pending_request_holds_under_any_configuration() {
    let two = two().await;
    let done = two.done(&two.alice).await;
    Two::check(done, 0, "requested");
    let config = two.cli.dir.path().join("other.toml");
    std::fs::write(&config, "").unwrap();
    let config = config.to_string_lossy().into_owned();
    let before = two.cli.everything().await;
    for url in [&two.alice, &two.bob] {
        let args = [
            "shop-9",
            "order-1",
            "-c",
            &config,
            "--done",
            "--status-code",
            "201",
            "--response",
            &two.body,
        ];
        let (code, json, output) = resolve_at(url, &args).await;
        assert_eq!(
            (code, json["result"].as_str()),
            (4, Some("refused")),
            "{}",
            output.transcript()
        );
        assert!(output.stderr.contains("24 hours"), "{}", output.transcript());
    }
    assert_eq!(two.cli.everything().await, before);
    Two::check(two.done(&two.bob).await, 0, "done");
}

/// Overriding the provider takes two persons as well: a request from before it contradicted is not enough.
#[tokio::test(flavor = "multi_thread")]
async fn both_must_override_the_provider() {
    let two = two().await;
    let provider = Provider::start().await;
    two.cli
        .config(&format!("{TWO}{}", section("acme", provider.address)));
    provider.fault(None, Some(Fault::Status(500)));
    Two::check(two.run(&two.alice, &["--failed"]).await, 0, "requested");
    provider.fault(None, None);
    provider.book("order-1", "succeeded");
    Two::check(two.run(&two.bob, &["--failed"]).await, 4, "refused");
    Two::check(
        two.run(&two.bob, &["--failed", "--against-provider"]).await,
        0,
        "requested",
    );
    Two::check(two.run(&two.alice, &["--failed"]).await, 4, "refused");
    Two::check(
        two.run(&two.alice, &["--failed", "--against-provider"]).await,
        0,
        "failed",
    );
    assert_eq!(details(&two.cli, "resolve").await["against_provider"], true);
}
