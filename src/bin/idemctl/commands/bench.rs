//! `idemctl bench`: the ways to claim a key, compared on the user's own database.

use std::io::IsTerminal;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use idemctl::error::Error;
use idemctl::ops::bench::{self, Progress, RedisUrl, Report, Request, Scenario, Strategy, Way};

use crate::cli::Format;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use crate::render::bench::BenchView;
use crate::settings;

/// Where the URL of the Redis may stand instead of the command line, which others can read.
const REDIS_URL: &str = "IDEMCTL_BENCH_REDIS_URL";

/// Compare the ways to claim a key on this database, in a scratch schema that is dropped afterwards
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    /// Time of all turns together
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = settings::duration)]
    duration: Duration,
    /// Requests at once
    #[arg(long, value_name = "N", default_value_t = 16)]
    clients: usize,
    /// Connections that they share
    #[arg(long, value_name = "N", default_value_t = 20)]
    pool: usize,
    /// Rows of the table before it begins
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u32,
    /// How long whoever has won a key pretends to work, at most 10s
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = work)]
    work: Duration,
    /// What to measure (repeatable) [default: all]
    #[arg(long, value_name = "NAME", value_parser = scenario_names())]
    scenario: Vec<Scenario>,
    /// Only the race of all clients for one key: short for `--scenario hot`
    #[arg(long, conflicts_with = "scenario")]
    hot: bool,
    /// What to compare (repeatable) [default: all, redis where a URL is given]
    #[arg(long, value_name = "NAME", value_parser = strategy_names())]
    strategy: Vec<Strategy>,
    /// A Redis or Valkey for the strategy redis [env: `IDEMCTL_BENCH_REDIS_URL`]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Name of the scratch schema, which must not exist [default: a random one]
    #[arg(long, value_name = "NAME")]
    scratch: Option<String>,
}

/// No work is allowed, unlike a timeout of no length.
fn work(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" | "0ms" => Ok(Duration::ZERO),
        text => settings::duration(text),
    }
}

fn scenario_names() -> impl TypedValueParser<Value = Scenario> {
    PossibleValuesParser::new(Scenario::ALL.map(Scenario::as_str)).try_map(|name| {
        let found = Scenario::ALL
            .into_iter()
            .find(|scenario| scenario.as_str() == name);
        found.ok_or("no scenario")
    })
}

fn strategy_names() -> impl TypedValueParser<Value = Strategy> {
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::as_str)).try_map(|name| {
        let found = Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == name);
        found.ok_or("no strategy")
    })
}

pub(crate) async fn run(context: &Context, args: BenchArgs) -> Result<Exit> {
    let lifecycle = Lifecycle::install(false)?;
    let request = request(context, args);
    request.check()?;
    let bar = progress_bar(context);
    let mut progress = |now: Progress<'_>| match now {
        Progress::Made {
            schema,
            database,
            warnings,
        } => {
            for warning in warnings {
                context.printer.note(warning);
            }
            context.printer.note(&format!(
                "made the scratch schema {schema} in the database {database}; nothing else is written to, and it is \
                 dropped at the end"
            ));
        }
        Progress::Turn { done, total } => {
            bar.set_length(u64::from(total));
            bar.set_position(u64::from(done));
        }
        _ => {}
    };
    let settings = context.settings.connection()?;
    let result = Box::pin(bench::run(&settings, &request, &mut progress, &lifecycle.stop)).await;
    bar.finish_and_clear();
    let report = result.map_err(explain)?;
    context.printer.document(&BenchView::from(&report))?;
    if report.interrupted {
        return Err(CliError::new(
            Exit::Interrupted,
            "interrupted; the scratch schema is dropped, and what is shown was measured until then",
        ));
    }
    doubles_of_ours(&report)
}

fn request(context: &Context, args: BenchArgs) -> Request {
    let BenchArgs {
        duration,
        clients,
        pool,
        keys,
        work,
        scenario,
        hot,
        strategy,
        redis,
        scratch,
    } = args;
    let redis = redis
        .or_else(|| context.settings.environment().get(REDIS_URL).map(str::to_owned))
        .map(RedisUrl::new);
    let strategies = if strategy.is_empty() {
        let all = Strategy::ALL.into_iter();
        all.filter(|strategy| *strategy != Strategy::Redis || redis.is_some())
            .collect()
    } else {
        once_each(strategy)
    };
    let scenarios = match (hot, scenario.is_empty()) {
        (true, _) => vec![Scenario::Hot],
        (false, true) => Scenario::ALL.to_vec(),
        (false, false) => once_each(scenario),
    };
    Request {
        duration,
        clients,
        pool,
        keys,
        scenarios,
        strategies,
        work,
        redis,
        scratch,
    }
}

/// Whoever names something twice means it once.
fn once_each<T: PartialEq>(given: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(given.len());
    for item in given {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

fn progress_bar(context: &Context) -> indicatif::ProgressBar {
    if std::io::stderr().is_terminal() && context.printer.format() == Format::Table {
        indicatif::ProgressBar::new_spinner()
    } else {
        indicatif::ProgressBar::hidden()
    }
}

fn explain(error: Error) -> CliError {
    match error.sqlstate() {
        Some("42P06") => CliError::new(Exit::Refused, error.to_string()).hint(
            "bench works only in a schema that it makes itself; nothing was changed. Choose another --scratch, or leave \
             it out for a random name",
        ),
        Some("42501") => CliError::new(Exit::Other, error.to_string()).hint(
            "bench makes a schema of its own, for which the role needs CREATE on the database; nothing was changed",
        ),
        _ => CliError::from(error),
    }
}

/// Work done twice by the way that is meant to be used is a failure; that others do it is what is to be seen.
fn doubles_of_ours(report: &Report) -> Result<Exit> {
    let ours = report
        .figures
        .iter()
        .filter(|figure| figure.way == Way::Strategy(Strategy::Lease));
    match ours.map(|figure| figure.doubles).sum::<u64>() {
        0 => Ok(Exit::Done),
        doubles => Err(
            CliError::new(Exit::Bug, format!("the lease let {doubles} works be done twice"))
                .hint("this is a bug in idemctl; please report it with the output above"),
        ),
    }
}
