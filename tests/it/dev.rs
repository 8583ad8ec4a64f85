//! The private PostgreSQL, and the helpers of these tests.

use crate::support::{PgbouncerOptions, database, pgbouncer};

#[tokio::test(flavor = "multi_thread")]
async fn every_test_has_its_own_database() {
    let (one, two) = tokio::join!(database(), database());
    assert_ne!(one.name, two.name);
    one.client.batch_execute("create table t (x int)").await.unwrap();
    two.client.batch_execute("create table t (x int)").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbouncer_leads_to_the_database() {
    let db = database().await;
    let pooler = pgbouncer(&db, PgbouncerOptions::default()).await;
    let (client, connection) = tokio_postgres::connect(&pooler.url, tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    let name: String = client
        .query_typed("select current_database()::text", &[])
        .await
        .unwrap()[0]
        .get(0);
    assert_eq!(name, db.name);
}
