//! `idemctl reconcile`: asks the provider about stuck keys and does the safe thing.

mod plan_file;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use idemctl::connect::{Connection, Settings};
use idemctl::key::KeyId;
use idemctl::ops::actor::Actor;
use idemctl::ops::reconcile::{self, Database, Item, Plan, PlannedRow, Proposal, Report, Request, Rows};
use idemctl::ops::stuck;
use idemctl::record::Record;
use idemctl::store::Store;
use idemctl::time::Stopwatch;

use crate::cli::Format;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result, say};
use crate::lifecycle::Lifecycle;
use crate::render::reconcile::{ReconcileView, proposal_line};
use crate::safety::{ChangeArgs, Confirmed, FRESH, confirm, require_answerable};
use crate::settings;

/// Ask the provider about stuck keys, and do what its answer makes safe
#[derive(Debug, clap::Args)]
#[command(override_usage = "idemctl reconcile <CLIENT> <KEY> [OPTIONS]
       idemctl reconcile --expired [--plan <FILE>] [OPTIONS]
       idemctl reconcile --apply <FILE> [OPTIONS]")]
pub(crate) struct ReconcileArgs {
    /// Who sent the key
    #[arg(value_name = "CLIENT", required_unless_present_any = ["expired", "apply"], conflicts_with_all = ["expired", "apply"], requires = "key", allow_hyphen_values = true)]
    client: Option<String>,
    /// The client's idempotency key
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: Option<String>,
    /// Every expired key that the filters leave, oldest lease end first
    #[arg(long, conflicts_with = "apply")]
    expired: bool,
    /// Only leases that ended longer ago than this, such as 30m, 24h or 7d
    #[arg(long, value_name = "DURATION", requires = "expired", conflicts_with_all = ["client", "apply"], value_parser = settings::duration)]
    older_than: Option<Duration>,
    /// Only keys of this client
    #[arg(long = "client", value_name = "CLIENT", requires = "expired", conflicts_with_all = ["client", "apply"])]
    only_client: Option<String>,
    /// Look at no more than this many keys
    #[arg(long, value_name = "N", requires = "expired", conflicts_with_all = ["client", "apply"], default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Write what would be done into this new file (`-`: stdout) instead of doing it
    #[arg(long, value_name = "FILE", requires = "expired", conflicts_with_all = ["client", "apply", "dry_run"])]
    plan: Option<PathBuf>,
    /// Do what this plan says, with every key that is still as it was (`-`: stdin)
    #[arg(long, value_name = "FILE")]
    apply: Option<PathBuf>,
    /// Ask this provider about keys that name none
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// No more than this many questions a second to each provider
    #[arg(long, value_name = "N", value_parser = rps)]
    rps: Option<f64>,
    /// Questions to each provider at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    concurrency: u8,
    /// How long to wait for a database that went away meanwhile
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = settings::duration)]
    patience: Duration,
    #[command(flatten)]
    change: ChangeArgs,
}

fn rps(text: &str) -> Result<f64, String> {
    let range = reconcile::RPS_RANGE;
    match text.parse::<f64>() {
        Ok(rps) if range.contains(&rps) => Ok(rps),
        _ => Err(format!("give a number from {} to {}", range.start(), range.end())),
    }
}

pub(crate) async fn run(context: &Context, args: ReconcileArgs) -> Result<Exit> {
    let actor = context.actor(
        args.change
            .reason
            .as_deref()
            .or(args.plan.as_ref().map(|_| "plan")),
    )?;
    if args.plan.is_none() {
        require_answerable(&args.change)?;
    }
    let id = match (&args.client, &args.key) {
        (Some(client), Some(key)) => Some(KeyId::new(client, key)?),
        _ => None,
    };
    if let Some(name) = &args.provider {
        context.provider(Some(name))?;
    }
    let plan = args.apply.as_deref().map(plan_file::read).transpose()?;
    if let Some(path) = &args.plan {
        plan_file::check_new(path)?;
    }
    let lifecycle = Lifecycle::install_short()?;
    let (mut conn, mut store) = lifecycle.unless_stopped(context, context.open()).await?;
    let settings = context.settings.connection()?;
    let mut session = Session {
        context,
        args: &args,
        actor: &actor,
        lifecycle: &lifecycle,
        settings: &settings,
        conn: &mut conn,
        store: &mut store,
        unreadable: Vec::new(),
    };
    match (plan, id) {
        (Some(plan), _) => session.apply(plan).await,
        (None, Some(id)) => {
            let row = session.read(&id).await?;
            session.propose_and_do(vec![row], false).await
        }
        (None, None) => {
            let rows = session.page().await?;
            session.propose_and_do(rows, true).await
        }
    }
}

/// What every step needs.
struct Session<'a> {
    context: &'a Context,
    args: &'a ReconcileArgs,
    actor: &'a Actor,
    lifecycle: &'a Lifecycle,
    settings: &'a Settings,
    conn: &'a mut Connection,
    store: &'a mut Store,
    /// What is wrong with rows that hold something unreadable.
    unreadable: Vec<String>,
}

/// What was done, and the error that ended it, if any.
#[derive(Default)]
struct Ran {
    report: Report,
    error: Option<CliError>,
}

impl Session<'_> {
    async fn read(&self, id: &KeyId) -> Result<Record> {
        let read = async { Ok(self.store.get(&*self.conn, id).await?) };
        let found = self.lifecycle.unless_stopped(self.context, read).await?;
        found.ok_or_else(|| {
            CliError::new(Exit::NotFound, format!("no key {id}"))
                .hint("never used, released, or purged; `idemctl history` knows what operators did to it")
        })
    }

    async fn page(&mut self) -> Result<Vec<Record>> {
        let older_than = self.args.older_than.unwrap_or_default();
        let client = self.args.only_client.as_deref();
        let read = async {
            Ok(stuck::page(&*self.conn, self.store, older_than, client, None, self.args.limit).await?)
        };
        let page = self.lifecycle.unless_stopped(self.context, read).await?;
        self.unreadable = page.unreadable;
        if page.next.is_some() {
            self.context.printer.note(&format!(
                "no more than {} keys at once (--limit); there may be more that are expired",
                self.args.limit
            ));
        }
        Ok(page.rows)
    }

    /// Asks about the rows; then writes the plan, or asks the operator and does it.
    async fn propose_and_do(&mut self, rows: Vec<Record>, bulk: bool) -> Result<Exit> {
        let asked_at = Stopwatch::start();
        let ran = self.run(Rows::Seen(rows), false).await;
        if ran.error.is_some() || ran.report.interrupted || self.args.change.dry_run {
            return self.show(ran, bulk);
        }
        let report = ran.report;
        if let Some(path) = &self.args.plan {
            let plan = Plan::of(self.conn, self.store, self.actor, proposals(&report)).await?;
            plan_file::write(path, &plan)?;
            return self.show_plan(path, &report);
        }
        let mut done = Ran::default();
        let mut ready = Vec::new();
        for item in report.items {
            match item.proposal {
                Some(proposal) if proposal.action.changes() => ready.push(proposal),
                _ => done.report.items.push(item),
            }
        }
        if !ready.is_empty() {
            let confirmed = self.confirm(&ready)?;
            let rows = if asked_at.elapsed() > FRESH {
                Rows::Planned(ready.iter().map(PlannedRow::new).collect())
            } else {
                Rows::Proposed(ready)
            };
            let mut ran = self.write(rows, confirmed).await;
            ran.report.items.append(&mut done.report.items);
            done = ran;
        }
        self.show(done, bulk)
    }

    async fn apply(&mut self, plan: Plan) -> Result<Exit> {
        plan.check_place(self.conn, self.store)?;
        let changing = plan.rows.iter().filter(|row| row.changes()).count();
        let rest = plan.rows.len() - changing;
        if rest > 0 {
            self.context.printer.note(&format!(
                "the plan leaves {rest} of its {} keys as they are; they are not looked at",
                plan.rows.len()
            ));
        }
        if self.args.change.dry_run {
            let ran = self.run(Rows::Planned(plan.rows), false).await;
            return self.show(ran, true);
        }
        if changing == 0 {
            return self.show(Ran::default(), true);
        }
        let made_by = plan.made_by.as_deref().unwrap_or("unknown");
        let question = format!(
            "apply the plan of {} by {made_by} to {changing} key(s)? Each is read and its provider asked again first.",
            plan.created_at
        );
        let confirmed = confirm(&self.args.change, &question)?;
        let ran = self.write(Rows::Planned(plan.rows), confirmed).await;
        self.show(ran, true)
    }

    /// Shows what is about to be done, then asks.
    fn confirm(&self, ready: &[Proposal]) -> Result<Confirmed> {
        for proposal in ready.iter().take(20) {
            let line = format!(
                "  {}  {}: {}",
                proposal.seen.id,
                proposal.action.as_str(),
                proposal_line(proposal)
            );
            say(&crate::render::printable(&line));
        }
        if ready.len() > 20 {
            say(&format!("  ... and {} more", ready.len() - 20));
        }
        let question = match ready {
            [one] => format!("{} {}?", one.action.as_str(), one.seen.id),
            _ => format!("reconcile {} keys?", ready.len()),
        };
        confirm(&self.args.change, &question)
    }

    async fn write(&mut self, rows: Rows, _confirmed: Confirmed) -> Ran {
        self.run(rows, true).await
    }

    /// Runs with a bar on a terminal.
    async fn run(&mut self, rows: Rows, write: bool) -> Ran {
        let bar = self.bar(&rows);
        let mut request = Request::new(rows, write, self.actor.clone());
        request.named = self.args.provider.as_deref();
        request.concurrency = usize::from(self.args.concurrency);
        request.rps = self.args.rps;
        let mut db = Database {
            conn: self.conn,
            store: self.store,
            reconnect: Some((self.settings, self.args.patience)),
        };
        let providers = self.context.providers();
        let mut progress = |_: &Item| bar.inc(1);
        let work = reconcile::run(&mut db, providers, request, &self.lifecycle.stop, &mut progress);
        let result = Box::pin(work).await;
        bar.finish_and_clear();
        let mut ran = match result {
            Ok(report) => Ran { report, error: None },
            Err(failure) => {
                let done = failure.report.to_string();
                let error = CliError::from(failure.cause).before(&done);
                Ran {
                    report: *failure.report,
                    error: Some(error),
                }
            }
        };
        // People look for a key; in which order the answers came is nobody's concern.
        ran.report.items.sort_by(|a, b| a.id.cmp(&b.id));
        ran
    }

    fn bar(&self, rows: &Rows) -> indicatif::ProgressBar {
        let visible = std::io::stderr().is_terminal()
            && self.context.printer.format() == Format::Table
            && !self.context.settings.quiet;
        if visible && rows.len() > 1 {
            indicatif::ProgressBar::new(rows.len() as u64)
        } else {
            indicatif::ProgressBar::hidden()
        }
    }

    /// Shows what became of each row, and then tells of an error that came in between.
    fn show(&self, ran: Ran, bulk: bool) -> Result<Exit> {
        let Ran { mut report, error } = ran;
        report.items.sort_by(|a, b| a.id.cmp(&b.id));
        let interrupted = report.interrupted || self.lifecycle.stop.is_soft() && report.items.is_empty();
        let view = ReconcileView::new(&report, &self.unreadable, self.args.change.dry_run);
        self.context.printer.document(&view)?;
        if let Some(error) = error {
            return Err(error);
        }
        if interrupted {
            return Err(CliError::new(
                Exit::Interrupted,
                "interrupted; what was done is listed, and so is what was not",
            ));
        }
        view.complaint(bulk).map_or(Ok(Exit::Done), Err)
    }

    /// A plan is a success as soon as it says something that could be done: what cannot be is in it, too.
    fn show_plan(&self, path: &std::path::Path, report: &Report) -> Result<Exit> {
        let summary = format!(
            "{}: {} keys, {} of them to be changed; `idemctl reconcile --apply` does it",
            path.display(),
            report.items.len(),
            proposals(report)
                .filter(|proposal| proposal.action.changes())
                .count()
        );
        let view = ReconcileView::new(report, &self.unreadable, false);
        if path.as_os_str() != "-" {
            self.context.printer.document(&view)?;
        }
        self.context.printer.note(&summary);
        match view.complaint(true) {
            Some(error) if error.exit() != Exit::Partial => Err(error),
            _ => Ok(Exit::Done),
        }
    }
}

fn proposals(report: &Report) -> impl Iterator<Item = &Proposal> {
    report.items.iter().filter_map(|item| item.proposal.as_ref())
}
