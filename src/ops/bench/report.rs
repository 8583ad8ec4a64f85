//! The figures.

use std::time::Duration;

use super::Plan;
use super::meter::Meter;
use super::request::{Request, Scenario, Way};
use crate::connect::Connection;

/// What a run measured.
#[derive(Debug, Clone)]
pub struct Report {
    /// The scratch schema, which is gone by now.
    pub schema: String,
    /// The server's version.
    pub server_version: String,
    /// Turns of each way in each scenario that were counted.
    pub rounds: u32,
    /// Length of one turn.
    pub turn: Duration,
    /// Requests at once.
    pub clients: usize,
    /// Connections that they shared.
    pub pool: usize,
    /// Rows of the table before the first turn.
    pub keys: u32,
    /// The winner's simulated work.
    pub work: Duration,
    /// Scenario by scenario, the floor first.
    pub figures: Vec<Figure>,
    /// What was asked for and makes no sense.
    pub not_applicable: Vec<NotApplicable>,
    /// What the reader of the figures has to know.
    pub warnings: Vec<String>,
    /// Whether a stop was asked for before the end.
    pub interrupted: bool,
}

/// One way in one scenario.
#[derive(Debug, Clone)]
pub struct Figure {
    /// The scenario.
    pub scenario: Scenario,
    /// The way.
    pub way: Way,
    /// Requests that got an answer.
    pub answers: u64,
    /// Those that did the work.
    pub worked: u64,
    /// Those that got a stored answer.
    pub replayed: u64,
    /// Those that were sent away because somebody else was at work.
    pub busy: u64,
    /// Requests that ended in an error of the database, such as a violated key.
    pub errors: u64,
    /// The first of these errors.
    pub first_error: Option<String>,
    /// How often the work was done once more for a key that had it done or being done already.
    pub doubles: u64,
    /// Measured time of all turns.
    pub elapsed: Duration,
    /// Answers per second.
    pub per_second: f64,
    /// Median of the turns' speeds, each divided by the floor's in the same round; `None` for a floor that did nothing.
    pub ratio: Option<f64>,
    /// The smallest and the largest of these.
    pub ratio_range: Option<(f64, f64)>,
    /// From having a connection to knowing who does the work. What comes after is not in it: neither the work nor the
    /// commit of a transaction that spans the work.
    pub claim: Quantiles,
    /// Waiting for a connection of the pool.
    pub pool_wait: Quantiles,
    /// Share of the time in which every connection was lent, 0 to 1.
    pub saturated: f64,
    /// Bytes of WAL that the server wrote per answer, if it may be asked.
    pub wal_bytes: Option<f64>,
}

impl Figure {
    /// The share of answers that went to requests which did not do the work, 0 to 1.
    pub fn losers(&self) -> f64 {
        share(self.replayed + self.busy, self.answers)
    }
}

/// Times by rank; zero where nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantiles {
    /// The median.
    pub p50: Duration,
    /// 95 of 100 took no longer.
    pub p95: Duration,
    /// 99 of 100 took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// A strategy that has no part in a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotApplicable {
    /// The scenario.
    pub scenario: Scenario,
    /// The strategy.
    pub strategy: super::Strategy,
    /// Why.
    pub why: &'static str,
}

/// What is added up over the rounds.
#[derive(Debug)]
pub(super) struct Sum {
    scenario: Scenario,
    way: Way,
    meter: Meter,
    speeds: Vec<f64>,
    /// `None` as soon as one turn could not be asked for it.
    wal: Option<i64>,
}

impl Sum {
    pub(super) fn new(scenario: Scenario, way: Way) -> Self {
        Self {
            scenario,
            way,
            meter: Meter::new(),
            speeds: Vec::new(),
            wal: Some(0),
        }
    }

    pub(super) fn add(&mut self, meter: Meter, wal: Option<i64>) {
        self.speeds.push(per_second(meter.answers(), meter.elapsed));
        self.wal = self.wal.zip(wal).map(|(sum, more)| sum + more);
        self.meter.add(meter);
    }

    fn figure(self, floor: &[f64]) -> Figure {
        let Meter {
            claim,
            wait,
            worked,
            replayed,
            busy,
            errors,
            ref error,
            works,
            due,
            elapsed,
            empty,
        } = self.meter;
        let answers = worked + replayed + busy;
        let mut ratios: Vec<f64> = self
            .speeds
            .iter()
            .zip(floor)
            .filter(|(_, floor)| **floor > 0.0)
            .map(|(speed, floor)| speed / floor)
            .collect();
        ratios.sort_by(f64::total_cmp);
        Figure {
            scenario: self.scenario,
            way: self.way,
            answers,
            worked,
            replayed,
            busy,
            errors,
            first_error: error.clone(),
            doubles: works.saturating_sub(due),
            elapsed,
            per_second: per_second(answers, elapsed),
            ratio: ratios.get(ratios.len() / 2).copied(),
            ratio_range: ratios.first().copied().zip(ratios.last().copied()),
            claim: quantiles(&claim),
            pool_wait: quantiles(&wait),
            saturated: if elapsed.is_zero() {
                0.0
            } else {
                (empty.as_secs_f64() / elapsed.as_secs_f64()).min(1.0)
            },
            wal_bytes: self
                .wal
                .filter(|_| answers > 0)
                .map(|wal| float(u64::try_from(wal).unwrap_or(0)) / float(answers)),
        }
    }
}

/// The report of what was measured; a scenario that was not begun is not in it.
pub(super) fn assemble(request: &Request, plan: &Plan, admin: &Connection, sums: Vec<Sum>) -> Report {
    let mut figures = Vec::with_capacity(sums.len());
    let mut floor: Vec<f64> = Vec::new();
    for sum in sums {
        if sum.way.is_floor() {
            floor.clone_from(&sum.speeds);
        }
        if !sum.speeds.is_empty() {
            figures.push(sum.figure(&floor));
        }
    }
    let pairs = request.scenarios.iter().flat_map(|scenario| {
        request
            .strategies
            .iter()
            .map(move |strategy| (*scenario, *strategy))
    });
    Report {
        schema: String::new(),
        server_version: admin.facts().server_version.clone(),
        rounds: plan.rounds,
        turn: plan.turn,
        clients: request.clients,
        pool: request.pool,
        keys: request.keys,
        work: request.work,
        figures,
        not_applicable: pairs
            .filter_map(|(scenario, strategy)| {
                let why = strategy.why_not(scenario)?;
                Some(NotApplicable {
                    scenario,
                    strategy,
                    why,
                })
            })
            .collect(),
        warnings: Vec::new(),
        interrupted: false,
    }
}

fn quantiles(histogram: &hdrhistogram::Histogram<u64>) -> Quantiles {
    let at = |quantile| Duration::from_micros(histogram.value_at_quantile(quantile));
    Quantiles {
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        max: Duration::from_micros(histogram.max()),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        float(part) / float(whole)
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    float(count) / time.as_secs_f64()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the counts of an hour stay far below 2^53"
)]
fn float(count: u64) -> f64 {
    count as f64
}
