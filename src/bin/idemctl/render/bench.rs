//! What a comparison measured.

mod table;

use std::io::{self, Write};
use std::time::Duration;

use idemctl::ops::bench::{Figure, NotApplicable, Quantiles, Report, Scenario};
use serde::Serialize;

use super::{Document, printable};

/// `bench -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct BenchView {
    schema: String,
    server_version: String,
    clients: usize,
    pool: usize,
    keys: u32,
    work_seconds: f64,
    rounds: u32,
    turn_seconds: f64,
    interrupted: bool,
    warnings: Vec<String>,
    results: Vec<ResultView>,
    not_applicable: Vec<NotApplicableView>,
}

#[derive(Debug, Serialize)]
struct ResultView {
    scenario: &'static str,
    strategy: &'static str,
    floor: bool,
    answers: u64,
    worked: u64,
    replayed: u64,
    in_progress: u64,
    errors: u64,
    first_error: Option<String>,
    doubles: u64,
    measured_seconds: f64,
    per_second: f64,
    /// Of the floor of the same scenario.
    ratio: Option<f64>,
    ratio_min: Option<f64>,
    ratio_max: Option<f64>,
    claim: QuantilesView,
    losers: f64,
    pool_wait: QuantilesView,
    pool_saturated: f64,
    wal_bytes_per_answer: Option<f64>,
}

#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the contract has the unit in each name")]
struct QuantilesView {
    p50_seconds: f64,
    p95_seconds: f64,
    p99_seconds: f64,
    max_seconds: f64,
}

#[derive(Debug, Serialize)]
struct NotApplicableView {
    scenario: &'static str,
    strategy: &'static str,
    why: &'static str,
}

impl From<&Report> for BenchView {
    fn from(report: &Report) -> Self {
        let Report {
            schema,
            server_version,
            rounds,
            turn,
            clients,
            pool,
            keys,
            work,
            figures,
            not_applicable,
            warnings,
            interrupted,
        } = report;
        Self {
            schema: schema.clone(),
            server_version: server_version.clone(),
            clients: *clients,
            pool: *pool,
            keys: *keys,
            work_seconds: work.as_secs_f64(),
            rounds: *rounds,
            turn_seconds: rounded(turn.as_secs_f64(), 1e6),
            interrupted: *interrupted,
            warnings: warnings.clone(),
            results: figures.iter().map(ResultView::from).collect(),
            not_applicable: not_applicable
                .iter()
                .map(
                    |NotApplicable {
                         scenario,
                         strategy,
                         why,
                     }| NotApplicableView {
                        scenario: scenario.as_str(),
                        strategy: strategy.as_str(),
                        why,
                    },
                )
                .collect(),
        }
    }
}

impl From<&Figure> for ResultView {
    fn from(figure: &Figure) -> Self {
        let Figure {
            scenario,
            way,
            answers,
            worked,
            replayed,
            busy,
            errors,
            first_error,
            doubles,
            elapsed,
            per_second,
            ratio,
            ratio_range,
            claim,
            pool_wait,
            saturated,
            wal_bytes,
        } = figure;
        let cut = |value: f64| rounded(value, 1e4);
        Self {
            scenario: scenario.as_str(),
            strategy: way.as_str(),
            floor: way.is_floor(),
            answers: *answers,
            worked: *worked,
            replayed: *replayed,
            in_progress: *busy,
            errors: *errors,
            first_error: first_error.clone(),
            doubles: *doubles,
            measured_seconds: cut(elapsed.as_secs_f64()),
            per_second: rounded(*per_second, 1e1),
            ratio: ratio.map(cut),
            ratio_min: ratio_range.map(|(least, _)| cut(least)),
            ratio_max: ratio_range.map(|(_, most)| cut(most)),
            claim: QuantilesView::from(claim),
            losers: cut(figure.losers()),
            pool_wait: QuantilesView::from(pool_wait),
            pool_saturated: cut(*saturated),
            wal_bytes_per_answer: wal_bytes.map(|bytes| rounded(bytes, 1e1)),
        }
    }
}

impl From<&Quantiles> for QuantilesView {
    fn from(quantiles: &Quantiles) -> Self {
        let Quantiles { p50, p95, p99, max } = quantiles;
        let seconds = |time: &Duration| time.as_secs_f64();
        Self {
            p50_seconds: seconds(p50),
            p95_seconds: seconds(p95),
            p99_seconds: seconds(p99),
            max_seconds: seconds(max),
        }
    }
}

impl Document for BenchView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "PostgreSQL {}; {} clients, pool of {}, {} keys, work {} ms; {} rounds of {:.0} ms",
            printable(&self.server_version),
            self.clients,
            self.pool,
            self.keys,
            self.work_seconds * 1e3,
            self.rounds,
            self.turn_seconds * 1e3
        )?;
        for scenario in Scenario::ALL {
            let rows: Vec<&ResultView> = self
                .results
                .iter()
                .filter(|row| row.scenario == scenario.as_str())
                .collect();
            if !rows.is_empty() {
                writeln!(out, "\n{}: {}\n", scenario.as_str(), explain(scenario))?;
                table::write(out, &rows)?;
                for row in &rows {
                    if let Some(error) = &row.first_error {
                        let text = printable(error);
                        writeln!(
                            out,
                            "  {}: {} errors, the first: {text}",
                            row.strategy, row.errors
                        )?;
                    }
                }
                for NotApplicableView { strategy, why, .. } in self
                    .not_applicable
                    .iter()
                    .filter(|none| none.scenario == scenario.as_str())
                {
                    writeln!(out, "  {strategy}: not measured; {why}")?;
                }
            }
        }
        writeln!(
            out,
            "\nClaim times (p50 to max) run from having a connection to knowing who does the work. `of floor` is the \
             median of\nratios to the bare statements, taken in turns; `twice`: works done once more for the same key."
        )
    }

    fn csv(&self) -> Option<Vec<Vec<String>>> {
        let head = [
            "scenario",
            "strategy",
            "floor",
            "answers",
            "worked",
            "replayed",
            "in_progress",
            "errors",
            "doubles",
            "measured_seconds",
            "per_second",
            "ratio",
            "claim_p50_seconds",
            "claim_p95_seconds",
            "claim_p99_seconds",
            "claim_max_seconds",
            "losers",
            "pool_wait_p50_seconds",
            "pool_wait_p99_seconds",
            "pool_saturated",
            "wal_bytes_per_answer",
        ];
        let optional = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let rows = self.results.iter().map(|row| {
            vec![
                row.scenario.to_owned(),
                row.strategy.to_owned(),
                row.floor.to_string(),
                row.answers.to_string(),
                row.worked.to_string(),
                row.replayed.to_string(),
                row.in_progress.to_string(),
                row.errors.to_string(),
                row.doubles.to_string(),
                row.measured_seconds.to_string(),
                row.per_second.to_string(),
                optional(row.ratio),
                row.claim.p50_seconds.to_string(),
                row.claim.p95_seconds.to_string(),
                row.claim.p99_seconds.to_string(),
                row.claim.max_seconds.to_string(),
                row.losers.to_string(),
                row.pool_wait.p50_seconds.to_string(),
                row.pool_wait.p99_seconds.to_string(),
                row.pool_saturated.to_string(),
                optional(row.wal_bytes_per_answer),
            ]
        });
        Some(
            std::iter::once(head.map(str::to_owned).to_vec())
                .chain(rows)
                .collect(),
        )
    }
}

fn explain(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Claim => "a new key each time, the claim alone",
        Scenario::Replay => "a key that is done and that this process has met: its stored answer",
        Scenario::ReplayCold => "the same for a key that only other processes have met",
        Scenario::Hot => "all clients race for one new key and then repeat it, again and again",
        Scenario::Complete => "a new key each time: claim, work, stored result",
        Scenario::Takeover => "a key whose holder is gone",
    }
}

fn rounded(value: f64, per_unit: f64) -> f64 {
    (value * per_unit).round() / per_unit
}
