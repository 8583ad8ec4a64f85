//! A migration that is ended in the middle of what Citus is told, and gone on with.

use super::{HELD, cluster, held, text};
use crate::protocol::OLD_TABLE;
use crate::support::{Database, idemctl, until};

/// Ends a run without a word while its statement waits behind `lock`, then lets the next run finish.
async fn killed_at(db: &Database, statement: &str, lock: &str) {
    let blocker = db.connect().await;
    blocker
        .batch_execute(&format!("begin; lock table {lock}"))
        .await
        .unwrap();
    let run = idemctl(&["migrate", "--citus"]).on(&db.url).spawn();
    let waiting = format!(
        "select exists (select from pg_stat_activity where datname = current_database() and state = 'active'
                          and wait_event_type = 'Lock' and query ilike '%{statement}%' and pid <> pg_backend_pid())::text"
    );
    until(&format!("it waits at {statement}"), async || {
        text(db, &waiting).await == "true"
    })
    .await;
    run.kill9().await;
    blocker.batch_execute("commit").await.unwrap();
    idemctl(&["migrate", "--citus"]).on(&db.url).run().await.ok();
    assert_eq!(held(db).await, HELD, "{statement}");
    let status = idemctl(&["migrate", "status"]).on(&db.url).run().await;
    assert_eq!(status.code, 0, "{statement}: {}", status.transcript());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn while_the_keys_are_distributed() {
    killed_at(
        &cluster().await,
        "create_distributed_table(",
        "pg_dist_partition in share row exclusive mode",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn while_the_event_log_is_joined() {
    let db = cluster().await;
    db.client
        .batch_execute(&format!(
            "{OLD_TABLE}; select create_distributed_table('idempotency', 'client_id')"
        ))
        .await
        .unwrap();
    killed_at(
        &db,
        "citus_add_local_table_to_metadata(",
        "pg_dist_partition in share row exclusive mode",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn while_an_index_is_built() {
    let db = cluster().await;
    idemctl(&["migrate", "--citus"]).on(&db.url).run().await.ok();
    db.client
        .batch_execute("drop index idempotency_created_at_idx")
        .await
        .unwrap();
    killed_at(
        &db,
        "create index concurrently",
        "idempotency in share update exclusive mode",
    )
    .await;
}
