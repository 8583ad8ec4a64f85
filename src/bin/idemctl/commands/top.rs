//! `idemctl top`: the table as it lives.

use std::time::Duration;

use idemctl::janitor::Job;
use idemctl::ops::top::Request;

use super::inspect::interval;
use crate::cli::{Format, GlobalArgs};
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};

/// Watch the table live: states, rates, expired keys, the janitor, events; inspect and reconcile by keys
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Keys: Up/Down select, Enter inspect, p ask the provider, r reconcile (asks first), + - interval, ? help, q quit.
The terminal is put back however it ends, except by `kill -9`: then type `reset`.")]
pub(crate) struct TopArgs {
    /// How often to look
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Only expired keys and events of this client; counts and rates stay those of all
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
}

/// Expired keys on the screen; who has more needs `list`.
const EXPIRED: u32 = 200;
/// Events, at most as many as fit a tall terminal.
const EVENTS: u32 = 12;

pub(crate) async fn run(context: &Context, args: TopArgs, global: &GlobalArgs) -> Result<Exit> {
    if context.printer.format() != Format::Table {
        return Err(CliError::usage("`top` is for people and has no other form")
            .hint("for programs: `idemctl stats -o json`, `idemctl list --state expired -o json`"));
    }
    let request = Request {
        client_id: args.client,
        expired: EXPIRED,
        events: EVENTS,
        jobs: Job::ALL.map(Job::as_str).to_vec(),
    };
    crate::top::run(context, global, request, args.interval).await
}
