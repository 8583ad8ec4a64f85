//! All clients race for one key, again and again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;

use super::Request;
use super::check::Check;
use super::env::{Client, Env, id, request, unexpected};
use crate::error::Result;
use crate::key::KeyId;
use crate::protocol::{self, Reservation};
use crate::response::Response;

/// Longest that a loser asks for the winner's answer while that may still be at work.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::of(
            "race",
            "all clients claim one new key at once, again and again",
            "for each key exactly one client does the work",
        ),
        Check::of(
            "race.answer",
            "the clients that lost ask again until they get an answer",
            "every loser gets the response that the winner stored",
        ),
    ]
}

/// What one client met.
#[derive(Debug)]
struct Met {
    /// Which work it did, if any.
    worked: Option<Vec<u8>>,
    /// Whether its first answer was "in progress".
    waited: bool,
    /// What it was answered in the end; `None`: it gave up.
    answer: Option<Vec<u8>>,
}

/// What all of them met.
#[derive(Debug, Default)]
struct Sum {
    keys: u64,
    requests: u64,
    works: u64,
    /// Keys for which not exactly one client worked.
    wrong_keys: u64,
    waited: u64,
    /// Losers whose answer was not the winner's.
    strays: u64,
}

pub(super) async fn run(env: &Env, wanted: &Request, checks: &mut [Check]) -> Result<()> {
    let until = Instant::now() + wanted.race_time;
    let mut sum = Sum::default();
    for round in 0..wanted.rounds {
        if round > 0 && Instant::now() >= until {
            break;
        }
        sum.add(&one_key(env, round).await?);
    }
    let Sum {
        keys,
        requests,
        works,
        wrong_keys,
        waited,
        strays,
    } = sum;
    let clients = env.clients.len();
    checks[0].judge(
        wrong_keys == 0,
        format!(
            "{keys} keys, {requests} requests, {works} works; {wrong_keys} keys without exactly one work; {waited} requests \
             were first told \"in progress\""
        ),
        (
            format!("{clients} simultaneous requests for one payment led to one payment, {keys} times out of {keys}."),
            format!(
                "{clients} simultaneous requests for one payment did NOT lead to one payment: {works} payments for {keys} \
                 orders."
            ),
        ),
    );
    checks[1].judge(
        strays == 0,
        format!(
            "{strays} of {} losers got another answer",
            requests - works.min(requests)
        ),
        (
            "Whoever asked again got the answer of the one payment.",
            "Whoever asked again did NOT always get the answer of the one payment.",
        ),
    );
    Ok(())
}

impl Sum {
    fn add(&mut self, met: &[Met]) {
        let works: Vec<&Vec<u8>> = met.iter().filter_map(|met| met.worked.as_ref()).collect();
        self.keys += 1;
        self.requests += met.len() as u64;
        self.works += works.len() as u64;
        self.wrong_keys += u64::from(works.len() != 1);
        self.waited += met.iter().filter(|met| met.waited).count() as u64;
        let stray = |met: &&Met| works.first().copied() != met.answer.as_ref() || met.answer.is_none();
        self.strays += met.iter().filter(stray).count() as u64;
    }
}

async fn one_key(env: &Env, round: u32) -> Result<Vec<Met>> {
    let id = id(&format!("race-{round}"))?;
    let mut met = all_at_once(env, &id, PATIENCE).await?;
    if met.iter().any(|met| met.answer.is_none()) {
        // A slow pool is no broken guarantee. By now the winner has stored its answer, so once more is enough.
        met.retain(|met| met.answer.is_some());
        met.append(&mut all_at_once(env, &id, Duration::ZERO).await?);
    }
    Ok(met)
}

async fn all_at_once(env: &Env, id: &KeyId, patience: Duration) -> Result<Vec<Met>> {
    let start = Arc::new(Barrier::new(env.clients.len()));
    env.all(|client| {
        let (start, request) = (Arc::clone(&start), request(id.clone()));
        async move {
            let request = request?;
            start.wait().await;
            compete(&client, &request, patience).await
        }
    })
    .await
}

async fn compete(client: &Client, request: &protocol::Request, patience: Duration) -> Result<Met> {
    let until = Instant::now() + patience;
    let mut waited = false;
    loop {
        match client.ask(request).await? {
            Reservation::Acquired(mut lease) => {
                // Nobody else does the same work.
                let body = format!(r#"{{"charge":"{}"}}"#, lease.token()).into_bytes();
                lease
                    .complete(&client.conn, &Response::new(201, body.clone())?)
                    .await?;
                return Ok(Met {
                    worked: Some(body.clone()),
                    waited,
                    answer: Some(body),
                });
            }
            Reservation::Replay(replay) => {
                return Ok(Met {
                    worked: None,
                    waited,
                    answer: Some(replay.response.body().to_owned()),
                });
            }
            Reservation::InProgress(_) if Instant::now() < until => {
                waited = true;
                tokio::time::sleep(PAUSE).await;
            }
            Reservation::InProgress(_) => {
                return Ok(Met {
                    worked: None,
                    waited: true,
                    answer: None,
                });
            }
            other => return Err(unexpected(request.id(), "replayed", &other)),
        }
    }
}
