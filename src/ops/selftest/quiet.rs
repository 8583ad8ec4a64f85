//! Retries write nothing.

use super::check::Check;
use super::env::{Env, id, request, unexpected};
use crate::error::Result;
use crate::key::KeyId;
use crate::protocol::Reservation;
use crate::response::Response;
use crate::store::bench::wal;

/// Requests of each client for each key.
const REPEATS: usize = 10;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::of(
            "quiet.replay",
            "all clients repeat a request that is done",
            "the row is not written: its version stays the same",
        ),
        Check::of(
            "quiet.in_progress",
            "all clients repeat a request that is in progress",
            "the row is not written: its version stays the same",
        ),
    ]
}

pub(super) async fn run(env: &Env, checks: &mut [Check]) -> Result<()> {
    let done = id("quiet-done")?;
    let mut lease = env.first().acquire(&request(done.clone())?).await?;
    lease
        .complete(&env.first().conn, &Response::new(201, "{}")?)
        .await?;
    repeat(env, &done, &mut checks[0]).await?;
    let busy = id("quiet-busy")?;
    let mut lease = env.first().acquire(&request(busy.clone())?).await?;
    repeat(env, &busy, &mut checks[1]).await?;
    lease.abandon(&env.first().conn).await?;
    Ok(())
}

async fn repeat(env: &Env, id: &KeyId, check: &mut Check) -> Result<()> {
    let before = env.row(id).await?;
    let from = wal(&env.admin).await;
    env.all(|client| {
        let id = id.clone();
        async move {
            for _ in 0..REPEATS {
                let asked = request(id.clone())?;
                match client.ask(&asked).await? {
                    Reservation::Replay(_) | Reservation::InProgress(_) => {}
                    other => return Err(unexpected(&id, "replayed or in progress", &other)),
                }
            }
            Ok(())
        }
    })
    .await?;
    let to = wal(&env.admin).await;
    let after = env.row(id).await?;
    let written = match (from, to) {
        (Ok(from), Ok(to)) => format!("the whole server wrote {} bytes of WAL meanwhile", to - from),
        (Err(error), _) | (_, Err(error)) => format!("WAL was not measured ({error})"),
    };
    let requests = env.clients.len() * REPEATS;
    let same = before == after;
    check.judge(
        same,
        format!(
            "{requests} requests, and the row's version is {}; {written}",
            if same { "the same" } else { "another one" }
        ),
        (
            "A storm of retries does not make the database write.",
            "A storm of retries makes the database write for each of them.",
        ),
    );
    Ok(())
}
