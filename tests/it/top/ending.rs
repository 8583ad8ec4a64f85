//! Every way out leaves the terminal as it was.

use nix::sys::signal::Signal;

use super::on_screen;
use crate::cli::fixture::{SECRET, answering, calm, cli, filled, provider};
use crate::support::Tmux;

#[tokio::test(flavor = "multi_thread")]
async fn keys_quit() {
    for (key, code) in [("q", 0), ("Escape", 0), ("C-c", 130)] {
        let (_cli, tmux) = on_screen(&[], &[]).await;
        tmux.is_taken(true).await;
        tmux.keys(&[key]).await;
        let screen = tmux.ended(code).await;
        assert_eq!(screen.contains("error: interrupted"), code == 130, "{screen}");
        assert!(!screen.contains("Expired keys"), "{screen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_quit() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let (_cli, tmux) = on_screen(&[], &[]).await;
        tmux.signal(signal);
        let screen = tmux.ended(130).await;
        assert!(screen.contains("error: interrupted"), "{screen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_stopped_and_goes_on() {
    let (_cli, tmux) = on_screen(&[], &[]).await;
    for by_key in [true, false] {
        if by_key {
            tmux.keys(&["C-z"]).await;
        } else {
            tmux.signal(Signal::SIGTSTP);
        }
        tmux.until("the shell has the terminal", |screen| screen.contains("Stopped"))
            .await;
        tmux.is_taken(false).await;
        tmux.keys(&["clear; fg", "Enter"]).await;
        tmux.shows("> shop-9").await;
        tmux.is_taken(true).await;
    }
    tmux.keys(&["q"]).await;
    tmux.is_taken(false).await;
}

/// A signal while `reconcile` has the terminal ends both, and nothing is changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_while_reconcile_asks() {
    let cli = filled().await;
    let acme = provider("acme", answering(&[("order-1", "succeeded")]).await);
    let config = cli.config(&format!(
        "{acme}response = {{ status_code = 201, body = {{ charge_id = \"{{/id}}\" }} }}\n"
    ));
    let tmux = Tmux::start(80, 24).await;
    let args = ["top", "--interval", "100ms", "--client", "shop-1", "-c", &config];
    tmux.run(&cli.db.url, &[("ACME_KEY", SECRET)], &args).await;
    tmux.shows("> shop-1").await;
    tmux.keys(&["r", "Enter"]).await;
    tmux.shows("[y/N]").await;
    // One is enough, though the question would stand until somebody answers.
    tmux.signal(Signal::SIGTERM);
    tmux.ended(130).await;
    let state = "select status from idempotency where (client_id, key) = ('shop-1', 'order-1')";
    assert_eq!(cli.text(state).await, "in_progress");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_says_what_to_use_instead() {
    let cli = cli().await;
    let refused = calm(cli.command(&["top"]).run().await);
    assert_eq!(refused.code, 2, "{}", refused.transcript());
    assert!(
        refused.stderr.contains("idemctl stats -o json"),
        "{}",
        refused.stderr
    );
    let json = cli.command(&["top", "-o", "json"]).pty().run().await;
    assert_eq!(json.code, 2, "{}", json.transcript());
    let dumb = cli.command(&["top"]).env("TERM", "dumb").pty().run().await;
    assert_eq!(dumb.code, 2, "{}", dumb.transcript());
}
