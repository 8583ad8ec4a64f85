//! Tables that other services made.

use super::{ALL, dump, old_handler_works, old_table, run, status, value};
use crate::support::database;

/// What must not change: the file of the table, each row's version and its old columns.
const FINGERPRINT: &str = "select pg_relation_filenode('idempotency')::text || ' ' || count(*) || ' ' ||
    md5(string_agg(format('%s|%s|%s|%s|%s|%s|%s|%s|%s|%s', xmin, ctid, client_id, key, fingerprint, status,
                          locked_until, status_code, response, created_at), ',' order by client_id, key))
  from idempotency";

async fn adopts(response: &str, text: &str) {
    let db = database().await;
    old_table(&db, response, text).await;
    let before: String = value(&db.client, FINGERPRINT).await;
    assert_eq!(run(&db.settings()).await.steps.len(), ALL);
    assert_eq!(
        value::<String>(&db.client, FINGERPRINT).await,
        before,
        "no row was touched, nothing rewritten"
    );
    let first_attempt: i64 = value(
        &db.client,
        "select count(*) from idempotency where attempt = 1 and lease_token is null",
    )
    .await;
    assert_eq!(first_attempt, 10_000);
    let default: bool = value(
        &db.client,
        "select atthasdef from pg_attribute where attrelid = 'idempotency'::regclass and attname = 'locked_until'",
    )
    .await;
    assert!(default, "the missing default was added");
    assert!(status(&db.settings()).await.is_current());
    old_handler_works(&db.client).await;
    assert!(run(&db.settings()).await.steps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn json_and_text() {
    adopts("json", "text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jsonb_and_text() {
    adopts("jsonb", "text").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn jsonb_and_varchar() {
    adopts("jsonb", "varchar(200)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_defaults_stay() {
    let db = database().await;
    old_table(&db, "json", "text").await;
    db.client
        .batch_execute("alter table idempotency alter locked_until set default now() + interval '90 seconds'")
        .await
        .unwrap();
    run(&db.settings()).await;
    let default: String = value(
        &db.client,
        "select pg_get_expr(adbin, adrelid) from pg_attrdef
          where adrelid = 'idempotency'::regclass
            and adnum = (select attnum from pg_attribute
                          where attrelid = 'idempotency'::regclass and attname = 'locked_until')",
    )
    .await;
    assert!(
        default.contains("90 seconds") || default.contains("00:01:30"),
        "{default}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn own_indexes_are_not_built_again() {
    let db = database().await;
    old_table(&db, "json", "varchar(100)").await;
    db.client
        .batch_execute(
            "create index by_age on idempotency (created_at);
             create index stuck on idempotency (locked_until) where status = 'in_progress';",
        )
        .await
        .unwrap();
    run(&db.settings()).await;
    let indexes: i64 = value(
        &db.client,
        "select count(*) from pg_index where indrelid = 'idempotency'::regclass",
    )
    .await;
    assert_eq!(
        indexes,
        3,
        "the primary key and their own two: {}",
        dump(&db.client, "public").await
    );
    let status = status(&db.settings()).await;
    assert!(status.is_current());
    let served: Vec<_> = status
        .indexes
        .iter()
        .map(|index| index.served_by.as_deref())
        .collect();
    assert_eq!(served, [Some("by_age"), Some("stuck")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_that_do_not_help_are_not_taken_for_ours() {
    let db = database().await;
    old_table(&db, "json", "text").await;
    db.client
        .batch_execute(
            "create index other_rows on idempotency (created_at) where status = 'done';
             create index other_column on idempotency (status, created_at);
             create index other_kind on idempotency using brin (created_at);
             create index stuck on idempotency (locked_until) where status <> 'in_progress';",
        )
        .await
        .unwrap();
    run(&db.settings()).await;
    let status = status(&db.settings()).await;
    assert!(
        status
            .indexes
            .iter()
            .all(|index| index.served_by.as_deref() == Some(index.name.as_str())),
        "{status:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_has_some_of_our_columns_gets_the_rest() {
    let db = database().await;
    old_table(&db, "json", "text").await;
    db.client
        .batch_execute(
            "alter table idempotency add column attempt int, add column owner varchar(20), add column note text;
             alter table idempotency drop constraint idempotency_pkey;
             create unique index one_row on idempotency (key, client_id);",
        )
        .await
        .unwrap();
    run(&db.settings()).await;
    assert!(status(&db.settings()).await.is_current());
}
