//! The TTL purge on a real table.

mod adapt;
mod left;
mod limits;
mod rows;

use std::time::Duration;

use idemctl::connect::Connection;
use idemctl::ops::actor::Actor;
use idemctl::ops::migrate;
use idemctl::ops::purge::{self, Report, Request, Retention};
use idemctl::stop::Stop;
use idemctl::store::Store;

use crate::support::{Database, database};

/// A migrated database with a connection of ours.
pub(crate) struct Fixture {
    pub(crate) db: Database,
    pub(crate) conn: Connection,
    pub(crate) store: Store,
}

pub(crate) async fn fixture() -> Fixture {
    migrated(database().await).await
}

/// The same, on a database that may already hold a table.
pub(crate) async fn migrated(db: Database) -> Fixture {
    migrate::run(&db.settings(), None, &db.migration().await)
        .await
        .unwrap();
    let conn = Connection::open(&db.settings()).await.unwrap();
    let store = Store::open(&conn, None).await.unwrap();
    Fixture { db, conn, store }
}

impl Fixture {
    pub(crate) async fn execute(&self, sql: &str) {
        self.db.client.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.db.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn keys(&self) -> Vec<String> {
        let rows = self
            .db
            .client
            .query("select key from idempotency order by client_id, key", &[])
            .await;
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// Rows `done` that were created and completed some hours ago, one second apart.
    pub(crate) async fn done(&self, rows: u32, hours: u32) {
        self.execute(&format!(
            "insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at, locked_until)
             select 'shop-' || i % 7, 'k' || i, '', 'done', at, at, at
               from generate_series(1, {rows}) i, lateral (select now() - interval '{hours} hours'
                    + i * interval '1 second' as at) t"
        ))
        .await;
    }

    pub(crate) async fn purge(&mut self, request: &Request) -> Report {
        purge::run(&mut self.conn, &self.store, request, &mut |_| {}, &Stop::never())
            .await
            .unwrap()
    }

    /// Rows whose deletion the event log tells of.
    pub(crate) async fn logged(&self) -> i64 {
        self.number("select coalesce(sum((details->>'deleted')::int8), 0)::int8 from idempotency_event where action = 'purge'")
            .await
    }
}

/// 24 hours for everything.
pub(crate) fn request() -> Request {
    let actor = Actor {
        os_user: Some("tester".to_owned()),
        host: None,
        reason: Some("test".to_owned()),
    };
    Request::new(Retention::default(), actor)
}

pub(crate) fn hours(hours: u64) -> Duration {
    Duration::from_hours(hours)
}
