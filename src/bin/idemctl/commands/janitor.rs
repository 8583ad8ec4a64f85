//! `idemctl janitor`: the daemon, its jobs once, or a look at its schedules.

use idemctl::janitor::clock::Clock;
use idemctl::janitor::{Config, run_once};

use crate::cli::GlobalArgs;
use crate::context::Context;
use crate::daemon;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use crate::log::LogFormat;
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
    daemon(context, config, global, exempt()).await
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
    let view = OnceView::new(round.done, &round.held);
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

async fn daemon(
    context: &Context,
    config: Config,
    global: &GlobalArgs,
    _confirmed: Confirmed,
) -> Result<Exit> {
    let options = daemon::Options {
        grace: context.settings.config.janitor.grace(),
        listen: context.settings.config.janitor.listen(),
        notify: context.settings.environment().get("NOTIFY_SOCKET").is_some(),
    };
    let format = context.settings.log_format();
    daemon::run(config, &options, || reload(global, &options, format)).await
}

/// Flags and environment are those of the start; the file is read again.
fn reload(global: &GlobalArgs, started: &daemon::Options, format: LogFormat) -> Result<Config> {
    let settings = Settings::resolve(global, Environment::of_process())?;
    let janitor = &settings.config.janitor;
    if (janitor.listen(), janitor.grace()) != (started.listen, started.grace) {
        tracing::warn!(
            "[janitor] listen and grace are those of the start; restart the daemon to change them"
        );
    }
    if settings.log_format() != format {
        tracing::warn!("[log] format is that of the start; restart the daemon to change it");
    }
    config(&Context::new(settings))
}
