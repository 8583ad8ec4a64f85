//! The strategies that hold no transaction during the work.

use std::time::Instant;

use super::env::BODY;
use super::meter::{Meter, Outcome};
use super::redis::Met;
use super::request::Strategy;
use super::transaction;
use super::turn::Ask;
use crate::error::{Error, Result};
use crate::protocol::Reservation;
use crate::store::bench::Stored;

pub(super) async fn ask(ask: Ask<'_>, strategy: Strategy, meter: &mut Meter) -> Result<Outcome> {
    match strategy {
        Strategy::Lease => lease(ask, meter).await,
        Strategy::Naive => naive(ask, meter).await,
        Strategy::OnConflict => on_conflict(ask, meter, false).await,
        Strategy::SeedUpsert => on_conflict(ask, meter, true).await,
        Strategy::Redis => redis(ask, meter).await,
        Strategy::Unique | Strategy::Advisory | Strategy::ForUpdate => {
            transaction::ask(ask, strategy, meter).await
        }
    }
}

/// Ours: the connection goes back to the pool while the work is done.
async fn lease(ask: Ask<'_>, meter: &mut Meter) -> Result<Outcome> {
    let Ask { env, id, .. } = ask;
    let request = env.request(id)?;
    let line = env.pool.get(meter).await;
    let since = Instant::now();
    let reservation = env.keys.reserve(&*line, &request).await;
    meter.claimed(since);
    drop(line);
    match reservation? {
        Reservation::Acquired(mut lease) => {
            env.work(meter, ask.stop).await;
            if ask.finish {
                let line = env.pool.get(meter).await;
                lease.complete(&*line, &env.response).await?;
            } else {
                // The row stays as it is, and nobody shall be warned about that.
                lease.forget();
            }
            Ok(Outcome::Worked)
        }
        Reservation::Replay(_) => Ok(Outcome::Replayed),
        Reservation::InProgress(_) => Ok(Outcome::Busy),
        other @ (Reservation::Mismatch(_) | Reservation::Expired(_)) => Err(Error::Inconsistent {
            what: format!("the claim of {id} ended with {other:?}, which the benchmark does not ask for"),
        }),
    }
}

/// Looks, works, and writes at the end: between the look and the write everybody passes.
async fn naive(ask: Ask<'_>, meter: &mut Meter) -> Result<Outcome> {
    let Ask { env, id, .. } = ask;
    let line = env.pool.get(meter).await;
    let since = Instant::now();
    let seen = env.rivals.look(&*line, id).await;
    meter.claimed(since);
    drop(line);
    if let Some(outcome) = lost(seen?) {
        return Ok(outcome);
    }
    env.work(meter, ask.stop).await;
    let line = env.pool.get(meter).await;
    env.rivals
        .store(&*line, id, env.fingerprint.as_str(), BODY)
        .await?;
    Ok(Outcome::Worked)
}

/// A claim that is committed at once, and a second question for losers.
async fn on_conflict(ask: Ask<'_>, meter: &mut Meter, upsert: bool) -> Result<Outcome> {
    let Ask { env, id, .. } = ask;
    let print = env.fingerprint.as_str();
    let line = env.pool.get(meter).await;
    let since = Instant::now();
    let ours = if upsert {
        env.rivals.upsert(&*line, id, print).await
    } else {
        env.rivals.claim_or_nothing(&*line, id, print).await
    }?;
    let seen = if ours {
        Stored::Nothing
    } else {
        env.rivals.look(&*line, id).await?
    };
    meter.claimed(since);
    drop(line);
    if !ours {
        // Gone between the two questions: the client is sent away all the same.
        return Ok(lost(seen).unwrap_or(Outcome::Busy));
    }
    env.work(meter, ask.stop).await;
    if ask.finish {
        let line = env.pool.get(meter).await;
        env.rivals.complete(&*line, id, BODY).await?;
    }
    Ok(Outcome::Worked)
}

async fn redis(ask: Ask<'_>, meter: &mut Meter) -> Result<Outcome> {
    let Ask { env, id, .. } = ask;
    let redis = env.redis()?;
    let mut line = redis.pool.get(meter).await;
    let since = Instant::now();
    let met = redis.claim(&mut line, id.key()).await;
    meter.claimed(since);
    drop(line);
    match met? {
        Met::InProgress => return Ok(Outcome::Busy),
        Met::Done => return Ok(Outcome::Replayed),
        Met::Nobody => {}
    }
    env.work(meter, ask.stop).await;
    if ask.finish {
        let mut line = redis.pool.get(meter).await;
        redis.complete(&mut line, id.key(), BODY).await?;
    }
    Ok(Outcome::Worked)
}

/// What a loser answers; `None` where nobody has the key.
pub(super) fn lost(seen: Stored) -> Option<Outcome> {
    match seen {
        Stored::Nothing => None,
        Stored::InProgress => Some(Outcome::Busy),
        Stored::Done => Some(Outcome::Replayed),
    }
}
