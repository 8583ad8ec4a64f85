//! What only a Citus cluster shows. These tests run by hand, against a coordinator:
//! `IDEMCTL_TEST_DATABASE_URL=postgres://... tests/run --locked --test it citus:: -- --include-ignored`

#![expect(clippy::unwrap_used, reason = "a test helper may panic")]

mod kill;
mod migrate;
mod work;

use crate::support::{Database, database, idemctl};

/// A fresh database of the cluster; the test fails where the server has no Citus.
async fn cluster() -> Database {
    let db = database().await;
    assert!(
        db.is_citus(),
        "IDEMCTL_TEST_DATABASE_URL has to lead to the coordinator of a Citus cluster"
    );
    db
}

/// The same, migrated.
async fn distributed() -> Database {
    let db = cluster().await;
    idemctl(&["migrate", "--citus"]).on(&db.url).run().await.ok();
    db
}

async fn text(db: &Database, query: &str) -> String {
    let row = db.client.query_one(query, &[]).await;
    row.unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
}

/// How Citus holds each of our tables, and how many shards there are of the keys.
async fn held(db: &Database) -> String {
    text(
        db,
        "select coalesce(string_agg(format('%s %s %s', c.relname, coalesce(p.partmethod::text, 'plain'),
                           column_to_column_name(p.logicalrelid, p.partkey)), ', ' order by c.relname), '')
           from pg_class c left join pg_dist_partition p on p.logicalrelid = c.oid
          where c.relkind = 'r' and c.relname in ('idempotency', 'idempotency_event', 'idempotency_job')
            and c.relnamespace = 'public'::regnamespace",
    )
    .await
}

const HELD: &str = "idempotency h client_id, idempotency_event n , idempotency_job plain ";
