//! `idemctl inspect`: one key on one screen.

mod watch;

use std::time::Duration;

use idemctl::key::KeyId;
use idemctl::ops::inspect;
use idemctl::record::{Record, State};
use idemctl::store::{Event, Store};

use super::key_arg::KeyArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::event::EventView;
use crate::render::inspect::InspectView;
use crate::render::provider::StatusView;

/// Show one key: what happened to it, what that means, and what is safe to do next
#[derive(Debug, clap::Args)]
#[command(visible_alias = "why")]
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
    /// Look again and again until the key has a final answer; without a terminal a line for each change
    #[arg(long, conflicts_with_all = ["unmask", "provider"])]
    watch: bool,
    /// How often to look
    #[arg(long, value_name = "DURATION", requires = "watch", default_value = "2s", value_parser = interval)]
    interval: Duration,
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

/// How many other clients with the same key are named.
const MOST_NAMESAKES: u32 = 5;

/// How often somebody may look: less often is no watching, more often is a load.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = crate::settings::duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_hours(1)).contains(&interval) {
        Ok(interval)
    } else {
        Err("give 100ms to 1h".to_owned())
    }
}

pub(crate) async fn run(context: &Context, args: InspectArgs) -> Result<Exit> {
    let id = args.key.id()?;
    if args.watch {
        return watch::run(context, &args, &id).await;
    }
    let (mut connection, store) = context.open().await?;
    check_bodies(&args, &store)?;
    let Some(report) = inspect::run(&connection, &store, &id, args.show_response).await? else {
        let history = inspect::history(&connection, &store, &id).await?;
        let error = gone(context, &id, history);
        let others = inspect::unfinished_namesakes(&connection, &store, &id, MOST_NAMESAKES).await?;
        return Err(match others.as_slice() {
            [] => error,
            others => {
                let others = others.join(", ");
                let known = error.hint_text().unwrap_or_default().to_owned();
                error.hint(format!(
                    "that key is in progress for {others}; of this client: {known}"
                ))
            }
        });
    };
    if args.unmask {
        let actor = context.actor(args.reason.as_deref())?;
        inspect::record_unmask(&mut connection, &store, &id, &actor).await?;
    }
    show(context, &args, report).await
}

fn check_bodies(args: &InspectArgs, store: &Store) -> Result<()> {
    if !args.show_response || store.reads_bodies() {
        return Ok(());
    }
    Err(
        CliError::new(Exit::Refused, "this database role may not read stored responses").hint(
            "leave out --show-response, or connect as a member of the operators' role (`idemctl migrate --roles` \
             prints who may what)",
        ),
    )
}

/// There is no row; `history`: what the log knows of the key, newest first.
pub(crate) fn gone(context: &Context, id: &KeyId, history: Vec<Event>) -> CliError {
    let mask = &context.settings.config.output.mask;
    let last = history.into_iter().next();
    not_found(id, last.map(|event| EventView::new(event, mask)).as_ref())
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
    let answer = answer.as_ref().map(StatusView::new);
    context
        .printer
        .document(&view(context, report, args.unmask, answer.clone()))?;
    answer.map_or(Ok(Exit::Done), |answer| answer.result())
}

/// What is shown of a key. `answer`: what the provider said, where it was asked.
pub(crate) fn view(
    context: &Context,
    report: inspect::Report,
    unmask: bool,
    answer: Option<StatusView>,
) -> InspectView {
    let providers = &context.settings.config.providers;
    let can_ask = report
        .record
        .provider
        .as_ref()
        .map_or(providers.len() == 1, |name| providers.contains_key(name));
    let verdict = answer.as_ref().map(|answer| answer.verdict);
    let next = next(&report.record, can_ask, verdict);
    let mut view = InspectView::new(report, &context.settings.config, unmask, next);
    view.says(answer);
    view
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
        // Where the provider could not tell, it asks again, and does nothing as long as that is the answer.
        (Some(State::Expired), Some("charged" | "not_charged" | "unknown" | "pending")) => {
            command("reconcile", "")
        }
        // A release would be refused.
        (Some(State::Expired), None) if record.provider.is_some() => Some("idemctl provider list".to_owned()),
        (Some(State::Expired), None) => command("release", "--dry-run"),
        (Some(State::InProgress), _) => command("inspect", "--watch"),
        // Held: a person captures it or gives it back first.
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
            "never used, of another client, deleted by the purge, or in another schema or database (`idemctl config` shows \
             which); that there is no row does not prove that nothing was charged (`idemctl provider status`)",
        ),
    }
}
