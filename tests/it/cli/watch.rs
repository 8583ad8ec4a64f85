//! `idemctl inspect --watch`.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::fixture::{Cli, calm, filled};
use crate::support::{Proxy, Run, Tmux};

const DONE: &str =
    "update idempotency set status = 'done', status_code = 201, completed_at = now() where key = 'order-9'";
const WATCH: [&str; 6] = ["inspect", "shop-2", "order-9", "--watch", "--interval", "100ms"];

#[tokio::test(flavor = "multi_thread")]
async fn a_line_for_each_change_until_the_final_answer() {
    let cli = filled().await;
    let mut watching = cli.command(&WATCH).spawn();
    let first = watching.wait_for_line("in_progress").await;
    assert!(
        first.contains("The holder pay-7f9c pid 4121 has the key"),
        "{first}"
    );
    cli.execute("update idempotency set attempt = 2, owner = 'pay-8:7:abc' where key = 'order-9'")
        .await;
    let change = watching.wait_for_line("attempt 1 -> 2").await;
    assert!(
        change.contains("owner pay-7f9c:4121:9d2c -> pay-8:7:abc"),
        "{change}"
    );
    cli.execute(
        "insert into idempotency_event (client_id, key, action, os_user, host, reason)
         values ('shop-2', 'order-9', 'resolve', 'alice', 'ops-1', 'a bank statement')",
    )
    .await;
    watching.wait_for_line("resolve by alice@ops-1").await;
    cli.execute(DONE).await;
    let last = watching.wait_for_line("state in_progress -> done").await;
    assert!(last.contains("every repeat gets the stored 201"), "{last}");
    let output = watching.wait().await;
    assert_eq!(output.stdout.lines().count(), 4, "{}", output.stdout);
    assert_eq!(output.ok().lines().last(), Some(last.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_get_a_document_for_each_change() {
    let cli = filled().await;
    for format in ["json", "jsonl"] {
        cli.execute(
            "update idempotency set status = 'in_progress', completed_at = null, status_code = null where key = 'order-9'",
        )
        .await;
        let mut watching = cli.command(&[&WATCH[..], &["-o", format]].concat()).spawn();
        watching.wait_for_line("in_progress").await;
        cli.execute(DONE).await;
        let output = watching.wait().await.ok();
        let documents: Vec<Value> = output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(documents.len(), 2, "{output}");
        assert!(documents[0].get("changes").is_none(), "{output}");
        assert_eq!(documents[1]["state"], "done");
        assert_eq!(documents[1]["changes"][0], "state in_progress -> done");
    }
    for format in ["csv", "ids"] {
        let refused = cli.run(&[&WATCH[..], &["-o", format]].concat()).await;
        assert_eq!(refused.code, 2, "{}", refused.transcript());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_goes_while_it_is_watched_is_not_found() {
    let cli = filled().await;
    let mut watching = cli.command(&WATCH).spawn();
    watching.wait_for_line("in_progress").await;
    cli.execute("delete from idempotency where key = 'order-9'").await;
    assert_eq!(calm(watching.wait().await).code, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_it() {
    let cli = filled().await;
    let mut watching = cli.command(&WATCH).spawn();
    watching.wait_for_line("in_progress").await;
    watching.signal(Signal::SIGINT);
    assert_eq!(calm(watching.wait().await).code, 130);
}

/// The database behind a network that can be cut.
async fn behind(cli: &Cli) -> (Proxy, String) {
    let proxy = Proxy::start(cli.db.target()).await;
    let url = cli.db.url_through(proxy.address.port());
    (proxy, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_goes_away_is_waited_for() {
    let cli = filled().await;
    let (proxy, url) = behind(&cli).await;
    let mut watching = cli.command(&WATCH).on(&url).spawn();
    watching.wait_for_line("in_progress").await;
    proxy.refuse(true);
    proxy.cut();
    watching
        .wait_for_line("note: the database does not answer, trying again: ")
        .await;
    cli.execute(DONE).await;
    proxy.refuse(false);
    watching.wait_for_line("state in_progress -> done").await;
    let output = watching.wait().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(
        output.stderr.contains("note: the database answers again"),
        "{}",
        output.stderr
    );
}

/// `| head -1` gets its line, and the rest is for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_reads_is_the_end() {
    let cli = filled().await;
    let line = format!(
        "{} inspect shop-2 order-9 --watch --interval 100ms | head -1",
        env!("CARGO_BIN_EXE_idemctl")
    );
    let output = Run::new("/bin/bash", &["-o", "pipefail", "-c", &line])
        .on(&cli.db.url)
        .run()
        .await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(output.stdout.contains("in_progress"), "{}", output.transcript());
    assert_eq!(output.stderr, "", "{}", output.transcript());
}

/// On a terminal the same lines are drawn over; what is left at the end is the last screen, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_it_in_one_place() {
    let cli = filled().await;
    let tmux = Tmux::start(80, 24).await;
    tmux.run(&cli.db.url, &[], &WATCH).await;
    tmux.shows("in_progress (lease").await;
    cli.execute("update idempotency set attempt = 2 where key = 'order-9'")
        .await;
    tmux.shows("attempt 1 -> 2").await;
    let screen = tmux.screen().await;
    assert_eq!(
        screen.matches("shop-2 order-9").count(),
        2,
        "one head, and the next command: {screen}"
    );
    assert!(screen.contains("watching      every 100ms"), "{screen}");
    cli.execute(DONE).await;
    let screen = tmux.ended(0).await;
    assert!(screen.contains("shop-2 order-9   done"), "{screen}");
    assert!(!screen.contains("watching"), "{screen}");
    assert_eq!(screen.matches("fingerprint").count(), 1, "{screen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_left_whole_by_ctrl_c() {
    let cli = filled().await;
    let tmux = Tmux::start(80, 24).await;
    tmux.run(&cli.db.url, &[], &WATCH).await;
    tmux.shows("watching").await;
    tmux.resize(100, 30).await;
    tmux.keys(&["C-c"]).await;
    let screen = tmux.ended(130).await;
    assert!(screen.contains("error: interrupted"), "{screen}");
}
