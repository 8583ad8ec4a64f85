//! The printed script, run by a person with psql.

use idemctl::connect::Connection;
use idemctl::ops::migrate;

use super::{dump, old_table, run, status};
use crate::support::{Database, Run, database, require_program};

/// Runs a script as a DBA would.
async fn psql(db: &Database, script: &str) {
    let program = require_program("psql", "postgresql-client");
    let args = [
        "--no-psqlrc",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-f",
        "-",
        "-d",
        &db.url,
    ];
    Run::new(&program.to_string_lossy(), &args)
        .stdin(script)
        .run()
        .await
        .ok();
}

/// The script gives what a run gives, on databases that `prepare` made alike.
async fn same(prepare: impl AsyncFn(&Database), schema: Option<&str>) {
    let (by_hand, by_run) = (database().await, database().await);
    prepare(&by_hand).await;
    prepare(&by_run).await;
    let connection = Connection::open(&by_hand.settings()).await.unwrap();
    let script = migrate::plan(&connection, schema, &migrate::Options::default())
        .await
        .unwrap()
        .to_sql();
    psql(&by_hand, &script).await;
    migrate::run(&by_run.settings(), schema, &migrate::Options::default())
        .await
        .unwrap();
    let place = schema.unwrap_or("public");
    let made = dump(&by_hand.client, place).await;
    assert_eq!(made, dump(&by_run.client, place).await);
    assert!(made.contains("migration 6 jobs"), "{made}");
    let plan = migrate::plan(&connection, schema, &migrate::Options::default())
        .await
        .unwrap();
    assert!(plan.is_empty() && plan.to_sql().is_empty(), "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_fresh_database() {
    same(async |_| {}, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_schema_of_its_own() {
    same(async |_| {}, Some("pay")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_an_old_table() {
    same(async |db| old_table(db, "jsonb", "varchar(100)").await, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_partitioned_table() {
    same(
        async |db| {
            db.client
                .batch_execute(
                    "create table idempotency (
                         client_id text not null, key text not null, fingerprint text not null,
                         status text not null, locked_until timestamptz not null, status_code int,
                         response json, created_at timestamptz not null default now(),
                         primary key (client_id, key)) partition by hash (client_id);
                     create table p0 partition of idempotency for values with (modulus 2, remainder 0);
                     create table p1 partition of idempotency for values with (modulus 2, remainder 1);",
                )
                .await
                .unwrap();
        },
        None,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rest_of_an_interrupted_run() {
    let _private = crate::support::privately("it writes into a catalogue");
    same(
        async |db| {
            run(&db.settings()).await;
            db.client
                .batch_execute(
                    "delete from idempotency_migration where version >= 5;
                     drop table idempotency_job;
                     update pg_index set indisvalid = false where indexrelid = 'idempotency_expired_idx'::regclass",
                )
                .await
                .unwrap();
            assert!(!status(&db.settings()).await.is_current());
        },
        None,
    )
    .await;
}
