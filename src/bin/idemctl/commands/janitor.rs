//! `idemctl janitor`: the daemon, its jobs once, or a look at its schedules.

use std::sync::Arc;

use idemctl::janitor::clock::Clock;
use idemctl::janitor::service::{self, Event};
use idemctl::janitor::{Config, Done, run_once};
use idemctl::ops::expired::Policy;
use tokio::sync::watch;

use crate::cli::GlobalArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use crate::render::janitor::{CheckView, OnceView};
use crate::safety::{Confirmed, exempt};
use crate::settings::{Environment, Settings};

/// Run the purge and the policy for stuck keys on their schedules
#[derive(Debug, clap::Args)]
pub(crate) struct JanitorArgs {
    /// Run each job once, now, and end
    #[arg(long, conflicts_with = "check")]
    once: bool,
    /// Check the configuration and print the next three runs of each job; the database is not asked
    #[arg(long)]
    check: bool,
}

pub(crate) async fn run(context: &Context, args: &JanitorArgs, global: &GlobalArgs) -> Result<Exit> {
    let config = config(context)?;
    if args.check {
        context
            .printer
            .document(&CheckView::new(&config, Clock::system().now()))?;
        return Ok(Exit::Done);
    }
    if args.once {
        return once(context, &config, exempt()).await;
    }
    daemon(config, global, exempt()).await
}

fn config(context: &Context) -> Result<Config> {
    let settings = &context.settings;
    let actor = context.actor(Some("janitor"))?;
    let connection = settings.connection()?;
    let schema = settings.schema.clone();
    let file = &settings.config;
    file.janitor.resolve(
        &file.retention,
        connection,
        schema,
        &actor,
        context.make_providers(),
    )
}

async fn once(context: &Context, config: &Config, _confirmed: Confirmed) -> Result<Exit> {
    let lifecycle = Lifecycle::install(false)?;
    let round = run_once(config, &lifecycle.stop).await?;
    let view = OnceView::new(round.done, round.held);
    context.printer.document(&view)?;
    if let Some(cause) = round.ended_by {
        return Err(CliError::from(cause).before("the other jobs did not run"));
    }
    if lifecycle.stop.is_soft() {
        return Err(CliError::new(
            Exit::Interrupted,
            "interrupted; what was done stays done",
        ));
    }
    view.outcome()
}

async fn daemon(config: Config, global: &GlobalArgs, _confirmed: Confirmed) -> Result<Exit> {
    let mut lifecycle = Lifecycle::install(true)?;
    let (sender, receiver) = watch::channel(Arc::new(config));
    tracing::info!("the janitor runs");
    let stop = lifecycle.stop.clone();
    let clock = Clock::system();
    let work = service::run(receiver, &clock, &stop, &log);
    tokio::pin!(work);
    loop {
        tokio::select! {
            result = &mut work => {
                result?;
                break;
            }
            Some(()) = lifecycle.reload.recv() => match reload(global) {
                Ok(config) => {
                    sender.send_replace(Arc::new(config));
                    tracing::info!("the new configuration is in force");
                }
                Err(error) => {
                    tracing::error!(error = error.message(), "the new configuration is refused; the old one stays");
                }
            },
        }
    }
    match lifecycle.daemon_exit() {
        Exit::Done => {
            tracing::info!("stopped");
            Ok(Exit::Done)
        }
        exit => Err(CliError::new(exit, "the janitor was interrupted")),
    }
}

/// Flags and environment are those of the start; the file is read again.
fn reload(global: &GlobalArgs) -> Result<Config> {
    config(&Context::new(Settings::resolve(
        global,
        Environment::of_process(),
    )?))
}

/// Stuck keys that the policy only reports: named, so that somebody looks.
fn stuck(done: &Done) -> Option<String> {
    let Done::Expired(Ok(report)) = done else {
        return None;
    };
    if report.policy != Policy::Report || report.stuck == 0 {
        return None;
    }
    let first: Vec<String> = report.first.iter().map(ToString::to_string).collect();
    let age = report
        .oldest_seconds
        .map(|seconds| format!(", the oldest for {}", crate::render::key::age(seconds)))
        .unwrap_or_default();
    Some(format!("{report}{age}; first: {}", first.join(", ")))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the library's observer gets the event itself"
)]
fn log(event: Event<'_>) {
    match event {
        Event::Scheduled { job, at } => tracing::info!(%job, at = %at.to_rfc3339(), "next run"),
        Event::Started { job } => tracing::debug!(%job, "run starts"),
        Event::Held { job, by, until } => {
            tracing::info!(%job, by = %by.escape_debug(), %until, "somebody else runs it");
        }
        Event::Lost { job, how } => tracing::warn!(%job, "the run stopped, since the job was lost: {how}"),
        Event::Finished { done } => {
            let job = done.job();
            if done.cause().is_some() {
                tracing::error!(%job, "run failed: {done}");
            } else if done.is_partial() {
                tracing::warn!(%job, "run partly done: {done}");
            } else if let Some(stuck) = stuck(done) {
                tracing::warn!(%job, "{stuck}");
            } else {
                tracing::info!(%job, "run done: {done}");
            }
        }
        Event::NotRun {
            job,
            cause,
            again_in: Some(wait),
        } => {
            tracing::warn!(%job, again_in_ms = wait.as_millis(), "couldn't run, trying again: {cause}");
        }
        Event::NotRun {
            job,
            cause,
            again_in: None,
        } => {
            tracing::error!(%job, "couldn't run, next try on schedule: {cause}");
        }
        _ => {}
    }
}
