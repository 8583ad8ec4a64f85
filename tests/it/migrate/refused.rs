//! What must not be migrated is refused, with the reason, and nothing is changed.

use idemctl::error::Error;
use idemctl::ops::migrate::{self, MigrationState, Options};

use super::{dump, old_table, run, status};
use crate::support::{Database, database};

/// Migrates, expects a refusal that says all of `parts`, and that nothing was changed.
async fn refused(db: &Database, parts: &[&str]) {
    refused_as(db, &db.settings(), parts).await;
}

async fn refused_as(db: &Database, settings: &idemctl::connect::Settings, parts: &[&str]) {
    let before = dump(&db.client, "public").await;
    let error = migrate::run(settings, None, &Options::default())
        .await
        .expect_err("it is refused");
    assert!(matches!(error, Error::Migration { .. }), "{error:?}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
    assert_eq!(dump(&db.client, "public").await, before);
    let status = status(settings).await;
    assert!(!status.is_current());
    assert_eq!(status.problem, Some(error.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn tables_of_another_shape() {
    for (change, part) in [
        (
            "alter table idempotency drop column fingerprint",
            "column fingerprint is missing",
        ),
        (
            "alter table idempotency alter status_code type text",
            "column status_code is text",
        ),
        (
            "alter table idempotency alter response type text",
            "column response is text, not json or jsonb",
        ),
        (
            "alter table idempotency alter created_at type timestamp",
            "column created_at is timestamp without",
        ),
        (
            "alter table idempotency add column attempt text",
            "column attempt is text, not integer",
        ),
        (
            "alter table idempotency add column lease_token text",
            "column lease_token is text, not uuid",
        ),
        (
            "alter table idempotency add column tenant int not null",
            "column tenant is not null",
        ),
        (
            "alter table idempotency alter response set not null",
            "column response is not null",
        ),
        (
            "alter table idempotency drop constraint idempotency_pkey",
            "no primary key",
        ),
        (
            "alter table idempotency drop constraint idempotency_pkey, add primary key (key)",
            "the unique index idempotency_pkey does not cover (client_id, key)",
        ),
        (
            "create unique index mine on idempotency (key)",
            "the unique index mine does not cover (client_id, key)",
        ),
        (
            "alter table idempotency drop constraint idempotency_pkey,
                         add primary key (client_id, key) deferrable",
            "no primary key or immediate unique index on (client_id, key)",
        ),
        (
            "alter table idempotency alter locked_until drop not null",
            "column locked_until may be null",
        ),
        (
            "create table idempotency_event (id int)",
            "idempotency_event is not ours: column at is missing",
        ),
        (
            "create table idempotency_migration (id int)",
            "idempotency_migration is not ours",
        ),
        (
            "create view idempotency_event as select 1",
            "idempotency_event is there, but it is not a table",
        ),
        (
            "create index idempotency_created_at_idx on idempotency (status)",
            "idempotency_created_at_idx",
        ),
    ] {
        let db = database().await;
        old_table(&db, "json", "text").await;
        db.client.batch_execute("truncate idempotency").await.unwrap();
        db.client.batch_execute(change).await.unwrap();
        if change.contains("idempotency_migration") {
            // Its rows cannot be read, so there is no status either.
            let error = migrate::run(&db.settings(), None, &Options::default())
                .await
                .expect_err("not ours");
            assert!(error.to_string().contains(part), "{error}");
        } else {
            refused(&db, &[part]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_no_table() {
    let db = database().await;
    db.client
        .batch_execute("create view idempotency as select 1 as client_id")
        .await
        .unwrap();
    refused(&db, &["public.idempotency is there, but it is not a table"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_changed_after_it_ran() {
    let db = database().await;
    run(&db.settings()).await;
    db.client
        .batch_execute("update idempotency_migration set sha256 = repeat('0', 64) where version = 2")
        .await
        .unwrap();
    refused(&db, &["migrations/0002_keys.sql was changed", &"0".repeat(64)]).await;
    assert_eq!(
        status(&db.settings()).await.migrations[1].state,
        MigrationState::Changed
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_newer() {
    let db = database().await;
    run(&db.settings()).await;
    db.client
        .batch_execute(
            "insert into idempotency_migration values (99, 'later', 'x', now(), '9.1.0');
             drop index idempotency_expired_idx",
        )
        .await
        .unwrap();
    refused(
        &db,
        &[
            "migration 99 (later)",
            "applied by idemctl 9.1.0",
            "knows migrations 1 to 6",
        ],
    )
    .await;
    let status = status(&db.settings()).await;
    assert_eq!(status.migrations.last().unwrap().state, MigrationState::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_in_the_record() {
    let db = database().await;
    run(&db.settings()).await;
    db.client
        .batch_execute("delete from idempotency_migration where version = 3")
        .await
        .unwrap();
    refused(&db, &["migrations/0003_events.sql is not recorded"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_recorded_and_gone() {
    let db = database().await;
    run(&db.settings()).await;
    db.client.batch_execute("drop table idempotency").await.unwrap();
    refused(
        &db,
        &["public.idempotency is missing although migration 2 is recorded"],
    )
    .await;
    let db = database().await;
    run(&db.settings()).await;
    db.client
        .batch_execute("alter table idempotency drop column lease_token")
        .await
        .unwrap();
    refused(&db, &["column lease_token is missing"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_privileges_are_named() {
    let _private = crate::support::privately("it makes roles");
    let db = database().await;
    let role = format!("poor_{}", db.name);
    db.client
        .batch_execute(&format!(
            "create role {role} login; revoke create on schema public from public"
        ))
        .await
        .unwrap();
    let mut url = db.url.replacen("idemctl@", &format!("{role}@"), 1);
    if url == db.url {
        url = db.url.replacen("user=idemctl", &format!("user={role}"), 1);
    }
    let poor = crate::support::settings(&url);
    refused_as(
        &db,
        &poor,
        &[&role, "lacks CREATE and USAGE on schema public", "grant create"],
    )
    .await;

    let error = migrate::run(&poor, Some("fresh"), &Options::default())
        .await
        .expect_err("no CREATE");
    assert!(error.to_string().contains("lacks CREATE on database"), "{error}");

    db.client
        .batch_execute(&format!("grant create on schema public to {role}"))
        .await
        .unwrap();
    old_table(&db, "json", "text").await;
    refused_as(
        &db,
        &poor,
        &["public.idempotency belongs to role idemctl", "only its owner"],
    )
    .await;

    db.client
        .batch_execute(&format!("alter table idempotency owner to {role}"))
        .await
        .unwrap();
    run(&poor).await;
    // Nothing is left to do, so nothing is needed either.
    db.client
        .batch_execute(&format!(
            "revoke create on schema public from {role}; alter table idempotency owner to idemctl;
             grant select on idempotency to {role}"
        ))
        .await
        .unwrap();
    assert!(run(&poor).await.steps.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_names_of_schemas() {
    let db = database().await;
    let long = "s".repeat(64);
    for name in [
        "",
        "a'b",
        "a\"b",
        "a$$b",
        "{keys}",
        "100%",
        "a\\b",
        "pg_catalog",
        "a\nb",
        &long,
    ] {
        let error = migrate::run(&db.settings(), Some(name), &Options::default())
            .await
            .expect_err("an odd name");
        assert!(
            matches!(error, Error::Invalid { field: "schema", .. }),
            "{name}: {error:?}"
        );
    }
}
