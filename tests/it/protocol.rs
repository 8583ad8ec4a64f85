//! The protocol on a real PostgreSQL: every outcome, fencing, lost answers, exact bytes, clocks.

mod bodies;
pub(crate) mod clocks;
mod fencing;
mod lost_answers;
mod outcomes;
mod processes;
mod quiet;
mod same_database;
mod statements;
mod told;
mod waiting;

use std::time::Duration;

use idemctl::error::{Error, Found};
use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::ops::migrate;
use idemctl::protocol::{Idempotency, Lease, Options, Request, Reservation};
use idemctl::response::Response;
use idemctl::store::Executor;
use tokio_postgres::Client;

use crate::support::{self, Database, database};

/// The table as services in other languages have it.
pub(crate) const OLD_TABLE: &str = "create table idempotency (
    client_id text not null, key text not null, fingerprint text not null,
    status text not null default 'in_progress',
    locked_until timestamptz not null default now() + interval '30 s',
    status_code int, response jsonb, created_at timestamptz not null default now(),
    primary key (client_id, key))";

/// The four leaves of a table that is partitioned by hash of the client.
const LEAVES: &str = "create table p0 partition of idempotency for values with (modulus 4, remainder 0);
    create table p1 partition of idempotency for values with (modulus 4, remainder 1);
    create table p2 partition of idempotency for values with (modulus 4, remainder 2);
    create table p3 partition of idempotency for values with (modulus 4, remainder 3)";

/// A database with the table, and the service's entry to it.
pub(crate) struct Table {
    pub(crate) db: Database,
    pub(crate) keys: Idempotency,
}

impl Table {
    /// As `idemctl migrate` makes it.
    pub(crate) async fn new() -> Self {
        Self::after("").await
    }

    /// Adopted, with `response` as jsonb.
    pub(crate) async fn jsonb() -> Self {
        Self::after(OLD_TABLE).await
    }

    /// Adopted, in four partitions.
    pub(crate) async fn partitioned() -> Self {
        Self::after(&format!("{OLD_TABLE} partition by hash (client_id); {LEAVES}")).await
    }

    pub(crate) async fn after(sql: &str) -> Self {
        Self::in_database(database().await, sql).await
    }

    pub(crate) async fn in_database(db: Database, sql: &str) -> Self {
        db.client.batch_execute(sql).await.expect("an old table");
        migrate::run(&db.settings(), None, &db.migration().await)
            .await
            .expect("it migrates");
        let keys = open(&db.client).await;
        Self { db, keys }
    }

    pub(crate) async fn execute(&self, sql: &str) -> u64 {
        self.db
            .client
            .execute(sql, &[])
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// The whole row of a key as text, to be compared byte for byte; `None` when there is none.
    pub(crate) async fn row(&self, key: &str) -> Option<String> {
        self.db
            .client
            .query_opt("select t::text from idempotency t where key = $1", &[&key])
            .await
            .expect("the table can be read")
            .map(|row| row.get(0))
    }

    /// Lets the lease of a key be over, as if time had passed.
    pub(crate) async fn lapse(&self, key: &str) {
        let sql = format!("update idempotency set locked_until = now() - interval '1 s' where key = '{key}'");
        assert_eq!(self.execute(&sql).await, 1);
    }

    /// Waits until the lease of a key is really over.
    pub(crate) async fn over(&self, key: &str) {
        let query = "select locked_until <= clock_timestamp() from idempotency where key = $1";
        support::until("the lease is over", async || {
            self.db.client.query_one(query, &[&key]).await.unwrap().get(0)
        })
        .await;
    }

    /// Waits until a query of one truth value says yes.
    pub(crate) async fn until(&self, query: &str) {
        support::until(query, async || {
            self.db.client.query_one(query, &[]).await.unwrap().get(0)
        })
        .await;
    }
}

pub(crate) async fn open(client: &Client) -> Idempotency {
    Idempotency::open(client, None, Options::default())
        .await
        .expect("the table is current")
}

pub(crate) fn id(key: &str) -> KeyId {
    KeyId::new("shop-1", key).expect("a good key")
}

pub(crate) fn print(body: &str) -> Fingerprint {
    Fingerprint::of_bytes(body.as_bytes())
}

/// A new request with the body `pay 1`.
pub(crate) fn request(key: &str) -> Request {
    Request::new(id(key), print("pay 1"))
}

pub(crate) fn short(key: &str) -> Request {
    request(key)
        .lease(Duration::from_secs(1))
        .expect("the shortest lease")
}

pub(crate) fn response(body: impl Into<Vec<u8>>) -> Response {
    Response::new(201, body).expect("a good status")
}

/// Reserves; the test fails unless the key is ours.
pub(crate) async fn acquire(keys: &Idempotency, executor: &impl Executor, request: &Request) -> Lease {
    match keys.reserve(executor, request).await.expect("an outcome") {
        Reservation::Acquired(lease) => lease,
        other => panic!("not acquired: {other:?}"),
    }
}

/// Reserves; the test fails unless a response comes back.
pub(crate) async fn replay(keys: &Idempotency, executor: &impl Executor, request: &Request) -> Response {
    match keys.reserve(executor, request).await.expect("an outcome") {
        Reservation::Replay(replay) => replay.response,
        other => panic!("no replay: {other:?}"),
    }
}

/// The test fails unless the lease was found to be lost; gives what was found.
#[track_caller]
pub(crate) fn lost<T: std::fmt::Debug>(result: Result<T, Error>) -> Found {
    match result {
        Err(Error::LeaseLost { found, .. }) => found,
        other => panic!("not lost: {other:?}"),
    }
}
