//! Migrations on a real PostgreSQL: fresh, adopted, many at once, interrupted, refused.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test helper may panic")]

mod adopt;
mod by_hand;
mod cli;
mod interrupted;
mod many;
mod partitioned;
mod refused;
mod tidy;

use idemctl::connect::{Connection, Settings};
use idemctl::ops::migrate::{self, MigrationState, Options, Report, Status};
use tokio_postgres::Client;

use crate::support::{Database, database};

/// How many migrations there are.
const ALL: usize = 6;

/// Migrates; the test fails unless that works.
async fn run(settings: &Settings) -> Report {
    migrate::run(settings, None, &Options::default())
        .await
        .expect("it migrates")
}

async fn status(settings: &Settings) -> Status {
    let connection = Connection::open(settings).await.expect("a connection");
    migrate::status(&connection, None).await.expect("a status")
}

/// Everything of the catalogue that a migration could change, as sorted lines; and what it recorded.
async fn dump(client: &Client, schema: &str) -> String {
    let mut lines = Vec::new();
    for query in [
        "select format('column %s.%s %s %s default %s identity %s', c.relname, a.attname,
                       format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
                       pg_get_expr(d.adbin, d.adrelid), a.attidentity)
           from pg_attribute a join pg_class c on c.oid = a.attrelid
           left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
          where c.relnamespace = $1::text::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0
            and not a.attisdropped",
        "select format('index %s valid %s parent %s', pg_get_indexdef(i.indexrelid), i.indisvalid,
                       (select inhparent::regclass from pg_inherits where inhrelid = i.indexrelid))
           from pg_index i join pg_class c on c.oid = i.indrelid
          where c.relnamespace = $1::text::regnamespace",
        // From PostgreSQL 18 on, "not null" is a constraint of its own too.
        "select format('constraint %s %s', conname, pg_get_constraintdef(oid))
           from pg_constraint where contype <> 'n' and connamespace = $1::text::regnamespace",
    ] {
        let rows = client
            .query(query, &[&schema])
            .await
            .expect("the catalogue can be read");
        lines.extend(
            rows.iter()
                .map(|row| row.get::<_, String>(0).replace(&format!("{schema}."), "")),
        );
    }
    lines.sort();
    let recorded: Option<String> = client
        .query_one(
            "select to_regclass($1 || '.idempotency_migration')::text",
            &[&schema],
        )
        .await
        .unwrap()
        .get(0);
    if recorded.is_some() {
        let query = format!(
            "select format('migration %s %s %s %s', version, name, sha256, app_version)
               from {schema}.idempotency_migration order by version"
        );
        lines.extend(
            client
                .query(&query, &[])
                .await
                .unwrap()
                .iter()
                .map(|row| row.get::<_, String>(0)),
        );
    }
    lines.join("\n")
}

/// One value of one row.
async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(client: &Client, query: &str) -> T {
    client
        .query_one(query, &[])
        .await
        .unwrap_or_else(|error| panic!("{query}: {error}"))
        .get(0)
}

/// The table as a service in another language has it, with its own habits.
async fn old_table(db: &Database, response: &str, text: &str) {
    db.client
        .batch_execute(&format!(
            "create table idempotency (
                 client_id {text} not null,
                 key {text} not null,
                 fingerprint {text} not null,
                 status {text} not null default 'in_progress',
                 locked_until timestamptz not null,
                 status_code int,
                 response {response},
                 created_at timestamptz not null default now(),
                 primary key (client_id, key));
             insert into idempotency
             select 'shop-' || n % 7, 'order-' || n, repeat('ab', 32), case when n % 9 = 0 then 'in_progress' else 'done' end,
                    now() + n * interval '1 second', 201, '{{\"n\": 1.10,  \"id\": 7}}', now() - n * interval '1 second'
               from generate_series(1, 10000) n;"
        ))
        .await
        .expect("an old table");
}

/// The statements of a handler that knows the first columns only.
async fn old_handler_works(client: &Client) {
    let claim = "insert into idempotency as t (client_id, key, fingerprint, status, locked_until)
         values ('old', 'k', repeat('cd', 32), 'in_progress', now() + interval '30 seconds')
         on conflict (client_id, key) do update
            set locked_until = excluded.locked_until, fingerprint = excluded.fingerprint
          where t.status = 'in_progress' and t.locked_until < now() and t.fingerprint = excluded.fingerprint
         returning client_id";
    assert_eq!(
        client.query(claim, &[]).await.unwrap().len(),
        1,
        "the first one gets it"
    );
    assert_eq!(
        client.query(claim, &[]).await.unwrap().len(),
        0,
        "the second one does not"
    );
    let done = "update idempotency set status = 'done', status_code = 201, response = '{\"id\":  1}'
                 where client_id = 'old' and key = 'k' and status = 'in_progress'";
    assert_eq!(client.execute(done, &[]).await.unwrap(), 1);
    let row = client
        .query_one(
            "select fingerprint, status, status_code, response::text from idempotency
              where client_id = 'old' and key = 'k'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get::<_, &str>(1), row.get::<_, i32>(2)), ("done", 201));
    let delete = "delete from idempotency where client_id = 'old' and status = 'done'
                   and created_at < now() + interval '1 day'";
    assert_eq!(client.execute(delete, &[]).await.unwrap(), 1);
    let odd =
        "insert into idempotency (client_id, key, fingerprint, status) values ('old', 'o', 'x', 'paid')";
    assert_eq!(
        client.execute(odd, &[]).await.unwrap(),
        1,
        "any word may stand in status"
    );
    client
        .execute("delete from idempotency where client_id = 'old'", &[])
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_database_gets_the_tables_of_the_protocol() {
    let db = database().await;
    let before = status(&db.settings()).await;
    assert!(!before.is_current());
    assert!(
        before
            .migrations
            .iter()
            .all(|migration| migration.state == MigrationState::Pending)
    );
    let report = run(&db.settings()).await;
    assert_eq!((report.schema.as_str(), report.steps.len()), ("public", ALL));
    insta::assert_snapshot!(dump(&db.client, "public").await);
    let after = status(&db.settings()).await;
    assert!(after.is_current(), "{after:?}");
    assert!(
        after
            .migrations
            .iter()
            .all(|migration| migration.applied_at.is_some())
    );
    old_handler_works(&db.client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_does_nothing() {
    let db = database().await;
    run(&db.settings()).await;
    let before = dump(&db.client, "public").await;
    assert!(run(&db.settings()).await.steps.is_empty());
    assert_eq!(dump(&db.client, "public").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_schema_is_made_and_only_that() {
    let db = database().await;
    let report = migrate::run(&db.settings(), Some("Pay-ments"), &Options::default())
        .await
        .expect("a name to be quoted");
    assert_eq!((report.schema.as_str(), report.steps.len()), ("Pay-ments", ALL));
    assert!(
        value::<bool>(
            &db.client,
            "select to_regclass('\"Pay-ments\".idempotency') is not null"
        )
        .await
    );
    assert!(value::<bool>(&db.client, "select to_regclass('public.idempotency') is null").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_search_path_finds_the_table() {
    let db = database().await;
    let settings = db.settings();
    migrate::run(&settings, Some("pay"), &Options::default())
        .await
        .unwrap();
    db.client
        .batch_execute(&format!(
            "alter database {} set search_path = nowhere, pay, public",
            db.name
        ))
        .await
        .unwrap();
    let report = run(&settings).await;
    assert_eq!((report.schema.as_str(), report.steps.len()), ("pay", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_a_run_does_and_changes_nothing() {
    let db = database().await;
    old_table(&db, "jsonb", "text").await;
    let before = dump(&db.client, "public").await;
    let dry = Options {
        dry_run: true,
        ..Options::default()
    };
    let said = migrate::run(&db.settings(), None, &dry).await.unwrap();
    assert_eq!(dump(&db.client, "public").await, before);
    let done = run(&db.settings()).await;
    assert_eq!(said.steps, done.steps);
    assert!(said.dry_run && !done.dry_run);
}

#[tokio::test(flavor = "multi_thread")]
async fn defaults_of_the_database_do_not_matter() {
    let db = database().await;
    // Each of these would end the transaction that holds the lock, or make it hold a snapshot.
    db.client
        .batch_execute(&format!(
            "alter database {0} set default_transaction_isolation = 'repeatable read';
             alter database {0} set idle_in_transaction_session_timeout = '1ms'",
            db.name
        ))
        .await
        .unwrap();
    assert_eq!(run(&db.settings()).await.steps.len(), ALL);
}
