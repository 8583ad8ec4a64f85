//! `idemctl resolve`: ends one stuck key by hand, with evidence.

use std::io::Read;
use std::path::{Path, PathBuf};

use idemctl::connect::Connection;
use idemctl::key::KeyId;
use idemctl::mask::Masker;
use idemctl::ops::actor::Actor;
use idemctl::ops::resolve::{self, Approval, Decision, Intent, Next, Outcome, Proposal};
use idemctl::response::{DEFAULT_MAX_BODY_BYTES, Response};
use idemctl::store::Store;
use idemctl::time::Stopwatch;

use super::key_arg::KeyArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result, say};
use crate::lifecycle::Lifecycle;
use crate::render::printable;
use crate::render::resolve::{ResolveView, preview, void};
use crate::safety::{ChangeArgs, Confirmed, FRESH, confirm, require_answerable};
use crate::settings::file;

/// End one stuck key by hand, with evidence, where no provider's API can tell
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "idemctl resolve <CLIENT> <KEY> --done --status-code <N> --response <FILE> --evidence <TEXT> --reason <TEXT>
       idemctl resolve <CLIENT> <KEY> --failed [--status-code <N> --response <FILE>] --evidence <TEXT> --reason <TEXT>"
)]
pub(crate) struct ResolveArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// It came to an end: repeats get this response (a charge below 400, a definite refusal from 400 on)
    #[arg(long, required_unless_present = "failed", conflicts_with = "failed", requires_all = ["status_code", "response"])]
    done: bool,
    /// Nothing was charged: repeats get this response, or one that allows a new request under a new key
    #[arg(long)]
    failed: bool,
    /// HTTP status of the response
    #[arg(long, value_name = "N", requires = "response")]
    status_code: Option<u16>,
    /// File with the exact body of the response, up to 1 MiB (`-`: stdin)
    #[arg(long, value_name = "FILE", requires = "status_code")]
    response: Option<PathBuf>,
    /// Header of the response (repeatable) [default: `content-type: application/json` for a JSON body]
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "response")]
    headers: Vec<String>,
    /// What shows that it is so, for the event log: a statement's line, a ticket, who said it
    #[arg(long, value_name = "TEXT")]
    evidence: String,
    /// Ask this provider, where the key names none
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Do it although the provider says otherwise, or cannot tell and nothing is said to be charged
    #[arg(long)]
    against_provider: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

pub(crate) async fn run(context: &Context, args: &ResolveArgs) -> Result<Exit> {
    if args.change.reason.is_none() {
        return Err(CliError::usage("--reason is needed; nothing was changed")
            .hint("--reason says why it is done, --evidence what shows that it is true"));
    }
    let actor = context.actor(args.change.reason.as_deref())?;
    require_answerable(&args.change)?;
    let id = args.key.id()?;
    let approval = match context.settings.config.audit.approval {
        file::Approval::None => Approval::None,
        file::Approval::TwoPerson => Approval::TwoPerson,
        file::Approval::TwoDatabaseUsers => Approval::TwoDatabaseUsers,
    };
    let intent = args.intent(approval, actor)?;
    intent.check()?;
    let lifecycle = Lifecycle::install_short()?;
    let looking = async {
        let (conn, store) = context.open().await?;
        let proposal = propose(context, &conn, &store, &id, &intent).await?;
        Ok((conn, store, proposal))
    };
    let (mut conn, store, proposal) = lifecycle.unless_stopped(context, looking).await?;
    let asked_at = Stopwatch::start();
    if intent.response.header("content-type").is_none() && !intent.response.body().is_empty() {
        let note =
            "the body is no JSON, and no content type goes with it; --header 'content-type: ...' gives one";
        context.printer.note(note);
    }
    let confirmed = ask(args, &intent, &proposal, &context.settings.config.output.mask)?;
    if lifecycle.stop.is_soft() {
        return Err(CliError::new(
            Exit::Interrupted,
            "interrupted; nothing was changed",
        ));
    }
    let (proposal, spoiled) = if confirmed.is_some() && asked_at.elapsed() > FRESH {
        let again = propose(context, &conn, &store, &id, &intent);
        agreed(proposal, lifecycle.unless_stopped(context, again).await?)
    } else {
        (proposal, None)
    };
    let outcome = match spoiled {
        Some(outcome) => outcome,
        None => apply(&mut conn, &store, &intent, &proposal, confirmed).await?,
    };
    let view = ResolveView::new(&id, &intent, &proposal, &outcome, args.change.dry_run);
    context.printer.document(&view)?;
    view.complaint().map_or(Ok(Exit::Done), Err)
}

async fn propose(
    context: &Context,
    conn: &Connection,
    store: &Store,
    id: &KeyId,
    intent: &Intent,
) -> Result<Proposal> {
    let found = resolve::propose(conn, store, context.providers(), id, intent).await?;
    found.ok_or_else(|| {
        CliError::new(Exit::NotFound, format!("no key {id}; nothing was changed"))
            .hint("never used, released, or purged; `idemctl inspect` knows what operators did to it last")
    })
}

/// Somebody thought for long and the provider was asked again: what was agreed to is done only to the row that was
/// shown, and only if it still comes to the same, and the provider still says what was agreed to or overridden.
fn agreed(shown: Proposal, again: Proposal) -> (Proposal, Option<Outcome>) {
    match &again.next {
        Next::Refuse(refusal) => {
            let outcome = Outcome::Refused(refusal.clone());
            (again, Some(outcome))
        }
        _ if !again.says_the_same(&shown) => (
            again,
            Some(Outcome::Changed("the provider says something else meanwhile")),
        ),
        next if *next == shown.next => {
            let seen = shown.seen;
            (Proposal { seen, ..again }, None)
        }
        _ => (
            again,
            Some(Outcome::Changed("it came to something else meanwhile")),
        ),
    }
}

/// `confirmed` is absent for a dry run, and where there is nothing to confirm.
async fn apply(
    conn: &mut Connection,
    store: &Store,
    intent: &Intent,
    proposal: &Proposal,
    confirmed: Option<Confirmed>,
) -> Result<Outcome> {
    Ok(resolve::run(conn, store, intent, proposal, confirmed.is_none()).await?)
}

/// Shows exactly what is about to be stored, then asks. A dry run changes nothing, and a refusal neither.
fn ask(args: &ResolveArgs, intent: &Intent, proposal: &Proposal, mask: &Masker) -> Result<Option<Confirmed>> {
    let decision = intent.decision.as_str();
    let question = match &proposal.next {
        Next::Refuse(_) => return Ok(None),
        Next::End => format!("end it as {decision} with this answer?"),
        Next::Request(_) => {
            if let Some(void) = void(&proposal.next) {
                say(&printable(&format!("note: {void}")));
            }
            "ask for it? Another person has to run the same command within 24 hours".to_owned()
        }
        Next::Confirm(asking) => {
            let (reason, evidence) = (asking.reason.as_deref(), asking.evidence.as_deref());
            for (name, text) in [("reason", reason), ("evidence", evidence)] {
                let text = mask.text(text.unwrap_or("none"));
                say(&printable(&format!("{} gave as {name}: {text}", asking.db_user)));
            }
            format!("end it as {decision} with this answer, as {asking} asked?")
        }
    };
    for line in preview(intent, proposal, mask) {
        say(&line);
    }
    if args.change.dry_run {
        return Ok(None);
    }
    confirm(&args.change, &question).map(Some)
}

impl ResolveArgs {
    fn intent(&self, approval: Approval, actor: Actor) -> Result<Intent> {
        let response = match (&self.response, self.status_code) {
            (Some(path), Some(code)) => self.response(path, code)?,
            // The parser lets only `--failed` through without one.
            _ => resolve::not_made()?,
        };
        Ok(Intent {
            decision: if self.done {
                Decision::Done
            } else {
                Decision::Failed
            },
            response,
            evidence: self.evidence.clone(),
            provider: self.provider.clone(),
            against_provider: self.against_provider,
            approval,
            actor,
        })
    }

    fn response(&self, path: &Path, code: u16) -> Result<Response> {
        let mut response = Response::new(code, body(path)?)?;
        for header in &self.headers {
            let Some((name, value)) = header.split_once(':') else {
                return Err(CliError::usage(format!(
                    "the header {header:?} has no colon; nothing was changed"
                ))
                .hint("--header 'content-type: text/plain'"));
            };
            response = response.with_header(name, value.trim_matches([' ', '\t']))?;
        }
        let json = serde_json::from_slice::<serde::de::IgnoredAny>(response.body()).is_ok();
        if json && response.header("content-type").is_none() {
            response = response.with_header("content-type", "application/json")?;
        }
        Ok(response)
    }
}

/// The exact bytes of the file, or of stdin.
fn body(path: &Path) -> Result<Vec<u8>> {
    let failed = |problem: String| {
        CliError::usage(format!(
            "couldn't use the response {}: {problem}; nothing was changed",
            path.display()
        ))
    };
    let mut body = Vec::new();
    // One more than allowed, to see that there is more.
    let most = DEFAULT_MAX_BODY_BYTES as u64 + 1;
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut body)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut body))
    };
    read.map_err(|error| failed(error.to_string()))?;
    if body.len() > DEFAULT_MAX_BODY_BYTES {
        return Err(failed(format!(
            "it is larger than {DEFAULT_MAX_BODY_BYTES} bytes"
        )));
    }
    Ok(body)
}
