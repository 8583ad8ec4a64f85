//! `idemctl bench`: every strategy and scenario for a moment, what they show, and that nothing is left.

mod figures;
mod redis;
mod scratch;
mod trouble;

use idemctl::ops::bench::{self, Figure, Report, Request, Scenario, Strategy, Way};
use idemctl::stop::Stop;

use crate::support::Database;

/// As little as can be measured.
fn request(scenarios: &[Scenario], strategies: &[Strategy]) -> Request {
    Request {
        duration: std::time::Duration::from_millis(400),
        clients: 8,
        pool: 8,
        keys: 500,
        scenarios: scenarios.to_vec(),
        strategies: strategies.to_vec(),
        ..Request::default()
    }
}

async fn run(db: &Database, request: &Request) -> Report {
    let report = bench::run(&db.settings(), request, &mut |_| {}, &Stop::never()).await;
    report.unwrap_or_else(|error| panic!("{request:?}: {error}"))
}

/// One strategy in one scenario.
#[track_caller]
fn figure(report: &Report, scenario: Scenario, strategy: Strategy) -> &Figure {
    report
        .figures
        .iter()
        .find(|figure| figure.scenario == scenario && figure.way == Way::Strategy(strategy))
        .unwrap_or_else(|| panic!("{} of {} was not measured", strategy.as_str(), scenario.as_str()))
}

/// Schemas that are not the server's own.
async fn schemas(db: &Database) -> Vec<String> {
    let rows = db
        .client
        .query(
            "select nspname::text from pg_namespace
              where nspname !~ '^pg_' and nspname not in ('information_schema', 'public') order by 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
