//! Databases that are down, silent, foreign, or give no rights.

use std::time::{Duration, Instant};

use idemctl::ops::migrate;
use nix::sys::signal::Signal;

use super::fixture::{SECRET, calm, filled};
use crate::support::{Cluster, ClusterOptions, Proxy, database, idemctl};

const COMMANDS: [&[&str]; 4] = [
    &["list"],
    &["inspect", "a", "b"],
    &["release", "a", "b", "--yes"],
    &["provider", "key", "a", "b"],
];

#[tokio::test(flavor = "multi_thread")]
async fn down_and_silent() {
    for args in COMMANDS {
        let output = calm(idemctl(args).on("postgresql://u@127.0.0.1:1/x").run().await);
        assert_eq!(output.code, 7, "{}", output.transcript());
        assert!(
            output.stderr.contains("127.0.0.1:1") && output.stderr.contains("idemctl config"),
            "{}",
            output.stderr
        );
    }
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("postgresql://u:{SECRET}@{}/x", silent.local_addr().unwrap());
    let started = Instant::now();
    let output = calm(
        idemctl(&["list", "--connect-timeout", "500ms"])
            .on(&url)
            .run()
            .await,
    );
    assert_eq!(output.code, 7, "{}", output.transcript());
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent() {
    let cli = filled().await;
    let proxy = Proxy::start(cli.db.target()).await;
    let url = cli.db.url_through(proxy.address.port());
    let mut watching = idemctl(&[
        "inspect",
        "shop-2",
        "order-9",
        "--watch",
        "--statement-timeout",
        "500ms",
    ])
    .on(&url)
    .spawn();
    watching.wait_for_line("in_progress").await;
    proxy.hold();
    // Whoever watches goes on.
    watching.wait_for_line("no answer from the database").await;
    watching.signal(Signal::SIGINT);
    let output = calm(watching.wait().await);
    assert_eq!(output.code, 130, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_tables_end_by_the_timeout() {
    let cli = filled().await;
    let holder = cli.db.connect().await;
    holder
        .batch_execute("begin; lock table idempotency in access exclusive mode")
        .await
        .unwrap();
    let output = cli.run(&["list", "--lock-timeout", "200ms"]).await;
    assert_eq!(output.code, 7, "{}", output.transcript());
    assert!(output.stderr.contains("lock"), "{}", output.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_not_there_or_not_ours() {
    let db = database().await;
    for args in COMMANDS {
        let output = calm(idemctl(args).on(&db.url).run().await);
        assert_eq!(output.code, 9, "{}", output.transcript());
        assert!(output.stderr.contains("idemctl migrate"), "{}", output.stderr);
    }
    db.client
        .batch_execute("create table idempotency (id serial primary key, name text)")
        .await
        .unwrap();
    for args in COMMANDS {
        let output = calm(idemctl(args).on(&db.url).run().await);
        assert_eq!(output.code, 9, "{}", output.transcript());
        assert!(
            output.stderr.contains("column client_id is missing"),
            "{}",
            output.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_migrated() {
    let cli = filled().await;
    cli.execute("alter table idempotency drop column completed_at")
        .await;
    let output = cli.run(&["list"]).await;
    assert_eq!(output.code, 9, "{}", output.transcript());
    assert!(
        output.stderr.contains("completed_at") && output.stderr.contains("idemctl migrate"),
        "{}",
        output.stderr
    );
    let cli = filled().await;
    cli.execute("drop table idempotency_event").await;
    let output = cli.run(&["inspect", "shop-1", "order-1"]).await;
    assert_eq!(output.code, 9, "{}", output.transcript());
    assert!(output.stderr.contains("idempotency_event"), "{}", output.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_rights() {
    let _private = crate::support::privately("it makes roles");
    let cli = filled().await;
    let role = format!("reader_{}", cli.db.name);
    cli.execute(&format!(
        "create role {role} login; grant select on idempotency, idempotency_event to {role}"
    ))
    .await;
    let url = cli.db.url.replace("idemctl@", &format!("{role}@"));
    let run = async |args: &[&str]| calm(idemctl(args).on(&url).run().await);
    assert_eq!(run(&["list"]).await.code, 0);
    assert_eq!(run(&["inspect", "shop-1", "order-1"]).await.code, 0);
    let before = cli.everything().await;
    let refused = run(&["release", "shop-9", "order-1", "--yes"]).await;
    assert_eq!(refused.code, 1, "{}", refused.transcript());
    assert!(
        refused.stderr.contains("DELETE on idempotency"),
        "{}",
        refused.stderr
    );
    let unmask = run(&["inspect", "shop-1", "order-7", "--show-response", "--unmask"]).await;
    assert_eq!(unmask.code, 1, "{}", unmask.transcript());
    assert!(
        !unmask.stdout.contains("4242424242424242"),
        "not shown unless it is logged"
    );
    cli.execute(&format!("revoke select on idempotency from {role}"))
        .await;
    let refused = run(&["list"]).await;
    assert_eq!(refused.code, 1, "{}", refused.transcript());
    assert!(
        refused.stderr.contains("SELECT on idempotency"),
        "{}",
        refused.stderr
    );
    assert_eq!(cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_write_nothing() {
    let cli = filled().await;
    let url = cli.db.url_with("options=-c%20default_transaction_read_only%3Don");
    for args in [
        &["list"][..],
        &["inspect", "shop-1", "order-7", "--show-response"],
        &["provider", "key", "shop-1", "order-1"],
    ] {
        let output = calm(idemctl(args).on(&url).run().await);
        assert_eq!(output.code, 0, "{}", output.transcript());
    }
    let before = cli.everything().await;
    let writing = calm(
        idemctl(&["release", "shop-9", "order-1", "--yes"])
            .on(&url)
            .run()
            .await,
    );
    assert_eq!(writing.code, 7, "{}", writing.transcript());
    assert!(writing.stderr.contains("read-only"), "{}", writing.stderr);
    assert_eq!(cli.everything().await, before);
}

/// A commit that waits for a standby which never comes, while everything else is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_answered_is_called_unknown() {
    let cluster = Cluster::start(ClusterOptions {
        settings: vec![
            ("synchronous_standby_names", "nobody".to_owned()),
            ("synchronous_commit", "local".to_owned()),
        ],
        ..ClusterOptions::default()
    })
    .await;
    let db = cluster.database().await;
    migrate::run(&db.settings(), None, &migrate::Options::default())
        .await
        .unwrap();
    let sql = format!(
        "insert into idempotency (client_id, key, fingerprint, locked_until)
         select 's', 'k' || i, 'f', now() - interval '1 h' from generate_series(1, 3) i;
         alter database \"{}\" set synchronous_commit = on",
        db.name
    );
    db.client.batch_execute(&sql).await.unwrap();
    let args = [
        "release",
        "--expired",
        "--yes",
        "-o",
        "json",
        "--statement-timeout",
        "500ms",
    ];
    let output = calm(idemctl(&args).on(&db.url).run().await);
    assert_eq!(output.code, 6, "{}", output.transcript());
    let view: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let results: Vec<_> = view["released"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["result"].clone())
        .collect();
    assert_eq!(results, ["unknown", "error", "error"], "{view}");
    assert!(!output.stderr.contains("not released"), "{}", output.stderr);
}
