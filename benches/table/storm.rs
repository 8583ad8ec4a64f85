//! A storm of repeats of one key that is done: each asking for itself, or one for all that wait in this process.

use std::sync::Arc;
use std::time::Instant;

use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, Request, Reservation, SingleFlight};
use idemctl::response::Response;
use idemctl::store::{Cached, Executor};
use tokio::sync::Semaphore;
use tokio_postgres::Client;

use crate::report::{Table, median, ratio};
use crate::{Bench, Result, per};

/// Requests at once.
const CLIENTS: usize = 64;
/// Connections of the service's pool.
const CONNECTIONS: usize = 8;

/// As a pool: whoever gets a permit has a connection to itself for one statement.
struct Pool {
    connections: Vec<Cached<Client>>,
    free: Semaphore,
    next: std::sync::atomic::AtomicUsize,
}

impl Executor for Pool {
    async fn run(
        &self,
        statement: &idemctl::store::Statement,
        params: &idemctl::store::Params<'_>,
    ) -> idemctl::error::Result<idemctl::store::Answer> {
        // Never closed.
        let _permit = self.free.acquire().await;
        let next = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.connections[next % CONNECTIONS].run(statement, params).await
    }
}

fn request() -> Result<Request> {
    let fingerprint = Fingerprint::of_json(b"1")?;
    Ok(Request::new(KeyId::new("shop-1", "storm")?, fingerprint).operation("POST /payments")?)
}

pub(crate) async fn run(bench: &Bench) -> Result<()> {
    let keys = Idempotency::open(&bench.admin, None, Options::default()).await?;
    let Reservation::Acquired(mut lease) = keys.reserve(&bench.admin, &request()?).await? else {
        return Err("the storm's key is taken".into());
    };
    lease.complete(&bench.admin, &Response::new(201, "{}")?).await?;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(bench.connect().await?);
    }
    let pool = Arc::new(Pool {
        connections,
        free: Semaphore::new(CONNECTIONS),
        next: std::sync::atomic::AtomicUsize::new(0),
    });
    let (rounds, each) = if bench.is_trial() { (2, 20) } else { (9, 400) };
    let (mut with, mut without, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let flight = SingleFlight::new(keys.clone());
        let one = storm(&keys, &pool, Some(&flight), each).await?;
        let all = storm(&keys, &pool, None, each).await?;
        // The first round prepares the statements.
        if round > 0 {
            with.push(one);
            without.push(all);
            ratios.push(one / all);
        }
    }
    let mut table = Table::new(
        "A storm of replays of one key, 64 clients on 8 connections (medians of interleaved rounds; more is better)",
        ["single flight / each for itself", "with/s", "without/s"],
    );
    let whole = |value: f64| format!("{value:.0}");
    table.row([
        median(&ratios, ratio),
        median(&with, whole),
        median(&without, whole),
    ]);
    table.print();
    Ok(())
}

/// Answers a second.
async fn storm(
    keys: &Idempotency,
    pool: &Arc<Pool>,
    flight: Option<&SingleFlight>,
    each: usize,
) -> Result<f64> {
    let started = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (keys, pool, flight) = (keys.clone(), Arc::clone(pool), flight.cloned());
            tokio::spawn(async move {
                for _ in 0..each {
                    let request = request()?;
                    let answer = match &flight {
                        Some(flight) => flight.reserve(&pool, &request).await?,
                        None => keys.reserve(&pool, &request).await?,
                    };
                    if !matches!(answer, Reservation::Replay(_)) {
                        return Err(format!("the storm met {answer:?}").into());
                    }
                }
                Ok::<_, crate::Error>(())
            })
        })
        .collect();
    for client in clients {
        client.await??;
    }
    Ok(per(i64::try_from(CLIENTS * each)?, 1) / started.elapsed().as_secs_f64())
}
