//! The janitor's policy `reconcile`: the same operation, unattended.

use serde_json::Value;

use super::fixture;
use super::provider::{Fault, section};
use crate::cli::fixture::calm;
use crate::support::until;

const POLICY: &str =
    "[janitor.expired]\nschedule = \"* * * * * *\"\npolicy = \"reconcile\"\nolder_than = \"10m\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn once_it_ends_what_can_be_ended() {
    let mut f = fixture().await;
    f.config = f
        .cli
        .config(&format!("{POLICY}{}", section("acme", f.provider.address)));
    for (key, status) in [("charged", "succeeded"), ("failed", "failed"), ("held", "held")] {
        f.stuck(key).await;
        f.provider.book(key, status);
    }
    f.stuck("recent").await;
    f.cli
        .execute("update idempotency set locked_until = now() - interval '5 min' where key = 'recent'")
        .await;
    let args = ["janitor", "--once", "-c", &f.config, "-o", "json"];
    let output = calm(f.cli.command(&args).run().await);
    assert_eq!(output.code, 0, "{}", output.transcript());
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    let job = &json["jobs"][1];
    assert_eq!(job["expired"]["policy"], "reconcile");
    assert_eq!(job["expired"]["changed"], 2, "{json}");
    assert_eq!(super::results(job).len(), 3, "{json}");
    assert_eq!(
        f.row("charged").await.unwrap(),
        r#"done 201 {"amount":49.90,"charge_id":"pay_1"}"#
    );
    assert_eq!(f.row("failed").await, None);
    assert_eq!(f.row("held").await.unwrap(), "in_progress");
    assert_eq!(f.row("recent").await.unwrap(), "in_progress");
    let reason = f
        .cli
        .text("select reason from idempotency_event where key = 'charged'")
        .await;
    assert_eq!(reason, "policy reconcile");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_leaves_a_row_alone_after_unknown_and_goes_on_with_others() {
    let mut f = fixture().await;
    f.config = f
        .cli
        .config(&format!("{POLICY}{}", section("acme", f.provider.address)));
    f.provider.fault(Some("odd"), Some(Fault::Garbage));
    f.stuck("odd").await;
    let daemon = f.cli.command(&["janitor", "-c", &f.config]).spawn();
    until("it has asked once", async || !f.provider.questions().is_empty()).await;
    // Every second a run; each new row is ended in the next one.
    for i in 0..3 {
        let key = format!("later-{i}");
        f.provider.book(&key, "succeeded");
        f.stuck(&key).await;
        until("it is done", async || {
            f.row(&key).await.is_some_and(|row| row.starts_with("done"))
        })
        .await;
    }
    let asked = f
        .provider
        .questions()
        .iter()
        .filter(|(_, order)| order == "odd")
        .count();
    assert_eq!(asked, 1, "the first pause is a minute");
    assert_eq!(f.row("odd").await.unwrap(), "in_progress");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let output = calm(daemon.wait().await);
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(output.stderr.contains("completed 1"), "{}", output.stderr);
}

/// A page full of rows that cannot be read: the next one is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_read_keep_no_other_from_its_turn() {
    let mut f = fixture().await;
    f.config = f.cli.config(&format!(
        "{POLICY}limit = 2\n{}",
        section("acme", f.provider.address)
    ));
    for key in ["a-1", "a-2", "charged"] {
        f.stuck(key).await;
        f.provider.book(key, "succeeded");
    }
    f.cli
        .execute(
            "alter table idempotency alter fingerprint drop not null;
             update idempotency set fingerprint = null, locked_until = now() - interval '20 min' where key like 'a-%'",
        )
        .await;
    let daemon = f.cli.command(&["janitor", "-c", &f.config]).spawn();
    until("the third is done", async || {
        f.row("charged").await.is_some_and(|row| row.starts_with("done"))
    })
    .await;
    assert_eq!(f.row("a-1").await.unwrap(), "in_progress");
    daemon.signal(nix::sys::signal::Signal::SIGTERM);
    let output = calm(daemon.wait().await);
    assert!(output.stderr.contains("unreadable"), "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_providers_the_policy_is_refused() {
    let f = fixture().await;
    let config = f.cli.config(POLICY);
    let output = f.cli.run(&["janitor", "--check", "-c", &config]).await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(
        output.stderr.contains("needs somebody to ask"),
        "{}",
        output.stderr
    );
    let config = f.cli.config(&format!(
        "{POLICY}rps = -1\n{}",
        section("acme", f.provider.address)
    ));
    let output = f.cli.run(&["janitor", "--check", "-c", &config]).await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("rps"), "{}", output.stderr);
}
