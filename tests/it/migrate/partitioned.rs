//! A table that is partitioned by hash of the client.

use idemctl::ops::migrate::{self, Options};

use super::interrupted::interrupted_index;
use super::{ALL, dump, old_handler_works, run, status, value};
use crate::support::{Database, database};

/// Four partitions, one of them partitioned again and one in another schema with a long name.
async fn partitioned_table(db: &Database) {
    db.client
        .batch_execute(
            "create table idempotency (
                 client_id text not null, key text not null, fingerprint text not null,
                 status text not null default 'in_progress',
                 locked_until timestamptz not null default now() + interval '30 s',
                 status_code int, response jsonb, created_at timestamptz not null default now(),
                 primary key (client_id, key)) partition by hash (client_id);
             create table p0 partition of idempotency for values with (modulus 4, remainder 0);
             create table p1 partition of idempotency for values with (modulus 4, remainder 1);
             create table p2 partition of idempotency for values with (modulus 4, remainder 2)
                 partition by hash (key);
             create table p2a partition of p2 for values with (modulus 2, remainder 0);
             create table p2b partition of p2 for values with (modulus 2, remainder 1);
             create schema other;
             create table other.a_partition_whose_name_leaves_no_room_for_anything_at_its_end partition of idempotency
                 for values with (modulus 4, remainder 3);
             insert into idempotency (client_id, key, fingerprint)
             select 'shop-' || n % 50, 'order-' || n, repeat('ab', 32) from generate_series(1, 10000) n;",
        )
        .await
        .expect("a partitioned table");
}

const FILES: &str = "select string_agg(pg_relation_filenode(relid)::text, ',' order by relid)
                       from pg_partition_tree('idempotency') where isleaf";

async fn check(db: &Database) {
    assert!(status(&db.settings()).await.is_current());
    for index in ["idempotency_created_at_idx", "idempotency_expired_idx"] {
        let parts: i64 = value(
            &db.client,
            &format!(
                "select count(*) from pg_partition_tree('{index}') t join pg_index i on i.indexrelid = t.relid
                  where i.indisvalid"
            ),
        )
        .await;
        assert_eq!(parts, 7, "{index}: the parent, five leaves and one in between");
    }
    old_handler_works(&db.client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_adopted_without_rewriting() {
    let db = database().await;
    partitioned_table(&db).await;
    let before: String = value(&db.client, FILES).await;
    assert_eq!(run(&db.settings()).await.steps.len(), ALL);
    assert_eq!(value::<String>(&db.client, FILES).await, before);
    check(&db).await;
    assert!(run(&db.settings()).await.steps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_added_later_is_served_too() {
    let db = database().await;
    db.client
        .batch_execute(
            "create table idempotency (
                 client_id text not null, key text not null, fingerprint text not null,
                 status text not null default 'in_progress', locked_until timestamptz not null default now(),
                 status_code int, response json, created_at timestamptz not null default now(),
                 primary key (client_id, key)) partition by hash (client_id);
             create table p0 partition of idempotency for values with (modulus 2, remainder 0);",
        )
        .await
        .unwrap();
    run(&db.settings()).await;
    db.client
        .batch_execute("create table p1 partition of idempotency for values with (modulus 2, remainder 1)")
        .await
        .unwrap();
    assert!(status(&db.settings()).await.is_current());
    assert!(run(&db.settings()).await.steps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn is_finished_from_any_point() {
    let db = database().await;
    partitioned_table(&db).await;
    let connection = idemctl::connect::Connection::open(&db.settings()).await.unwrap();
    let plan = migrate::plan(&connection, None, &migrate::Options::default())
        .await
        .unwrap();
    let whole = {
        run(&db.settings()).await;
        dump(&db.client, "public").await
    };
    let statements: Vec<String> = plan.steps.into_iter().flat_map(|step| step.statements).collect();
    let online = statements
        .iter()
        .position(|sql| sql.contains("index") && sql.contains("only"))
        .unwrap();
    for count in online..=statements.len() {
        let db = database().await;
        partitioned_table(&db).await;
        for statement in &statements[..count] {
            // A long name holds the table's oid, which is another one here.
            if let Err(error) = db.client.batch_execute(statement).await {
                assert!(statement.contains("idempotency_1"), "{statement}: {error}");
                break;
            }
        }
        run(&db.settings()).await;
        check(&db).await;
        let now = dump(&db.client, "public").await;
        assert_eq!(now, whole, "after {count} statements");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_part_is_built_again() {
    let db = database().await;
    partitioned_table(&db).await;
    interrupted_index(
        &db,
        "create index concurrently p1_created_at_idx on p1 (created_at)",
    )
    .await;
    migrate::run(&db.settings(), None, &Options::default())
        .await
        .unwrap();
    check(&db).await;
}

/// A new table in so many partitions, by the command; run again, as each deploy does.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_table_is_made_in_partitions_when_asked() {
    let db = database().await;
    let migrate = async |args: &[&str]| {
        let args: Vec<&str> = std::iter::once("migrate").chain(args.iter().copied()).collect();
        crate::support::idemctl(&args).on(&db.url).run().await
    };
    let script = migrate(&["--partitions", "16", "--show-sql", "--schema", "by_hand"])
        .await
        .ok();
    assert!(
        !script.contains("concurrently if"),
        "refused on a partitioned table: {script}"
    );
    let planned = migrate(&["--partitions", "16", "--dry-run", "-o", "json"])
        .await
        .ok();
    assert!(planned.contains("modulus 16, remainder 15"), "{planned}");
    migrate(&["--partitions", "16"]).await.ok();
    let leaves = "select count(*) from pg_partition_tree('idempotency') where isleaf";
    assert_eq!(value::<i64>(&db.client, leaves).await, 16);
    assert!(status(&db.settings()).await.is_current());
    old_handler_works(&db.client).await;
    let again = migrate(&["--partitions", "16", "-o", "json"]).await.ok();
    assert!(again.contains("\"steps\": []"), "{again}");
    let other = migrate(&["--partitions", "8"]).await;
    assert_eq!(other.code, 9, "{}", other.transcript());
    assert!(
        other.stderr.contains("has 16 partitions, not 8"),
        "{}",
        other.transcript()
    );
    for bad in ["1", "1001"] {
        assert_eq!(migrate(&["--partitions", bad]).await.code, 2);
    }
    // The script does the same.
    db.client.batch_execute("create schema by_hand").await.unwrap();
    let script = migrate(&["--partitions", "16", "--show-sql", "--schema", "by_hand"])
        .await
        .ok();
    db.client.batch_execute(&script).await.unwrap();
    let leaves = leaves.replace("'idempotency'", "'by_hand.idempotency'");
    assert_eq!(value::<i64>(&db.client, &leaves).await, 16);
    let there = migrate(&["status", "--schema", "by_hand"]).await;
    assert_eq!(there.code, 0, "{}", there.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_table_is_never_split() {
    let db = database().await;
    run(&db.settings()).await;
    let before = dump(&db.client, "public").await;
    let options = Options {
        partitions: Some(4),
        ..Options::default()
    };
    let refused = migrate::run(&db.settings(), None, &options).await.unwrap_err();
    assert!(refused.to_string().contains("is not partitioned"), "{refused}");
    assert_eq!(dump(&db.client, "public").await, before);
}
