//! Row and event: both or neither, whatever happens in the middle.

use super::{actions, resolve, row};
use crate::cli::fixture::{Cli, calm, filled};
use crate::support::{Proxy, idemctl, until};

const ARGS: [&str; 10] = [
    "resolve",
    "shop-9",
    "order-1",
    "--failed",
    "--evidence",
    "e",
    "--reason",
    "r",
    "--yes",
    "-q",
];

/// Events are held up until somebody gives lock 42 back: when they are inserted, or at the commit.
async fn hold(cli: &Cli, at_commit: bool) -> tokio_postgres::Client {
    let trigger = if at_commit {
        "create constraint trigger hold after insert on idempotency_event deferrable initially deferred
                for each row execute function hold()"
    } else {
        "create trigger hold before insert on idempotency_event for each row execute function hold()"
    };
    cli.execute(
        "create function hold() returns trigger language plpgsql as $$
            begin perform pg_advisory_xact_lock_shared(42); return new; end $$",
    )
    .await;
    cli.execute(trigger).await;
    let locker = cli.db.connect().await;
    locker
        .batch_execute("begin; select pg_advisory_xact_lock(42)")
        .await
        .unwrap();
    locker
}

/// Whether the session of the command is still there.
async fn sessions(cli: &Cli) -> i64 {
    cli.number(
        "select count(*) from pg_stat_activity
          where datname = current_database() and query ~ 'idemctl:|^commit' and pid <> pg_backend_pid()",
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_leaves_both_or_neither() {
    for at_commit in [false, true] {
        let cli = filled().await;
        let locker = hold(&cli, at_commit).await;
        let run = cli.command(&ARGS).spawn();
        super::races::somebody_waits(&cli).await;
        assert_eq!(
            row(&cli, "shop-9", "order-1").await,
            "in_progress",
            "nothing is seen before the commit"
        );
        run.kill9().await;
        locker.batch_execute("rollback").await.unwrap();
        until("the server has noticed", async || sessions(&cli).await == 0).await;
        let (row, actions) = (row(&cli, "shop-9", "order-1").await, actions(&cli).await);
        if at_commit {
            assert!(
                row.starts_with("failed 500") && actions == "resolve",
                "{row} {actions}"
            );
        } else {
            assert!(row == "in_progress" && actions.is_empty(), "{row} {actions}");
        }
        // Run again, it finds out.
        let (code, ..) = resolve(&cli, &["shop-9", "order-1", "--failed"]).await;
        assert_eq!(code, if at_commit { 4 } else { 0 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_cannot_be_written_undoes_the_change() {
    let cli = filled().await;
    for statement in [
        "create function no() returns trigger language plpgsql as $$ begin raise exception 'disk on fire'; end $$",
        "create trigger no before insert on idempotency_event for each row execute function no()",
    ] {
        cli.execute(statement).await;
    }
    let (code, _, output) = resolve(&cli, &["shop-9", "order-1", "--failed"]).await;
    assert_eq!(code, 1, "{}", output.transcript());
    assert!(output.stderr.contains("disk on fire"), "{}", output.stderr);
    assert_eq!(row(&cli, "shop-9", "order-1").await, "in_progress");
}

/// The server commits, and the network goes silent before it has said so.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_unknown() {
    let cli = filled().await;
    let locker = hold(&cli, true).await;
    let db = &cli.db;
    let proxy = Proxy::start(db.target()).await;
    let url = db.url_through(proxy.address.port());
    let run = idemctl(&[&ARGS[..], &["-o", "json"]].concat()).on(&url).spawn();
    super::races::somebody_waits(&cli).await;
    proxy.hold();
    locker.batch_execute("rollback").await.unwrap();
    until("it is committed", async || actions(&cli).await == "resolve").await;
    // Still held: what is under way is lost.
    proxy.cut();
    let output = calm(run.wait().await);
    assert_eq!(output.code, 7, "{}", output.transcript());
    let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(json["result"], "unknown");
    assert!(output.stderr.contains("idemctl inspect"), "{}", output.stderr);
    assert!(row(&cli, "shop-9", "order-1").await.starts_with("failed 500"));
}
