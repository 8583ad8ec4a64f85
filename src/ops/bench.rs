//! Compares the ways to claim a key on the user's own database: throughput, latency of the claim apart from the
//! work, what losers cost, waits for the pool, work done twice, and WAL.
//!
//! Everything happens in a scratch schema that is made for the run and dropped at its end. Each scenario has a floor,
//! the barest statements that do the same work; floor and strategies take turns on the same connections, so that
//! every figure can be read as a ratio whatever else the machine does.

mod env;
mod floor;
mod meter;
mod pool;
mod redis;
mod report;
mod request;
mod strategy;
mod surroundings;
mod transaction;
mod turn;

use std::time::Duration;

use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::ops::scratch;
use crate::stop::Stop;
use crate::store::scratch as sql;

pub use report::{Figure, NotApplicable, Quantiles, Report};
pub use request::{Floor, RedisUrl, Request, Scenario, Strategy, Way};

use env::Env;
use report::Sum;
use turn::{Keys, Turn};

/// Below this a turn says little; there are then as few rounds as [`LEAST_ROUNDS`].
const GOOD_TURN: Duration = Duration::from_millis(250);
const LEAST_ROUNDS: u32 = 3;
const MOST_ROUNDS: u32 = 11;
/// A turn that is not counted: it prepares statements and fills caches.
const WARM_UP: Duration = Duration::from_millis(100);

/// What a run has to say before and while it measures.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The scratch schema is there, and from now on is dropped whatever happens but `kill -9`.
    Made {
        /// Its name.
        schema: &'a str,
        /// The database that it is in.
        database: &'a str,
        /// What the reader of the figures has to know.
        warnings: &'a [String],
    },
    /// One turn is over.
    Turn {
        /// Turns so far, those that only warm up among them.
        done: u32,
        /// Turns altogether.
        total: u32,
    },
}

/// Runs the comparison.
///
/// `stop`: soft ends it after the requests under way, hard at once; either way the scratch schema is dropped and what
/// was measured so far is in the report. Returns [`Error::Invalid`] for a request that makes no sense, the database's
/// own error with SQLSTATE 42P06 where the scratch schema exists already, 25006 on a read-only server, 42501 without
/// the privilege CREATE on the database. After an error that ended the run the schema is dropped too; where that could
/// not be done, the error says so and how to do it by hand.
pub async fn run(
    settings: &Settings,
    request: &Request,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &Stop,
) -> Result<Report> {
    request.check()?;
    let mut admin = tokio::select! {
        admin = Connection::open(settings) => admin?,
        () = stop.soft() => return Err(Error::Interrupted),
    };
    let mut warnings = surroundings::before(&admin, request).await?;
    warnings.extend(scratch::leftovers(&admin).await?);
    let name = request
        .scratch
        .clone()
        .unwrap_or_else(|| scratch::random_name("bench"));
    let made = sql::create(&mut admin, &name).await?;
    progress(Progress::Made {
        schema: &name,
        database: &admin.facts().database,
        warnings: &warnings,
    });
    let measured = tokio::select! {
        measured = measure(settings, request, &name, &admin, progress, stop) => measured,
        () = stop.hard() => Err(Error::Interrupted),
    };
    let mut report = scratch::settle(measured, admin, settings, &made).await?;
    warnings.append(&mut report.warnings);
    report.warnings = warnings;
    Ok(report)
}

async fn measure(
    settings: &Settings,
    request: &Request,
    schema: &str,
    admin: &Connection,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &Stop,
) -> Result<Report> {
    let plan = Plan::new(request);
    let env = tokio::select! {
        env = Env::make(settings, request, schema, admin, plan.expired) => env?,
        () = stop.soft() => return Err(Error::Interrupted),
    };
    let mut sums: Vec<Sum> = Vec::new();
    let mut done = 0;
    let mut told = |done: &mut u32| {
        *done += 1;
        let (done, total) = (*done, plan.turns);
        progress(Progress::Turn { done, total });
    };
    'scenarios: for (scenario, ways) in &plan.scenarios {
        let (first, first_turn) = (sums.len(), done);
        sums.extend(ways.iter().map(|way| Sum::new(*scenario, *way)));
        for round in 0..=plan.rounds {
            for place in 0..ways.len() {
                // Nobody is always the first, nor always behind the same neighbour's dirty pages.
                let at = (place + usize::try_from(round).unwrap_or(0)) % ways.len();
                let turn = Turn {
                    scenario: *scenario,
                    way: ways[at],
                    length: if round == 0 {
                        plan.turn.min(WARM_UP)
                    } else {
                        plan.turn
                    },
                    keys: Keys::of(*scenario, request.keys, plan.lot, done - first_turn),
                };
                let wal = surroundings::wal(admin).await;
                let meter = turn::run(&env, turn, stop).await?;
                if stop.is_soft() {
                    break 'scenarios;
                }
                let wal = wal
                    .zip(surroundings::wal(admin).await)
                    .map(|(from, to)| to - from);
                if round > 0 {
                    sums[first + at].add(meter, wal);
                }
                told(&mut done);
            }
        }
    }
    env.close().await;
    let mut report = report::assemble(request, &plan, admin, sums);
    report.schema = schema.to_owned();
    report.interrupted = stop.is_soft();
    report
        .warnings
        .extend(surroundings::after(admin, plan.turn).await?);
    Ok(report)
}

/// How the time is shared out.
#[derive(Debug)]
struct Plan {
    scenarios: Vec<(Scenario, Vec<Way>)>,
    rounds: u32,
    turn: Duration,
    /// Turns altogether, the uncounted ones included.
    turns: u32,
    /// Expired keys for one turn of the scenario takeover.
    lot: u64,
    /// Expired keys for all of them.
    expired: u64,
}

impl Plan {
    fn new(request: &Request) -> Self {
        let scenarios: Vec<(Scenario, Vec<Way>)> = request
            .scenarios
            .iter()
            .map(|scenario| {
                let floor = Way::Floor(scenario.floor());
                let strategies = request.strategies.iter().copied();
                let able = strategies.filter(|strategy| strategy.why_not(*scenario).is_none());
                (
                    *scenario,
                    std::iter::once(floor).chain(able.map(Way::Strategy)).collect(),
                )
            })
            .collect();
        // A handful of scenarios with a handful of ways.
        let ways = u32::try_from(scenarios.iter().map(|(_, ways)| ways.len()).sum::<usize>())
            .unwrap_or(u32::MAX)
            .max(1);
        let good = (request.duration / ways).as_millis() / GOOD_TURN.as_millis();
        let rounds = u32::try_from(good)
            .unwrap_or(MOST_ROUNDS)
            .clamp(LEAST_ROUNDS, MOST_ROUNDS);
        // An odd number has a round in the middle: the median.
        let rounds = rounds - (rounds + 1) % 2;
        let takeovers = scenarios
            .iter()
            .find(|(scenario, _)| *scenario == Scenario::Takeover)
            .map_or(0, |(_, ways)| {
                u64::try_from(ways.len()).unwrap_or(1) * u64::from(rounds + 1)
            });
        let lot = u64::from(request.keys).div_ceil(takeovers.max(1));
        Self {
            turn: request.duration / ways / rounds,
            turns: ways * (rounds + 1),
            lot,
            expired: lot * takeovers,
            scenarios,
            rounds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_of_takeovers_has_keys_of_its_own() {
        for keys in [100, 101, 100_000] {
            let plan = Plan::new(&Request {
                duration: Duration::from_mins(1),
                keys,
                scenarios: vec![Scenario::Takeover],
                ..Request::default()
            });
            // The floor, the lease and the upsert.
            assert_eq!((plan.rounds, plan.turns), (MOST_ROUNDS, 3 * (MOST_ROUNDS + 1)));
            assert_eq!(plan.expired, plan.lot * u64::from(plan.turns));
            assert!(plan.expired >= u64::from(keys));
        }
    }

    #[test]
    fn the_turns_fill_the_time_that_is_given() {
        let request = Request::default();
        let plan = Plan::new(&request);
        let ways: usize = plan.scenarios.iter().map(|(_, ways)| ways.len()).sum();
        let turns = u32::try_from(ways).unwrap() * plan.rounds;
        let all = plan.turn * turns;
        assert!(
            all <= request.duration && all > request.duration.mul_f64(0.99),
            "{all:?}"
        );
        assert_eq!(plan.rounds, LEAST_ROUNDS);
    }
}
