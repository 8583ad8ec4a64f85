//! From the list to one key, its provider, and what is done about it.

use super::on_screen;
use crate::cli::fixture::{SECRET, answering, filled, provider};
use crate::support::Tmux;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_inspected_in_front_of_the_list() {
    let (_cli, tmux) = on_screen(&[], &[]).await;
    tmux.keys(&["j", "Down"]).await;
    tmux.shows("> shop-1").await;
    tmux.keys(&["Enter"]).await;
    let parts = ["is not known.", "created by pay-7f9c:4121:9d2c", "Esc back"];
    tmux.shows_all(&parts).await;
    tmux.keys(&["PageDown", "PageDown"]).await;
    tmux.shows("idemctl provider list").await;
    tmux.keys(&["Escape"]).await;
    tmux.shows("q quit").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_is_asked_and_the_key_reconciled_after_a_yes() {
    let cli = filled().await;
    let acme = provider("acme", answering(&[("order-1", "succeeded")]).await);
    let config = cli.config(&format!(
        "{acme}response = {{ status_code = 201, body = {{ charge_id = \"{{/id}}\" }} }}\n[audit]\nrequire_reason = true\n"
    ));
    let tmux = Tmux::start(80, 24).await;
    let args = ["top", "--interval", "100ms", "--client", "shop-1", "-c", &config];
    tmux.run(&cli.db.url, &[("ACME_KEY", SECRET)], &args).await;
    tmux.shows("> shop-1").await;
    tmux.keys(&["p"]).await;
    tmux.shows_all(&["acme says that it charged", "order-1"]).await;
    let state = "select status from idempotency where (client_id, key) = ('shop-1', 'order-1')";

    // No: nothing is changed.
    tmux.keys(&["r"]).await;
    tmux.shows_all(&["reconcile shop-1 order-1", "Why?"]).await;
    tmux.keys(&["paged at 3 a.m.", "Enter"]).await;
    tmux.shows_all(&["acme says charged", "complete shop-1 order-1? [y/N]"])
        .await;
    tmux.is_taken(false).await;
    tmux.keys(&["n"]).await;
    tmux.shows("(exit 4) Enter goes back to top").await;
    assert_eq!(cli.text(state).await, "in_progress");
    tmux.keys(&["Enter"]).await;
    tmux.shows("> shop-1").await;
    tmux.is_taken(true).await;

    // Without the reason that is compulsory the command refuses as it always does.
    tmux.keys(&["r", "Enter"]).await;
    tmux.shows("(exit 2) Enter goes back to top").await;
    tmux.keys(&["Enter"]).await;
    tmux.shows("> shop-1").await;

    // Yes.
    tmux.keys(&["r"]).await;
    tmux.shows_all(&["reconcile shop-1 order-1", "Why?"]).await;
    tmux.keys(&["ticket 7", "Enter"]).await;
    tmux.shows("complete shop-1 order-1? [y/N]").await;
    tmux.keys(&["y"]).await;
    tmux.shows("(exit 0) Enter goes back to top").await;
    assert_eq!(cli.text(state).await, "done");
    let reason = "select reason from idempotency_event where action = 'reconcile'";
    assert_eq!(cli.text(reason).await, "ticket 7");
    tmux.keys(&["Enter"]).await;
    let gone = tmux.until("it is in the log and not in the list", |screen| {
        screen.contains("reconcile shop-1 order-1 by") && !screen.contains("> shop-1")
    });
    assert!(!gone.await.contains(SECRET));
    tmux.keys(&["q"]).await;
    tmux.ended(0).await;
}

/// A provider that hangs holds nothing up: the screen goes on, and keys work.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_provider_that_hangs() {
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let cli = filled().await;
    let config = cli.config(&provider("acme", silent.local_addr().unwrap()).replace("\"2s\"", "\"20s\""));
    let tmux = Tmux::start(80, 24).await;
    let args = ["top", "--interval", "100ms", "--client", "shop-1", "-c", &config];
    tmux.run(&cli.db.url, &[("ACME_KEY", SECRET)], &args).await;
    tmux.shows("> shop-1").await;
    tmux.keys(&["p"]).await;
    tmux.shows("asking the provider ...").await;
    cli.execute("update idempotency set locked_until = now() - interval '1 s' where key = 'order-9'")
        .await;
    tmux.shows("expired 4 ").await;
    tmux.keys(&["Escape"]).await;
    tmux.shows("q quit").await;
    tmux.keys(&["q"]).await;
    tmux.ended(0).await;
}
