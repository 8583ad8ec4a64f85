//! Ended half-way, by whatever means; the next run finishes.

use idemctl::connect::{Connection, Settings};
use idemctl::ops::migrate::{self, Options};

use super::many::wait_until;
use super::{ALL, dump, old_table, run, status, value};
use crate::support::{Database, PgbouncerOptions, Spawned, database, pgbouncer};

const DATABASE: &str = "IDEMCTL_TEST_MIGRATE";

/// Whether an index build waits for somebody's snapshot.
pub(super) const BUILDING: &str = "select exists (select from pg_stat_activity
     where datname = current_database() and query ilike '%create index concurrently%'
       and wait_event = 'virtualxid' and pid <> pg_backend_pid())";

/// A snapshot that an index build has to wait for.
pub(super) async fn snapshot(db: &Database) -> tokio_postgres::Client {
    let client = db.connect().await;
    client
        .batch_execute("begin isolation level repeatable read; select from pg_class limit 1")
        .await
        .unwrap();
    // Somebody writes, so that the snapshot is older than the build's.
    db.client
        .batch_execute("create table if not exists tick (n int); insert into tick values (1)")
        .await
        .unwrap();
    client
}

/// Runs a statement that builds an index, and ends its backend in the middle: an invalid index is left.
pub(super) async fn interrupted_index(db: &Database, statement: &str) {
    let reader = snapshot(db).await;
    let builder = db.connect().await;
    let pid: i32 = value(&builder, "select pg_backend_pid()").await;
    let statement = statement.to_owned();
    let building = tokio::spawn(async move { builder.batch_execute(&statement).await });
    wait_until(db, BUILDING).await;
    db.client
        .execute("select pg_terminate_backend($1)", &[&pid])
        .await
        .unwrap();
    building.await.unwrap().expect_err("its backend was ended");
    reader.batch_execute("commit").await.unwrap();
}

async fn expected() -> String {
    let db = database().await;
    run(&db.settings()).await;
    dump(&db.client, "public").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_was_ended_is_built_again() {
    let db = database().await;
    old_table(&db, "json", "text").await;
    let reader = snapshot(&db).await;
    let settings = db.settings();
    let running = tokio::spawn(async move { migrate::run(&settings, None, &Options::default()).await });
    wait_until(&db, BUILDING).await;
    let ended: bool = value(
        &db.client,
        "select bool_and(pg_terminate_backend(pid)) from pg_stat_activity
          where datname = current_database() and query ilike '%create index concurrently%'
            and pid <> pg_backend_pid()",
    )
    .await;
    assert!(ended);
    running.await.unwrap().expect_err("its connection is gone");
    let invalid =
        "select exists (select from pg_index where indrelid = 'idempotency'::regclass and not indisvalid)";
    wait_until(&db, invalid).await;
    let half = status(&db.settings()).await;
    assert!(!half.is_current() && half.problem.is_none(), "{half:?}");
    reader.batch_execute("commit").await.unwrap();
    run(&db.settings()).await;
    assert!(status(&db.settings()).await.is_current());
    assert!(!value::<bool>(&db.client, invalid).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_outlives_its_process_is_waited_for() {
    let db = database().await;
    old_table(&db, "json", "text").await;
    let reader = snapshot(&db).await;
    let child = Spawned::test("migrate::interrupted::child", &[(DATABASE, &db.url)]);
    wait_until(&db, BUILDING).await;
    child.kill9().await;
    let index = "select indexrelid from pg_index
                  where indexrelid = 'idempotency_created_at_idx'::regclass and not indisvalid";
    let oid: u32 = value(&db.client, index).await;

    let settings = db.settings();
    let running = tokio::spawn(async move { run(&settings).await });
    // The new run is asking, or has asked, who builds: before, during or after the end of that build.
    wait_until(
        &db,
        "select exists (select from pg_stat_activity
          where datname = current_database() and query like '%idemctl:migrate_builders%' and pid <> pg_backend_pid())",
    )
    .await;
    assert!(!running.is_finished());
    reader.batch_execute("commit").await.unwrap();
    running.await.unwrap();
    assert!(status(&db.settings()).await.is_current());
    let now: u32 = value(&db.client, "select 'idempotency_created_at_idx'::regclass::oid").await;
    assert_eq!(now, oid, "the first one's work was not thrown away");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run as a child"]
async fn child() {
    let settings = Settings::from_dsn(&std::env::var(DATABASE).unwrap()).unwrap();
    run(&settings).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_connection_died_stops_the_run() {
    let db = database().await;
    old_table(&db, "json", "text").await;
    let reader = snapshot(&db).await;
    let settings = db.settings();
    let running = tokio::spawn(async move { migrate::run(&settings, None, &Options::default()).await });
    wait_until(&db, BUILDING).await;
    let ended: bool = value(
        &db.client,
        "select bool_and(pg_terminate_backend(pid)) from pg_locks
          where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())",
    )
    .await;
    assert!(ended);
    reader.batch_execute("commit").await.unwrap();
    running
        .await
        .unwrap()
        .expect_err("it may not go on without the lock");
    run(&db.settings()).await;
    assert!(status(&db.settings()).await.is_current());
}

/// However far another run (or a person) came, without recording the last thing it did, the next one finishes.
#[tokio::test(flavor = "multi_thread")]
async fn any_number_of_statements_may_have_run() {
    let whole = expected().await;
    let db = database().await;
    let connection = Connection::open(&db.settings()).await.unwrap();
    let plan = migrate::plan(&connection, None, &migrate::Options::default())
        .await
        .unwrap();
    let statements: Vec<String> = plan.steps.into_iter().flat_map(|step| step.statements).collect();
    for count in 0..=statements.len() {
        let db = database().await;
        for statement in &statements[..count] {
            db.client.batch_execute(statement).await.unwrap();
        }
        assert_eq!(
            run(&db.settings()).await.steps.len(),
            ALL,
            "after {count} statements"
        );
        assert_eq!(
            dump(&db.client, "public").await,
            whole,
            "after {count} statements"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_was_dropped_or_broken_later_is_mended() {
    let _private = crate::support::privately("it writes into a catalogue");
    let db = database().await;
    run(&db.settings()).await;
    let whole = dump(&db.client, "public").await;
    db.client
        .batch_execute(
            "drop index idempotency_expired_idx;
             update pg_index set indisvalid = false where indexrelid = 'idempotency_created_at_idx'::regclass",
        )
        .await
        .unwrap();
    let broken = status(&db.settings()).await;
    assert!(!broken.is_current());
    assert!(broken.indexes.iter().all(|index| !index.valid), "{broken:?}");
    assert_eq!(run(&db.settings()).await.steps.len(), 2);
    assert_eq!(dump(&db.client, "public").await, whole);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_through_a_pooler_can_wait() {
    let _private = crate::support::privately("a pooler stands before its server");
    let db = database().await;
    old_table(&db, "json", "text").await;
    let pooler = pgbouncer(&db, PgbouncerOptions::default()).await;
    let reader = snapshot(&db).await;
    let settings = pooler.settings();
    let running = tokio::spawn(async move { run(&settings).await });
    wait_until(&db, BUILDING).await;
    reader.batch_execute("commit").await.unwrap();
    running.await.unwrap();
    assert!(status(&db.settings()).await.is_current());
}
