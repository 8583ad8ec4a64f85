//! Many runs at once, poolers, and locks that others hold.

use std::time::{Duration, Instant};

use idemctl::connect::Settings;
use idemctl::error::Error;
use idemctl::ops::migrate::{self, Options};

use super::{ALL, dump, old_table, run, status, value};
use crate::support::{Database, PgbouncerOptions, database, pgbouncer};

/// Eight runs, all of which succeed; each step is done by one of them only.
async fn eight(settings: &Settings, db: &Database) {
    let runs: Vec<_> = (0..8)
        .map(|_| {
            let settings = settings.clone();
            tokio::spawn(async move { migrate::run(&settings, None, &Options::default()).await })
        })
        .collect();
    let mut steps = 0;
    for run in runs {
        steps += run.await.unwrap().expect("each of them succeeds").steps.len();
    }
    assert_eq!(steps, ALL);
    assert_eq!(
        value::<i64>(&db.client, "select count(*) from idempotency_migration").await,
        6
    );
    assert!(status(settings).await.is_current());
    let idle: i64 = value(
        &db.client,
        "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())",
    )
    .await;
    assert_eq!(idle, 0, "no lock is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_at_once_on_an_empty_database() {
    let db = database().await;
    eight(&db.settings(), &db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_at_once_on_an_old_table() {
    let db = database().await;
    old_table(&db, "jsonb", "text").await;
    eight(&db.settings(), &db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_at_once_through_a_pooler() {
    let _private = crate::support::privately("a pooler stands before its server");
    let db = database().await;
    let pooler = pgbouncer(&db, PgbouncerOptions::default()).await;
    eight(&pooler.settings(), &db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_with_one_connection_is_told_of() {
    let _private = crate::support::privately("a pooler stands before its server");
    let db = database().await;
    let pooler = pgbouncer(
        &db,
        PgbouncerOptions {
            pool_size: 1,
            ..PgbouncerOptions::default()
        },
    )
    .await;
    let mut settings = pooler.settings();
    settings.timeouts.connect = Duration::from_secs(2);
    let error = migrate::run(&settings, None, &Options::default())
        .await
        .expect_err("one is not enough");
    assert!(matches!(error, Error::Migration { .. }), "{error:?}");
    assert!(error.to_string().contains("two server connections"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_reader_makes_nobody_queue_behind_us() {
    let db = database().await;
    old_table(&db, "json", "text").await;
    let reader = db.connect().await;
    reader
        .batch_execute("begin; select from idempotency limit 1")
        .await
        .unwrap();
    let before = dump(&db.client, "public").await;

    let settings = db.settings();
    let options = Options {
        lock_timeout: Duration::from_millis(200),
        lock_patience: Duration::from_secs(2),
        ..Options::default()
    };
    let running = tokio::spawn(async move { migrate::run(&settings, None, &options).await });
    let mut slowest = Duration::ZERO;
    let mut writes = 0;
    while !running.is_finished() {
        let start = Instant::now();
        db.client
            .execute(
                "update idempotency set status_code = 200 where client_id = 'shop-1' and key = 'order-1'",
                &[],
            )
            .await
            .unwrap();
        slowest = slowest.max(start.elapsed());
        writes += 1;
    }
    let error = running.await.unwrap().expect_err("the reader is still there");
    assert!(matches!(error, Error::Migration { .. }), "{error:?}");
    let pid: i32 = value(&reader, "select pg_backend_pid()").await;
    assert!(error.to_string().contains(&format!("pid {pid}")), "{error}");
    assert!(
        slowest < Duration::from_millis(1500),
        "a write waited {slowest:?}"
    );
    assert!(writes > 20, "{writes}");
    let now = dump(&db.client, "public").await;
    assert!(now.contains(&before.lines().take(3).collect::<Vec<_>>().join("\n")));
    assert!(!now.contains("lease_token"), "the table was left alone");

    // With patience, it goes through as soon as the reader is gone.
    let settings = db.settings();
    let running = tokio::spawn(async move { run(&settings).await });
    wait_until(
        &db,
        "select exists (select from pg_locks where locktype = 'advisory' and granted)",
    )
    .await;
    reader.batch_execute("commit").await.unwrap();
    running.await.unwrap();
    assert!(status(&db.settings()).await.is_current());
}

/// Waits for a condition to become true in the database.
pub(super) async fn wait_until(db: &Database, condition: &str) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !value::<bool>(&db.client, condition).await {
        assert!(Instant::now() < deadline, "never true: {condition}");
        tokio::task::yield_now().await;
    }
}
