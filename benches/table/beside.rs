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
use crate::report::{median, ms, quantile};
use crate::{Bench, Result, SPAN};

/// Clients of the service at once.
const CLIENTS: usize = 4;

/// Purges a twentieth of the table after the other, with a quiet time before each, and prints how much longer claims
/// take meanwhile. The product's own batches and pauses.
pub(crate) async fn run(bench: &Bench, connection: &mut Connection, kept: Duration) -> Result<Goal> {
    let quiet = if bench.is_trial() { 20 } else { 1_000 };
    let quiet = Duration::from_millis(quiet);
    let stop = Stop::never();
    let (mut without, mut during, mut deleted) = (Vec::new(), Vec::new(), 0);
    let mut keep = kept;
    while let Some(less) = keep.checked_sub(SPAN / 20).filter(|less| *less >= SPAN / 20) {
        keep = less;
        let retention = purge::Retention {
            done: keep,
            failed: keep,
            events: None,
        };
        let request = purge::Request::new(retention, Actor::default());
        let ((), times) = claims(bench, tokio::time::sleep(quiet)).await?;
        without.extend(times);
        let mut silent = |_: &purge::Progress| {};
        let purging = purge::run(connection, &bench.store, &request, &mut silent, &stop);
        let (report, times) = claims(bench, purging).await?;
        deleted += report?.deleted;
        during.extend(times);
    }
    let p99 = |times: &[Duration]| quantile(times, 99).ok_or("no claim was made");
    let (with, alone) = (p99(&during)?, p99(&without)?);
    println!(
        "\nclaims while {deleted} rows are purged, {CLIENTS} clients, flushed: p99 {} of {}, without the purge {} of {}; \
         medians {} and {}",
        ms(with),
        during.len(),
        ms(alone),
        without.len(),
        median(&during, ms),
        median(&without, ms),
    );
    Ok(Goal::of(
        "p99 of claims during a purge : without it",
        "<= 2",
        Some(with.as_secs_f64() / alone.as_secs_f64()),
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
            while !enough.load(Ordering::Relaxed) || times.len() < 2 {
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
            // The first prepares its statements.
            times.remove(0);
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
