//! The claims of a service while a purge runs beside them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idemctl::connect::Connection;
use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::ops::actor::Actor;
use idemctl::ops::purge;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::stop::Stop;
use uuid::Uuid;

use crate::goal::Goal;
use crate::report::{ms, quantile};
use crate::{Bench, Result};

/// Clients of the service at once.
const CLIENTS: usize = 4;

/// Purges what is older than `keep`, and prints how much longer claims take meanwhile.
pub(crate) async fn run(bench: &Bench, connection: &mut Connection, keep: Duration) -> Result<Goal> {
    let quiet = if bench.is_trial() { 100 } else { 10_000 };
    let quiet = Duration::from_millis(quiet);
    let request = purge::Request::new(
        purge::Retention {
            done: keep,
            failed: keep,
            events: None,
        },
        Actor::default(),
    );
    let ((), before) = claims(bench, tokio::time::sleep(quiet)).await?;
    let stop = Stop::never();
    let mut silent = |_: &purge::Progress| {};
    let purging = purge::run(connection, &bench.store, &request, &mut silent, &stop);
    let (report, during) = claims(bench, purging).await?;
    let ((), after) = claims(bench, tokio::time::sleep(quiet)).await?;
    let report = report?;
    // What the machine did meanwhile is in all three.
    let without: Vec<Duration> = before.into_iter().chain(after).collect();
    let p99 = |times: &[Duration]| quantile(times, 99).ok_or("no claim was made");
    let (with, without) = (p99(&during)?, p99(&without)?);
    println!(
        "\nclaims while {} rows are purged, {CLIENTS} clients, flushed: p99 {}, without the purge {}",
        report.deleted,
        ms(with),
        ms(without)
    );
    Ok(Goal::of(
        "p99 of claims during a purge : without it",
        "<= 2",
        Some(with.as_secs_f64() / without.as_secs_f64()),
        |found| Some(found <= 2.0),
    ))
}

/// Claims new keys until something has ended; the time of each claim.
async fn claims<T>(bench: &Bench, until: impl Future<Output = T>) -> Result<(T, Vec<Duration>)> {
    let keys = Idempotency::open(&bench.admin, None, Options::default()).await?;
    let enough = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let connection = bench.connect().await?;
        connection
            .get()
            .batch_execute("set synchronous_commit = on")
            .await?;
        let (keys, enough) = (keys.clone(), Arc::clone(&enough));
        clients.push(tokio::spawn(async move {
            let mut times = Vec::new();
            let fingerprint = Fingerprint::of_json(b"1")?;
            while !enough.load(Ordering::Relaxed) || times.is_empty() {
                let id = KeyId::new("shop-1", Uuid::new_v4().to_string())?;
                let request = Request::new(id, fingerprint.clone());
                let started = Instant::now();
                let Reservation::Acquired(lease) = keys.reserve(&connection, &request).await? else {
                    return Err("a new key was taken".into());
                };
                times.push(started.elapsed());
                // Dropping it would rightly be warned about.
                std::mem::forget(lease);
            }
            Ok::<_, crate::Error>(times)
        }));
    }
    let ended = until.await;
    enough.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for client in clients {
        times.extend(client.await??);
    }
    Ok((ended, times))
}
