//! `idemctl inspect`: one key on one screen.

use std::time::Duration;

use idemctl::key::KeyId;
use idemctl::ops::inspect;
use idemctl::record::{Record, State};

use super::key_arg::KeyArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::event::EventView;
use crate::render::inspect::InspectView;
use crate::render::provider::StatusView;

/// Show one key: state, holder, response, history, and what is safe to do next
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Ask the row's provider too; the named one, where the row names none
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true)]
    #[expect(
        clippy::option_option,
        reason = "clap's form of a flag with an optional value"
    )]
    provider: Option<Option<String>>,
    /// Look again every two seconds until the key has a final answer
    #[arg(long, conflicts_with_all = ["unmask", "provider"])]
    watch: bool,
    /// Show the stored body (secrets masked)
    #[arg(long)]
    show_response: bool,
    /// Show secrets too, in the body and around it; written to the event log
    #[arg(long, requires = "show_response")]
    unmask: bool,
    /// Why, for the event log
    #[arg(long, value_name = "TEXT", requires = "unmask")]
    reason: Option<String>,
}

/// How often `--watch` looks.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

pub(crate) async fn run(context: &Context, args: InspectArgs) -> Result<Exit> {
    let id = args.key.id()?;
    let (mut connection, store) = context.open().await?;
    if args.show_response && !store.reads_bodies() {
        return Err(
            CliError::new(Exit::Refused, "this database role may not read stored responses").hint(
                "leave out --show-response, or connect as a member of the operators' role (`idemctl migrate --roles` \
                 prints who may what)",
            ),
        );
    }
    loop {
        let Some(report) = inspect::run(&connection, &store, &id, args.show_response).await? else {
            let history = inspect::history(&connection, &store, &id).await?;
            let mask = &context.settings.config.output.mask;
            let last = history.into_iter().next();
            return Err(not_found(
                &id,
                last.map(|event| EventView::new(event, mask)).as_ref(),
            ));
        };
        if args.unmask {
            let actor = context.actor(args.reason.as_deref())?;
            inspect::record_unmask(&mut connection, &store, &id, &actor).await?;
        }
        let is_final = report.record.state.is_none_or(State::is_terminal);
        let exit = show(context, &args, report).await?;
        if !args.watch || is_final {
            return Ok(exit);
        }
        tokio::time::sleep(WATCH_PERIOD).await;
    }
}

/// One screen; with `--provider` the code tells whether the provider could say.
async fn show(context: &Context, args: &InspectArgs, report: inspect::Report) -> Result<Exit> {
    let answer = if let Some(named) = &args.provider {
        Some(
            context
                .ask_about(&report.record, named.as_deref())
                .await?
                .ok_or_else(|| {
                    CliError::usage("nobody can be asked: no provider is configured")
                        .hint("add [providers.NAME] to the configuration file (see the README)")
                })?,
        )
    } else {
        None
    };
    let providers = &context.settings.config.providers;
    let can_ask = report
        .record
        .provider
        .as_ref()
        .map_or(providers.len() == 1, |name| providers.contains_key(name));
    let answer = answer.as_ref().map(StatusView::new);
    let next = next(
        &report.record,
        can_ask,
        answer.as_ref().map(|answer| answer.verdict),
    );
    let mut view = InspectView::new(report, &context.settings.config, args.unmask, next);
    view.says(answer.clone());
    context.printer.document(&view)?;
    answer.map_or(Ok(Exit::Done), |answer| answer.result())
}

/// The next safe command, as it would be typed; `None` where nothing needs to be done.
///
/// `verdict`: what the provider said just now.
fn next(record: &Record, can_ask: bool, verdict: Option<&str>) -> Option<String> {
    let command = |verb: &str, flag: &str| {
        let (client, key) = (record.id.client_id(), record.id.key());
        // A key that looks like an option is one to a parser that has not been told otherwise.
        let dashes = client.starts_with('-') || key.starts_with('-');
        let (client, key) = (quoted(client), quoted(key));
        let words = if dashes {
            ["idemctl", verb, flag, "--", &client, &key]
        } else {
            ["idemctl", verb, &client, &key, flag, ""]
        };
        Some(
            words
                .into_iter()
                .filter(|word| !word.is_empty())
                .collect::<Vec<_>>()
                .join(" "),
        )
    };
    match (record.state, verdict) {
        // It asks the provider itself, shows what it would do, and asks before it does it.
        (Some(State::Expired), None) if can_ask => command("reconcile", ""),
        (Some(State::Expired), Some("charged" | "not_charged")) => command("reconcile", ""),
        // A release would be refused.
        (Some(State::Expired), None) if record.provider.is_some() => Some("idemctl provider list".to_owned()),
        (Some(State::Expired), None) => command("release", "--dry-run"),
        (Some(State::InProgress), _) => command("inspect", "--watch"),
        // Held, under way or not to be told: no command of ours makes that better now.
        (Some(State::Expired), Some(_)) | (Some(State::Done | State::Failed) | None, _) => None,
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

pub(super) fn not_found(id: &KeyId, last: Option<&EventView>) -> CliError {
    let error = CliError::new(Exit::NotFound, format!("no key {id}"));
    match last {
        Some(event) => error.hint(format!("its last event: {}", event.line())),
        None => error.hint(
            "never used, deleted by the purge, or in another schema or database (`idemctl config` shows which)",
        ),
    }
}
