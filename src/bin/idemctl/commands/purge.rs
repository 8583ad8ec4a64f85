//! `idemctl purge`: the TTL purge once, for timers and by hand.

use std::io::IsTerminal;
use std::time::Duration;

use idemctl::connect::{Connection, Settings};
use idemctl::error::Error;
use idemctl::janitor::Job;
use idemctl::janitor::turn::{Outcome, Taken, Turn, WhenLost, explain};
use idemctl::ops::Failure;
use idemctl::ops::purge::{self, MAX_BATCH_SIZE, Progress, Report, Request, Stopped};
use idemctl::stop::Stop;
use idemctl::store::Store;

use crate::cli::Format;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use crate::render::purge::PurgeView;
use crate::safety::{ChangeArgs, Confirmed, confirm, exempt};
use crate::settings;

/// Delete finished keys whose retention is over, in batches; keys in progress are never touched
#[derive(Debug, clap::Args)]
pub(crate) struct PurgeArgs {
    /// Time since completion, instead of the configured retention; asks when it is shorter
    #[arg(long, value_name = "DURATION", value_parser = settings::duration)]
    ttl: Option<Duration>,
    /// Rows looked at per transaction [default: 5000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_BATCH_SIZE)))]
    batch_size: Option<u32>,
    /// Never delete more rows than this [default: as configured, else no limit]
    #[arg(long, value_name = "N")]
    max_rows: Option<u64>,
    /// Start no further batch after this time [default: as configured, else no limit]
    #[arg(long, value_name = "DURATION", value_parser = settings::duration)]
    max_duration: Option<Duration>,
    /// Rest between two batches
    #[arg(long, value_name = "DURATION", value_parser = settings::duration)]
    pause: Option<Duration>,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) async fn run(context: &Context, args: PurgeArgs) -> Result<Exit> {
    let lifecycle = Lifecycle::install(false)?;
    let request = request(context, &args)?;
    let interrupted = || CliError::new(Exit::Interrupted, "interrupted; nothing was deleted");
    let (mut connection, store) = tokio::select! {
        opened = context.open() => opened?,
        () = lifecycle.stop.soft() => return Err(interrupted()),
    };
    let confirmed = tokio::select! {
        confirmed = gate(context, &args, &request, &connection, &store) => confirmed?,
        () = lifecycle.stop.soft() => return Err(interrupted()),
    };
    // The configured purge is the daemon's job too; another retention, or a look, is not.
    let turn = match args.ttl {
        None if !request.dry_run => turn(context, &connection, &store).await?,
        _ => None,
    };
    let result = delete(
        context,
        &lifecycle,
        &mut connection,
        &store,
        &request,
        (turn.as_ref(), &context.settings.connection()?),
        confirmed,
    )
    .await;
    if let Some(turn) = &turn {
        write_down(turn, &connection, &store, &result).await;
    }
    let report = result.map_err(|failure| failed(context, failure))?;
    context.printer.document(&PurgeView::from(&report))?;
    if report.stopped == Stopped::Interrupted {
        return Err(
            CliError::new(Exit::Interrupted, "interrupted; what was deleted stays deleted")
                .hint("run it again for the rest"),
        );
    }
    left(context, &report)?;
    Ok(Exit::Done)
}

/// Rows that others held locked are left for the next purge as those beyond `--max-rows` are, which is no fault; rows
/// that refuse would be left for ever, and somebody has to know.
fn left(context: &Context, report: &Report) -> Result<()> {
    let locked = report.skipped - report.refused;
    if locked > 0 {
        context.printer.note(&format!(
            "{locked} rows stayed locked and were stepped over; the next purge takes them"
        ));
    }
    if report.refused == 0 {
        return Ok(());
    }
    let message = format!(
        "{} rows could not be deleted and were stepped over (the log above says why)",
        report.refused
    );
    Err(CliError::new(Exit::Partial, message).hint(
        "mend what keeps them: a foreign key that refers to them, a trigger, a rule, row-level security, or a          statement timeout that is too short",
    ))
}

fn request(context: &Context, args: &PurgeArgs) -> Result<Request> {
    let config = &context.settings.config;
    // The configured retention is reason enough; anything else is somebody's decision.
    let reason = match (&args.change.reason, args.ttl) {
        (None, None) => Some("retention"),
        (reason, _) => reason.as_deref(),
    };
    let actor = context.actor(reason)?;
    let mut request = config.janitor.purge.request(&config.retention, actor);
    if let Some(ttl) = args.ttl {
        (request.retention.done, request.retention.failed) = (ttl, ttl);
    }
    request.batch_size = args.batch_size.unwrap_or(request.batch_size);
    request.max_rows = args.max_rows.or(request.max_rows);
    request.max_duration = args.max_duration.or(request.max_duration);
    request.pause = args.pause.unwrap_or(request.pause);
    request.dry_run = args.change.dry_run;
    request.check()?;
    Ok(request)
}

/// Asks where the keys would go earlier than the configuration says.
async fn gate(
    context: &Context,
    args: &PurgeArgs,
    request: &Request,
    connection: &Connection,
    store: &Store,
) -> Result<Confirmed> {
    let configured = context.settings.config.retention.for_purge();
    let shorter = args
        .ttl
        .is_some_and(|ttl| ttl < configured.done || ttl < configured.failed);
    if !shorter || request.dry_run {
        return Ok(exempt());
    }
    if args.change.yes {
        return confirm(&args.change, "");
    }
    let due = purge::backlog(connection, store, &request.retention).await?;
    let question = format!(
        "delete {}{} finished keys after {} instead of the configured {}? Repeats of these requests would run again.",
        if due.capped { "more than " } else { "" },
        due.rows,
        settings::show_duration(request.retention.done),
        settings::show_duration(configured.done),
    );
    confirm(&args.change, &question)
}

/// Takes the job, so that a daemon does not do the same again at once. Where somebody runs it already, or the role may
/// not say that it does, it is said and purged all the same: whoever types `purge` wants space now, and two purges
/// delete no row twice.
async fn turn(context: &Context, connection: &Connection, store: &Store) -> Result<Option<Turn>> {
    match Turn::take(connection, store, Job::Purge).await {
        Ok(Taken::Ours(turn)) => Ok(Some(turn)),
        Ok(Taken::Held(held)) => {
            context.printer.note(&format!(
                "{held}; this purge runs beside it, and each row is deleted once"
            ));
            Ok(None)
        }
        Err(error) if error.sqlstate() == Some("42501") || matches!(error, Error::Contended { .. }) => {
            tracing::warn!("the daemon will not know of this purge: {}", explain(error));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes down how the purge went. Where that fails the purge itself is done all the same.
async fn write_down(
    turn: &Turn,
    connection: &Connection,
    store: &Store,
    result: &Result<Report, Failure<Report>>,
) {
    let (outcome, summary) = match result {
        Ok(report) if report.stopped == Stopped::Interrupted => (Outcome::Interrupted, report.to_string()),
        Ok(report) if report.refused > 0 => (Outcome::Partial, report.to_string()),
        Ok(report) => (Outcome::Ok, report.to_string()),
        Err(failure) if matches!(failure.cause, Error::Interrupted) => {
            (Outcome::Interrupted, failure.to_string())
        }
        Err(failure) => (Outcome::Failed, failure.to_string()),
    };
    if let Err(error) = turn.finish(connection, store, outcome, &summary).await {
        tracing::warn!(%error, "how the purge went could not be written down; a daemon will run the job again");
    }
}

/// What was deleted is told on stdout too, for those who read JSON; the error that counts comes after.
fn failed(context: &Context, failure: Failure<Report>) -> CliError {
    let done = failure.report.to_string();
    let _written = context
        .printer
        .document(&PurgeView::from(failure.report.as_ref()));
    let interrupted = matches!(failure.cause, Error::Interrupted);
    let error = CliError::from(failure.cause).before(&done);
    if interrupted {
        error.hint("run it again for the rest")
    } else {
        error
    }
}

/// Purges, with a bar on a terminal.
async fn delete(
    context: &Context,
    lifecycle: &Lifecycle,
    connection: &mut Connection,
    store: &Store,
    request: &Request,
    (turn, settings): (Option<&Turn>, &Settings),
    _confirmed: Confirmed,
) -> Result<Report, Failure<Report>> {
    let visible = std::io::stderr().is_terminal() && context.printer.format() == Format::Table;
    let bar = if visible {
        // The count only gives the bar its length: where it takes too long, there is none.
        let due = purge::backlog(connection, store, &request.retention).await.ok();
        due.map_or_else(indicatif::ProgressBar::new_spinner, |due| {
            indicatif::ProgressBar::new(due.rows)
        })
    } else {
        indicatif::ProgressBar::hidden()
    };
    let mut progress = |now: &Progress| {
        // The count ends at its cap, and rows become due meanwhile.
        let seen = now.deleted + now.skipped;
        if bar.length().is_some_and(|length| length < seen) {
            bar.set_length(seen);
        }
        bar.set_position(seen);
    };
    let stop = &lifecycle.stop;
    let result = match turn {
        None => purge::run(connection, store, request, &mut progress, stop).await,
        Some(turn) => {
            let work = async |stop: Stop| purge::run(connection, store, request, &mut progress, &stop).await;
            let (result, lost) = turn.keep(settings, stop, WhenLost::GoOn, work).await;
            if let Some(how) = lost {
                tracing::warn!("a daemon may have purged at the same time, which does no harm: {how}");
            }
            result
        }
    };
    bar.finish_and_clear();
    result
}
