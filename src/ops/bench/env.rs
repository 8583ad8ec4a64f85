//! What every request of a run needs: connections, statements, and the table with its rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::meter::Meter;
use super::pool::Pool;
use super::redis::Redis;
use super::request::{Request, Strategy};
use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::key::KeyId;
use crate::ops::migrate;
use crate::protocol::{self, DEFAULT_LEASE, Idempotency, Options};
use crate::response::Response;
use crate::stop::Stop;
use crate::store::Tables;
use crate::store::bench::{self as sql, Floors, Rivals};

/// Whose keys they are.
pub(super) const DONE_CLIENT: &str = "bench-done";
pub(super) const EXPIRED_CLIENT: &str = "bench-expired";
const NEW_CLIENT: &str = "bench-new";

/// What the API is asked and answers.
const REQUEST: &[u8] = br#"{"amount":1250,"currency":"EUR","order":"bench"}"#;
pub(super) const BODY: &str = r#"{"charge_id":"pay_6A9","amount":1250,"currency":"EUR"}"#;
pub(super) const OPERATION: &str = "POST /payments";

/// Rows that one statement fills in.
const LOT: u64 = 20_000;
/// Longest that a session of ours waits for the rest to be opened.
const KEEP: Duration = Duration::from_mins(5);

/// Shared by all tasks.
#[derive(Debug)]
pub(super) struct Env {
    pub(super) pool: Pool<Connection>,
    pub(super) redis: Option<Redis>,
    pub(super) keys: Idempotency,
    pub(super) rivals: Rivals,
    pub(super) floors: Floors,
    pub(super) fingerprint: Fingerprint,
    pub(super) response: Response,
    pub(super) lease: Duration,
    pub(super) clients: usize,
    work: Duration,
    /// Number of the next new key.
    next: AtomicU64,
    /// Number of the next key that nobody has asked for lately.
    next_cold: AtomicU64,
}

impl Env {
    /// Opens the connections, migrates and fills the schema; on Citus distributed where the keys are. `expired`: keys for takeovers.
    pub(super) async fn make(
        settings: &Settings,
        request: &Request,
        schema: &str,
        admin: &Connection,
        expired: u64,
    ) -> Result<Arc<Self>> {
        // Keys of a run of the same name live on for a while.
        let prefix = format!("{schema}:{:08x}", fastrand::u32(..));
        // First what is most likely to be wrong.
        let redis = match (&request.redis, request.strategies.contains(&Strategy::Redis)) {
            (Some(url), true) => Some(Redis::open(url, request.pool, &prefix).await?),
            _ => None,
        };
        migrate::run(settings, Some(schema), &migrate::like_own(admin).await?).await?;
        let tables = Tables::new(schema);
        let fingerprint = Fingerprint::of_json(REQUEST)?;
        fill(admin, &tables, (request.keys, expired), fingerprint.as_str()).await?;
        let mut connections = Vec::with_capacity(request.pool);
        for _ in 0..request.pool {
            connections.push(Connection::open(settings).await?);
        }
        if let Some(redis) = redis
            .as_ref()
            .filter(|_| request.scenarios.iter().any(|scenario| scenario.repeats()))
        {
            let keys: Vec<String> = (1..=request.keys).map(|n| format!("order-{n}")).collect();
            redis.fill(&keys, BODY, request.duration * 2 + KEEP).await?;
        }
        let options = Options {
            owner: "bench".to_owned(),
            ..Options::default()
        };
        Ok(Arc::new(Self {
            pool: Pool::new(connections),
            redis,
            keys: Idempotency::open(admin, Some(schema), options).await?,
            rivals: Rivals::new(&tables),
            floors: Floors::new(&tables),
            fingerprint,
            response: Response::new(201, BODY)?,
            lease: DEFAULT_LEASE,
            clients: request.clients,
            work: request.work,
            next: AtomicU64::new(0),
            next_cold: AtomicU64::new(0),
        }))
    }

    /// A key that nobody has used, and that lies anywhere in the index, as clients' random keys do.
    pub(super) fn new_key(&self) -> Result<KeyId> {
        // An odd factor (2^64 divided by the golden ratio) maps no two numbers to one.
        let n = self
            .next
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        KeyId::new(NEW_CLIENT, format!("{n:016x}"))
    }

    /// One of so many keys that are done, and the one that was asked for the longest time ago.
    pub(super) fn cold_key(&self, rows: u32) -> Result<KeyId> {
        let n = self.next_cold.fetch_add(1, Ordering::Relaxed) % u64::from(rows);
        KeyId::new(DONE_CLIENT, format!("order-{}", n + 1))
    }

    /// What a service would ask the library for.
    pub(super) fn request(&self, id: &KeyId) -> Result<protocol::Request> {
        protocol::Request::new(id.clone(), self.fingerprint.clone()).operation(OPERATION)
    }

    /// The work of whoever has won a key.
    pub(super) async fn work(&self, meter: &mut Meter, stop: &Stop) {
        meter.works += 1;
        if !self.work.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(self.work) => {}
                () = stop.soft() => {}
            }
        }
    }

    /// The Redis; that there is one was checked before anything else.
    pub(super) fn redis(&self) -> Result<&Redis> {
        self.redis.as_ref().ok_or_else(|| Error::Invalid {
            field: "redis",
            reason: "is not given".to_owned(),
        })
    }

    /// Says farewell on every connection.
    pub(super) async fn close(&self) {
        for connection in self.pool.take_all() {
            connection.close().await;
        }
    }
}

async fn fill(
    admin: &Connection,
    tables: &Tables,
    (done, expired): (u32, u64),
    fingerprint: &str,
) -> Result<()> {
    for (first, last) in lots(u64::from(done)) {
        let row = (fingerprint, BODY, OPERATION);
        sql::fill_done(admin, tables, DONE_CLIENT, row, (first, last)).await?;
    }
    for (first, last) in lots(expired) {
        sql::fill_expired(
            admin,
            tables,
            EXPIRED_CLIENT,
            (fingerprint, OPERATION),
            (first, last),
        )
        .await?;
    }
    sql::analyze(admin, tables).await
}

/// First and last number of each lot.
fn lots(rows: u64) -> impl Iterator<Item = (i64, i64)> {
    // There are no more than some ten million.
    let number = |n| i64::try_from(n).unwrap_or(i64::MAX);
    (0..rows.div_ceil(LOT)).map(move |lot| (number(lot * LOT + 1), number(((lot + 1) * LOT).min(rows))))
}
