//! `idemctl release`: gives up expired leases.

mod answer;
mod input;

use std::time::Duration;

use futures_util::StreamExt;
use idemctl::connect::Connection;
use idemctl::error::Error;
use idemctl::key::KeyId;
use idemctl::mask;
use idemctl::ops::actor::Actor;
use idemctl::ops::end::End;
use idemctl::ops::release::{self, Request};
use idemctl::ops::stuck;
use idemctl::record::Record;
use idemctl::stop::Stop;
use idemctl::store::Store;

use crate::context::Context;
use crate::exit::{CliError, Exit, Result, say};
use crate::lifecycle::Lifecycle;
use crate::render::key::age;
use crate::render::release::{ReleaseView, ReleasedView};
use crate::safety::{ChangeArgs, Confirmed, confirm, require_answerable};
use crate::settings::{self, file};
use answer::Answer;

/// Give up expired leases: the row goes, and the next request starts afresh
#[derive(Debug, clap::Args)]
pub(crate) struct ReleaseArgs {
    /// Who sent the key; `-` reads lines of client TAB key from stdin
    #[arg(
        value_name = "CLIENT",
        required_unless_present = "expired",
        conflicts_with = "expired",
        allow_hyphen_values = true
    )]
    client_or_dash: Option<String>,
    /// The client's idempotency key
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: Option<String>,
    /// Every expired key that the filters leave, oldest lease end first
    #[arg(long)]
    expired: bool,
    /// Only leases that ended longer ago than this, such as 30m, 24h or 7d
    #[arg(long, value_name = "DURATION", requires = "expired", conflicts_with = "client_or_dash", value_parser = settings::duration)]
    older_than: Option<Duration>,
    /// Only keys of this client
    #[arg(
        long = "client",
        value_name = "CLIENT",
        requires = "expired",
        conflicts_with = "client_or_dash"
    )]
    only_client: Option<String>,
    /// Release at most this many keys
    #[arg(long, value_name = "N", requires = "expired", conflicts_with = "client_or_dash", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Keep the row as a final stored error instead
    #[arg(long = "as", value_name = "WHAT", value_enum)]
    keep_as: Option<KeepAs>,
    /// Take a live lease away too: its holder may be at work this moment
    #[arg(long, conflicts_with = "expired")]
    steal: bool,
    /// Ask this provider about keys that name none
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Release although the provider says that money moved, or cannot say; needs --reason
    #[arg(long, requires = "reason")]
    accept_double_charge: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

/// What the row may be kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum KeepAs {
    /// A final error that says that the outcome is unknown.
    Failed,
}

pub(crate) async fn run(context: &Context, args: ReleaseArgs) -> Result<Exit> {
    let actor = context.actor(args.change.reason.as_deref())?;
    require_answerable(&args.change)?;
    args.check_override(context.settings.config.audit.approval)?;
    let ids = args.ids()?;
    let bulk = ids.is_none() || args.client_or_dash.as_deref() == Some("-");
    let lifecycle = Lifecycle::install_short()?;
    let mut view = ReleaseView {
        released: Vec::new(),
        unreadable: Vec::new(),
        dry_run: args.change.dry_run,
    };
    let reading = async {
        let (connection, store) = context.open().await?;
        let ready = candidates(context, &args, ids, &connection, &store, &mut view).await?;
        let asked = ask_providers(context, ready, &args).await;
        Ok((connection, store, asked))
    };
    let (mut connection, store, asked) = lifecycle.unless_stopped(context, reading).await?;
    let mut cleared = Vec::new();
    for (record, answer) in asked {
        match answer.refusal(&args) {
            None => cleared.push((record, answer)),
            Some(reason) => view.released.push(ReleasedView::refused(&record.id, reason)),
        }
    }
    let mut interrupted = false;
    if !cleared.is_empty() {
        let confirmed = ask(&args, &cleared)?;
        let change = Change {
            context,
            args: &args,
            actor: &actor,
            stop: &lifecycle.stop,
        };
        interrupted = change
            .apply(&mut connection, &store, cleared, confirmed, &mut view)
            .await;
    }
    context.printer.document(&view)?;
    if interrupted {
        return Err(CliError::new(
            Exit::Interrupted,
            "interrupted; what was released is listed, the rest was not touched",
        ));
    }
    view.complaint(bulk).map_or(Ok(Exit::Done), Err)
}

impl ReleaseArgs {
    /// The keys that were named; `None` for all that are expired.
    fn ids(&self) -> Result<Option<Vec<KeyId>>> {
        match (&self.client_or_dash, &self.key) {
            (Some(dash), None) if dash == "-" => Ok(Some(input::ids_from(std::io::stdin().lock())?)),
            (Some(client), Some(key)) => Ok(Some(vec![KeyId::new(client, key)?])),
            (Some(_), None) => Err(CliError::usage("a key is missing").hint("idemctl release CLIENT KEY")),
            (None, _) => Ok(None),
        }
    }

    /// Where ending a key by hand takes two, one alone may not do what is more dangerous.
    fn check_override(&self, approval: file::Approval) -> Result<()> {
        if !self.accept_double_charge || approval == file::Approval::None {
            return Ok(());
        }
        Err(CliError::new(
            Exit::Refused,
            format!(
                "--accept-double-charge is one person's word, and audit.approval = {:?} asks for two; nothing was changed",
                approval.as_str()
            ),
        )
        .hint("`idemctl resolve CLIENT KEY --done` or `--failed`, by two persons, ends the key"))
    }
}

/// The rows that may be released as far as the table tells; the others are put into the report.
async fn candidates(
    context: &Context,
    args: &ReleaseArgs,
    ids: Option<Vec<KeyId>>,
    connection: &Connection,
    store: &Store,
    view: &mut ReleaseView,
) -> Result<Vec<Record>> {
    let mut found = Vec::new();
    if let Some(ids) = ids {
        for id in ids {
            match store.get(connection, &id).await {
                Ok(Some(record)) => found.push(record),
                Ok(None) => view.released.push(ReleasedView::not_found(&id)),
                Err(error @ Error::Inconsistent { .. }) => {
                    view.released.push(ReleasedView::error(&id, &error.into()));
                }
                Err(error) => return Err(error.into()),
            }
        }
    } else {
        let older_than = args.older_than.unwrap_or_default();
        let page = stuck::page(
            connection,
            store,
            older_than,
            args.only_client.as_deref(),
            None,
            args.limit,
        )
        .await?;
        view.unreadable = page
            .unreadable
            .iter()
            .map(|problem| mask::text(problem).into_owned())
            .collect();
        found = page.rows;
        if page.next.is_some() {
            context.printer.note(&format!(
                "no more than {} keys at once (--limit); there may be more that are expired",
                args.limit
            ));
        }
    }
    let mut ready = Vec::new();
    for record in found {
        match release::refusal(record.state, args.steal) {
            None => ready.push(record),
            Some(outcome) => view.released.push(ReleasedView::of(&record.id, outcome)),
        }
    }
    Ok(ready)
}

/// A row, and what is known of its charge.
type Asked = (Record, Answer);

/// How many questions are under way at once.
const QUESTIONS: usize = 4;

/// Asks about every row before the first is changed.
async fn ask_providers(context: &Context, rows: Vec<Record>, args: &ReleaseArgs) -> Vec<Asked> {
    futures_util::stream::iter(rows)
        .map(|record| async move {
            let answer = Answer::about(context, &record, args).await;
            (record, answer)
        })
        .buffered(QUESTIONS)
        .collect()
        .await
}

/// Shows what is about to be done, then asks. A dry run changes nothing, so it need not.
fn ask(args: &ReleaseArgs, ready: &[Asked]) -> Result<Option<Confirmed>> {
    if args.change.dry_run && !args.steal && !args.accept_double_charge {
        return Ok(None);
    }
    let what = match args.keep_as {
        None => "release (the next request starts afresh and may charge again)",
        Some(KeepAs::Failed) => "keep as failed (every repeat gets a final error)",
    };
    for (record, answer) in ready.iter().take(20) {
        let owner = mask::text(record.owner.as_deref().unwrap_or("unknown owner"));
        let says = answer.says();
        let rest = record.lease_remaining_seconds.filter(|rest| *rest > 0.0);
        let alive = rest.map_or_else(String::new, |rest| {
            format!(
                "; THE LEASE IS ALIVE for another {}, and its holder may be charging",
                age(rest)
            )
        });
        let line = format!(
            "{}  attempt {}, {owner}; {says}{alive}",
            record.id, record.attempt
        );
        say(&format!("  {}", crate::render::printable(&line)));
    }
    if ready.len() > 20 {
        say(&format!("  ... and {} more", ready.len() - 20));
    }
    if args.change.dry_run {
        say(&format!("would {what}"));
        return Ok(None);
    }
    confirm(&args.change, &format!("{what}: {} key(s)?", ready.len())).map(Some)
}

/// What is done to every key.
struct Change<'a> {
    context: &'a Context,
    args: &'a ReleaseArgs,
    actor: &'a Actor,
    stop: &'a Stop,
}

impl Change<'_> {
    /// One key after the other; none stops the rest, but a signal does: `true`.
    async fn apply(
        &self,
        connection: &mut Connection,
        store: &Store,
        ready: Vec<Asked>,
        _confirmed: Option<Confirmed>,
        view: &mut ReleaseView,
    ) -> bool {
        let mut broken = None;
        let mut ready = ready.into_iter().peekable();
        while ready.peek().is_some() {
            // No more at once than are asked about at once, so that no answer grows old again while others are awaited.
            let mut some: Vec<_> = ready.by_ref().take(QUESTIONS).map(Ok).collect();
            if broken.is_none() {
                some = tokio::select! {
                    biased;
                    () = self.stop.soft() => return true,
                    some = self.fresh(some) => some,
                };
            }
            for row in some {
                if self.stop.is_soft() {
                    return true;
                }
                let item = match row {
                    Ok(row) => self.release(connection, store, &row, &mut broken).await,
                    Err(item) => item,
                };
                view.released.push(item);
            }
        }
        false
    }

    /// Asks again about those of which what is known is old: a late holder may have charged meanwhile.
    async fn fresh(&self, rows: Vec<Result<Asked, ReleasedView>>) -> Vec<Result<Asked, ReleasedView>> {
        futures_util::stream::iter(rows)
            .map(|row| async move {
                let (record, before) = row?;
                if self.args.change.dry_run || !before.is_stale() {
                    return Ok((record, before));
                }
                let answer = Answer::about(self.context, &record, self.args).await;
                if let Some(reason) = answer.refusal(self.args) {
                    return Err(ReleasedView::refused(&record.id, reason));
                }
                match answer.news_since(&before) {
                    Some(news) => Err(ReleasedView::changed(&record.id, news)),
                    None => Ok((record, answer)),
                }
            })
            .buffered(QUESTIONS)
            .collect()
            .await
    }

    /// `broken`: why nothing can be tried any more.
    async fn release(
        &self,
        connection: &mut Connection,
        store: &Store,
        (record, answer): &Asked,
        broken: &mut Option<CliError>,
    ) -> ReleasedView {
        if let Some(error) = broken {
            return ReleasedView::error(&record.id, error);
        }
        let end = match self.args.keep_as {
            None => End::Release,
            Some(KeepAs::Failed) => End::Fail(None),
        };
        let request = Request {
            seen: record,
            end: &end,
            steal: self.args.steal,
            evidence: answer.evidence.clone(),
            dry_run: self.args.change.dry_run,
            actor: self.actor.clone(),
        };
        let item = match release::run(connection, store, &request).await {
            Ok(outcome) => ReleasedView::of(&record.id, outcome),
            Err(error) => {
                let dead = error.needs_reconnect();
                let error = CliError::from(error);
                let item = ReleasedView::error(&record.id, &error);
                if dead {
                    *broken = Some(error.context("not tried, because the connection was lost before"));
                }
                item
            }
        };
        if connection.is_closed() && broken.is_none() {
            *broken = Some(CliError::new(
                Exit::Database,
                "not tried, because the connection was lost before",
            ));
        }
        item
    }
}
