//! `idemctl stats`: how many keys of which sort, how much room, and how far the purge is behind.

use idemctl::ops::stats::{self, Request};

use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::stats::StatsView;

/// Count keys by state, age, client and provider; sizes, dead rows, purge backlog; cheap on a large table
#[derive(Debug, clap::Args)]
pub(crate) struct StatsArgs {
    /// Count every row of a large table instead of sampling its pages; reads all of it
    #[arg(long)]
    exact: bool,
    /// Name so many clients and providers
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    top: u32,
    /// Rows that a purge deletes in a second, for the time that the backlog takes [default: as the last purges did]
    #[arg(long, value_name = "ROWS")]
    rate: Option<f64>,
}

pub(crate) async fn run(context: &Context, args: &StatsArgs) -> Result<Exit> {
    let request = Request {
        exact: args.exact,
        top: args.top,
        retention: context.settings.config.retention.for_purge(),
        rate: args.rate,
    };
    request.check()?;
    let (mut connection, store) = context.open().await?;
    let report = stats::run(&mut connection, &store, &request).await?;
    for unknown in &report.unknown {
        context.printer.note(&format!("not known: {unknown}"));
    }
    let incomplete = args.exact && report.rows.is_none();
    context.printer.document(&StatsView::from(report))?;
    if incomplete {
        return Err(CliError::new(
            Exit::Database,
            "the rows could not be counted within the time limit",
        )
        .hint("give it longer with --statement-timeout 30m, or leave out --exact"));
    }
    Ok(Exit::Done)
}
