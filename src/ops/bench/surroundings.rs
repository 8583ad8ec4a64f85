//! What else may be in the figures.

use std::time::Duration;

use super::GOOD_TURN;
use super::request::{Request, Scenario};
use crate::connect::{Connection, Encryption, Route};
use crate::error::{Error, Result};
use crate::store::bench as sql;

/// A process remembers some 16,000 keys: of so many, asked for in turns, hardly one.
const COLD_KEYS: u32 = 50_000;
/// How long it is listened for writes of others.
const LISTEN: Duration = Duration::from_millis(200);
/// A server writes this much by itself now and then (PostgreSQL's `LogStandbySnapshot`, hint bits).
const OWN_WAL: i64 = 4 * 1024;

/// Bytes of WAL so far; `None` where the role may not ask.
pub(super) async fn wal(admin: &Connection) -> Option<i64> {
    sql::wal(admin).await.ok()
}

/// What the reader of the figures has to know. Refuses a pool that the server has no room for.
pub(super) async fn before(admin: &Connection, request: &Request) -> Result<Vec<String>> {
    let facts = admin.facts();
    let activity = sql::activity(admin).await?;
    if usize::try_from(activity.max_connections).is_ok_and(|most| request.pool >= most)
        && facts.route == Route::Direct
    {
        return Err(Error::Invalid {
            field: "pool",
            reason: format!(
                "is {}, and the server's max_connections is {}",
                request.pool, activity.max_connections
            ),
        });
    }
    let mut warnings = of_others(admin, &activity).await;
    if facts.encryption == Encryption::Local || is_loopback(&facts.address) {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        warnings.push(format!(
            "client and server share this machine and its {cores} processors: read the ratios, not the speeds"
        ));
    }
    if let Route::Unproven { .. } = facts.route {
        warnings.push(
            "the connection is not proven to be direct (a pooler?): statements are not kept prepared, which costs \
             every way more, and the pooler's own queue is part of the latencies"
                .to_owned(),
        );
    }
    if activity.fsync != "on" || activity.synchronous_commit == "off" {
        warnings.push(format!(
            "commits are not flushed to disk (fsync {}, synchronous_commit {}): what writes looks faster than it is",
            activity.fsync, activity.synchronous_commit
        ));
    }
    if cfg!(debug_assertions) {
        warnings
            .push("this is a debug build: our own share of the time is several times too large".to_owned());
    }
    warnings.extend(of_request(request));
    Ok(warnings)
}

fn of_request(request: &Request) -> Vec<String> {
    let mut warnings = Vec::new();
    if request.keys < COLD_KEYS && request.scenarios.contains(&Scenario::ReplayCold) {
        warnings.push(format!(
            "with {} keys the library remembers most of them, and replay-cold is no other than replay: give --keys {} or \
             more",
            request.keys, COLD_KEYS
        ));
    }
    if !request.work.is_zero() && request.clients <= request.pool {
        warnings.push(format!(
            "{} clients never wait for a pool of {}: take more clients to see it saturated",
            request.clients, request.pool
        ));
    }
    warnings
}

async fn of_others(admin: &Connection, activity: &sql::Activity) -> Vec<String> {
    let mut warnings = Vec::new();
    if activity.busy > 0 {
        warnings.push(format!(
            "the database is not idle: {} other sessions are at work, and take part in every figure",
            activity.busy
        ));
    }
    if activity.hidden > 0 {
        warnings.push(format!(
            "{} sessions of other roles cannot be looked at (pg_read_all_stats), so whether the database is idle is \
             not known",
            activity.hidden
        ));
    }
    match written(admin).await {
        None => warnings
            .push("WAL is not measured: this role may not call pg_current_wal_insert_lsn()".to_owned()),
        Some(bytes) if bytes > OWN_WAL => warnings.push(format!(
            "others write WAL ({bytes} bytes in {} ms), and it is counted as if it were ours",
            LISTEN.as_millis()
        )),
        Some(_) => {}
    }
    warnings
}

/// What only the run has shown.
pub(super) async fn after(admin: &Connection, turn: Duration) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let busy = sql::activity(admin).await?.busy;
    if busy > 0 {
        warnings.push(format!("at the end {busy} other sessions were at work"));
    }
    if turn < GOOD_TURN {
        warnings.push(format!(
            "a turn had only {} ms: give a longer --duration, or fewer scenarios and strategies, before you trust a \
             difference",
            turn.as_millis()
        ));
    }
    Ok(warnings)
}

async fn written(admin: &Connection) -> Option<i64> {
    let from = wal(admin).await?;
    tokio::time::sleep(LISTEN).await;
    Some(wal(admin).await? - from)
}

fn is_loopback(address: &str) -> bool {
    let parsed: Result<std::net::SocketAddr, _> = address.parse();
    parsed.is_ok_and(|address| address.ip().to_canonical().is_loopback())
}
