//! One turn: so many clients, one way, for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::env::{DONE_CLIENT, EXPIRED_CLIENT, Env};
use super::meter::{Meter, Outcome};
use super::request::{Scenario, Way};
use super::{floor, strategy};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::stop::Stop;

/// Requests that each client sends for one key of the scenario hot: the first of them race, the others are the storm
/// of retries behind.
const STORM: usize = 100;

/// Keys that are repeated so often that a process remembers them.
const WARM: u32 = 1_000;

/// What to do.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) scenario: Scenario,
    pub(super) way: Way,
    pub(super) length: Duration,
    pub(super) keys: Keys,
}

/// Which keys the requests of a turn are for.
#[derive(Debug)]
pub(super) enum Keys {
    /// Each a new one.
    New,
    /// One of a few that are done.
    Done(u32),
    /// All that are done, one after the other.
    Cold(u32),
    /// The one that is done.
    One,
    /// Each once, up to an end.
    Expired { next: AtomicU64, end: u64 },
}

impl Keys {
    /// For the `number`-th turn of the scenario, which has a lot of expired keys of its own.
    pub(super) fn of(scenario: Scenario, done: u32, lot: u64, number: u32) -> Self {
        match scenario {
            Scenario::Claim | Scenario::Complete => Self::New,
            Scenario::Replay => Self::Done(done.min(WARM)),
            Scenario::ReplayCold => Self::Cold(done),
            Scenario::Hot => Self::One,
            Scenario::Takeover => {
                let from = u64::from(number) * lot;
                Self::Expired {
                    next: AtomicU64::new(from + 1),
                    end: from + lot,
                }
            }
        }
    }

    fn next(&self, env: &Env) -> Result<Option<KeyId>> {
        let order = |client, n| KeyId::new(client, format!("order-{n}")).map(Some);
        match self {
            Self::New => env.new_key().map(Some),
            Self::Done(rows) => order(DONE_CLIENT, u64::from(fastrand::u32(1..=*rows))),
            Self::Cold(rows) => env.cold_key(*rows).map(Some),
            Self::One => order(DONE_CLIENT, 1),
            Self::Expired { next, end } => match next.fetch_add(1, Ordering::Relaxed) {
                n if n > *end => Ok(None),
                n => order(EXPIRED_CLIENT, n),
            },
        }
    }
}

/// One request of one client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) env: &'a Env,
    pub(super) id: &'a KeyId,
    /// Whether the result is stored, too.
    pub(super) finish: bool,
    pub(super) stop: &'a Stop,
}

/// Runs it. An error is one after which nothing more can be measured.
pub(super) async fn run(env: &Arc<Env>, turn: Turn, stop: &Stop) -> Result<Meter> {
    let turn = Arc::new(turn);
    env.pool.take_empty();
    if let Some(redis) = &env.redis {
        redis.pool.take_empty();
    }
    let started = Instant::now();
    let until = started + turn.length;
    let mut total = if turn.scenario == Scenario::Hot && !turn.way.is_floor() {
        waves(env, &turn, until, stop).await?
    } else {
        all(env, |env, stop| spread(env, Arc::clone(&turn), until, stop), stop).await?
    };
    total.elapsed = started.elapsed();
    total.empty = match (&env.redis, turn.way.uses_redis()) {
        (Some(redis), true) => redis.pool.take_empty(),
        _ => env.pool.take_empty(),
    };
    Ok(total)
}

/// Every client at once; ends when the last one has ended.
async fn all<F>(env: &Arc<Env>, client: impl Fn(Arc<Env>, Stop) -> F, stop: &Stop) -> Result<Meter>
where
    F: Future<Output = Result<Meter>> + Send + 'static,
{
    // Dropped, it ends them all.
    let mut tasks = JoinSet::new();
    for _ in 0..env.clients {
        tasks.spawn(client(Arc::clone(env), stop.clone()));
    }
    let mut total = Meter::new();
    let mut failed = None;
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(meter)) => total.add(meter),
            Ok(Err(error)) => failed = failed.or(Some(error)),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => failed = failed.or(Some(Error::Interrupted)),
            },
        }
    }
    failed.map_or(Ok(total), Err)
}

async fn spread(env: Arc<Env>, turn: Arc<Turn>, until: Instant, stop: Stop) -> Result<Meter> {
    let mut meter = Meter::new();
    while Instant::now() < until && !stop.is_soft() {
        let Some(id) = turn.keys.next(&env)? else { break };
        let ask = Ask {
            env: &env,
            id: &id,
            finish: turn.scenario == Scenario::Complete,
            stop: &stop,
        };
        let works = meter.works;
        let result = once(ask, turn.way, &mut meter).await;
        // Each key is new or left behind, and worked on once; one that is done is not worked on at all.
        if !turn.scenario.repeats() {
            meter.due += (meter.works - works).min(1);
        }
        meter.record(result)?;
    }
    Ok(meter)
}

/// One key after the other, each for all clients.
async fn waves(env: &Arc<Env>, turn: &Turn, until: Instant, stop: &Stop) -> Result<Meter> {
    let mut total = Meter::new();
    while Instant::now() < until && !stop.is_soft() {
        let id = Arc::new(env.new_key()?);
        let start = Arc::new(Barrier::new(env.clients));
        let way = turn.way;
        let client = |env, stop| storm(env, (Arc::clone(&id), Arc::clone(&start)), way, until, stop);
        let mut wave = all(env, client, stop).await?;
        wave.due = 1;
        total.add(wave);
    }
    Ok(total)
}

async fn storm(
    env: Arc<Env>,
    (id, start): (Arc<KeyId>, Arc<Barrier>),
    way: Way,
    until: Instant,
    stop: Stop,
) -> Result<Meter> {
    let mut meter = Meter::new();
    start.wait().await;
    for number in 0..STORM {
        // The race is always run.
        if number > 0 && (Instant::now() >= until || stop.is_soft()) {
            break;
        }
        let ask = Ask {
            env: &env,
            id: &id,
            finish: true,
            stop: &stop,
        };
        let result = once(ask, way, &mut meter).await;
        meter.record(result)?;
    }
    Ok(meter)
}

async fn once(ask: Ask<'_>, way: Way, meter: &mut Meter) -> Result<Outcome> {
    match way {
        Way::Floor(floor) => floor::ask(ask, floor, meter).await,
        Way::Strategy(strategy) => strategy::ask(ask, strategy, meter).await,
    }
}
