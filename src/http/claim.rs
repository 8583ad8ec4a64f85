//! Claiming over connections that may break: a claim whose answer was lost is told again and recognises itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::connections::Connections;
use super::layer::IdempotencyLayer;
use crate::error::{Error, Result};
use crate::protocol::{Request, Reservation};

/// How long a client is kept waiting while its claim, which may have been committed, is told again.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long afterwards the claim is looked for, to give it back: a database that restarts takes that long.
const AFTERWARDS: Duration = Duration::from_mins(1);

/// Claims the key of a request.
///
/// Where no statement could be sent nothing is open, and the error comes at once.
pub(super) async fn reserve<P: Connections>(
    layer: &IdempotencyLayer<P>,
    wish: &Arc<Request>,
) -> Result<Reservation> {
    let sent = Arc::new(AtomicBool::new(false));
    let executor = layer.executor.noting(&sent);
    let mut result = match &layer.rules.single_flight {
        Some(flight) => flight.reserve(&executor, wish).await,
        None => layer.keys.reserve(&executor, wish).await,
    };
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(50);
    while let Err(error) = &result
        && error.needs_reconnect()
        && sent.load(Ordering::Acquire)
    {
        if Instant::now() >= until {
            look_for_it_later(layer, wish);
            break;
        }
        tracing::warn!(%error, id = %wish.id(), "the connection broke over a claim; asking again");
        rest(&mut pause).await;
        result = layer.keys.reserve(&executor, wish).await;
    }
    result
}

/// The client was told that nothing was done. If the claim was committed all the same, its repeats would be told for a
/// whole lease that somebody is at work.
fn look_for_it_later<P: Connections>(layer: &IdempotencyLayer<P>, wish: &Arc<Request>) {
    let (layer, wish) = (layer.clone(), Arc::clone(wish));
    tokio::spawn(async move {
        let until = Instant::now() + AFTERWARDS;
        let mut pause = Duration::from_millis(500);
        while Instant::now() < until {
            rest(&mut pause).await;
            match give_back(&layer, &wish).await {
                Err(error) if error.needs_reconnect() || error.is_retryable() => {}
                Err(error) => {
                    tracing::warn!(%error, id = %wish.id(), "a claim that may be there could not be given back");
                    return;
                }
                Ok(()) => return,
            }
        }
    });
}

/// No handler has run for this claim, so there is nothing to be unknown about.
async fn give_back<P: Connections>(layer: &IdempotencyLayer<P>, wish: &Request) -> Result<(), Error> {
    match layer.keys.reserve(&layer.executor, wish).await? {
        Reservation::Acquired(mut lease) => lease.abandon(&layer.executor).await.map(drop),
        _ => Ok(()),
    }
}

async fn rest(pause: &mut Duration) {
    tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    *pause = (*pause * 2).min(Duration::from_secs(2));
}
