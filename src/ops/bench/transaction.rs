//! The strategies that do the work inside the transaction that claims: it holds its connection all the while.

use std::time::Instant;

use super::env::BODY;
use super::meter::{Meter, Outcome};
use super::request::Strategy;
use super::strategy::lost;
use super::turn::Ask;
use crate::connect::Connection;
use crate::error::{Error, Result};

/// How the claim went.
enum Claim {
    /// The work is ours, and the row is there already or not.
    Ours { row: bool },
    /// Somebody has done it.
    Lost(Outcome),
}

pub(super) async fn ask(ask: Ask<'_>, strategy: Strategy, meter: &mut Meter) -> Result<Outcome> {
    let env = ask.env;
    let line = env.pool.get(meter).await;
    let since = Instant::now();
    env.rivals.begin(&*line).await?;
    let result = inside(ask, strategy, &line, since, meter).await;
    if result.is_err() && !line.is_closed() {
        env.rivals.rollback(&*line).await?;
    }
    result
}

async fn inside(
    ask: Ask<'_>,
    strategy: Strategy,
    line: &Connection,
    since: Instant,
    meter: &mut Meter,
) -> Result<Outcome> {
    let Ask { env, id, .. } = ask;
    let rivals = &env.rivals;
    let claim = match strategy {
        Strategy::Advisory => advisory(ask, line).await,
        Strategy::ForUpdate => for_update(ask, line).await,
        _ => unique(ask, line).await,
    };
    meter.claimed(since);
    match claim? {
        Claim::Lost(outcome) => {
            rivals.commit(line).await?;
            Ok(outcome)
        }
        Claim::Ours { row } => {
            env.work(meter, ask.stop).await;
            if !row {
                rivals.store(line, id, env.fingerprint.as_str(), BODY).await?;
            } else if ask.finish {
                rivals.complete(line, id, BODY).await?;
            }
            rivals.commit(line).await?;
            Ok(Outcome::Worked)
        }
    }
}

/// The loser waits for the winner's end, and finds its transaction of no more use.
async fn unique(ask: Ask<'_>, line: &Connection) -> Result<Claim> {
    let Ask { env, id, .. } = ask;
    match env.rivals.claim(line, id, env.fingerprint.as_str()).await {
        Ok(()) => Ok(Claim::Ours { row: true }),
        Err(error) if error.sqlstate() == Some("23505") => {
            env.rivals.rollback(line).await?;
            // So that every way ends with a commit.
            env.rivals.begin(line).await?;
            let seen = env.rivals.look(line, id).await?;
            lost(seen).map(Claim::Lost).ok_or_else(|| vanished(id))
        }
        Err(error) => Err(error),
    }
}

/// The loser waits for the lock, and then sees what the winner has committed (READ COMMITTED).
async fn advisory(ask: Ask<'_>, line: &Connection) -> Result<Claim> {
    let Ask { env, id, .. } = ask;
    env.rivals.lock(line, id).await?;
    let seen = env.rivals.look(line, id).await?;
    Ok(lost(seen).map_or(Claim::Ours { row: false }, Claim::Lost))
}

/// There must be a row to lock, so it is inserted first; whoever did not insert it finds it done.
async fn for_update(ask: Ask<'_>, line: &Connection) -> Result<Claim> {
    let Ask { env, id, .. } = ask;
    let inserted = env
        .rivals
        .claim_or_nothing(line, id, env.fingerprint.as_str())
        .await?;
    let seen = env.rivals.look_locked(line, id).await?;
    if inserted {
        return Ok(Claim::Ours { row: true });
    }
    lost(seen).map(Claim::Lost).ok_or_else(|| vanished(id))
}

fn vanished(id: &crate::key::KeyId) -> Error {
    Error::Inconsistent {
        what: format!("the row of {id} went away although nobody deletes rows here"),
    }
}
