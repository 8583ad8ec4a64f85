//! `idemctl inspect`: one key on one screen.

use idemctl::key::KeyId;
use idemctl::ops::inspect;
use idemctl::record::{Record, State};

use super::key_arg::KeyArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::inspect::{EventView, InspectView};

/// Show one key: state, holder, response, history, and what is safe to do next
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Show the stored body (secrets masked)
    #[arg(long)]
    show_response: bool,
    /// Show secrets in the body too; written to the event log
    #[arg(long, requires = "show_response")]
    unmask: bool,
    /// Why, for the event log
    #[arg(long, value_name = "TEXT", requires = "unmask")]
    reason: Option<String>,
}

pub(crate) async fn run(context: &Context, args: InspectArgs) -> Result<Exit> {
    let id = args.key.id()?;
    let (mut connection, store) = context.open().await?;
    let Some(report) = inspect::run(&connection, &store, &id, args.show_response).await? else {
        let history = inspect::history(&connection, &store, &id).await?;
        return Err(not_found(
            &id,
            &history.into_iter().map(EventView::from).collect::<Vec<_>>(),
        ));
    };
    if args.unmask {
        let actor = context.actor(args.reason.as_deref())?;
        inspect::record_unmask(&mut connection, &store, &id, &actor).await?;
    }
    let next = next(&report.record);
    let view = InspectView::new(report, &context.settings.config.retention, args.unmask, next);
    context.printer.document(&view)?;
    Ok(Exit::Done)
}

/// The next safe command, as it would be typed; `None` where nothing needs to be done.
fn next(record: &Record) -> Option<String> {
    match record.state {
        Some(State::Expired) => Some(format!("idemctl provider status {}", quoted(record.order_id()))),
        Some(State::InProgress | State::Done | State::Failed) | None => None,
    }
}

/// A word that a shell reads as one.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && !word.starts_with('-') && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn not_found(id: &KeyId, history: &[EventView]) -> CliError {
    let error = CliError::new(Exit::NotFound, format!("no key {id}"));
    match history.first() {
        Some(event) => error.hint(format!("its last event: {}", event.line())),
        None => error.hint(
            "never used, deleted by the purge, or in another schema or database (`idemctl config` shows which)",
        ),
    }
}
