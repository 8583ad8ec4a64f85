//! `inspect --watch`: the same key again and again, until it has a final answer.

use idemctl::connect::Connection;
use idemctl::key::KeyId;
use idemctl::ops::inspect;
use idemctl::record::State;
use idemctl::store::Store;
use idemctl::time::Stopwatch;

use super::{InspectArgs, check_bodies, gone, view};
use crate::cli::Format;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::inspect::InspectView;
use crate::render::key::age;
use crate::render::live::Live;
use crate::render::styled::{Line, hanging};
use crate::render::{line, printable};

/// How many changes stay on the screen.
const MOST_CHANGES: usize = 5;

pub(super) async fn run(context: &Context, args: &InspectArgs, id: &KeyId) -> Result<Exit> {
    if matches!(context.printer.format(), Format::Csv | Format::Ids) {
        return Err(
            CliError::usage("--watch shows a stream of changes, which has no form in csv or ids")
                .hint("use -o table or jsonl"),
        );
    }
    // A database that is away from the beginning is an error like anywhere else.
    let (connection, store) = context.open().await?;
    check_bodies(args, &store)?;
    let mut way = Some((connection, store));
    let mut watch = Watch::new(context, args);
    loop {
        match look(context, &mut way, args, id).await {
            Ok(report) => {
                let is_final = report.record.state.is_none_or(State::is_terminal);
                watch.seen(view(context, report, false, None), is_final)?;
                if is_final {
                    return Ok(Exit::Done);
                }
            }
            Err(error) if error.exit() == Exit::Database => {
                way = None;
                watch.away(&error)?;
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(args.interval).await;
        if crate::render::reader_is_gone() {
            return Ok(Exit::Done);
        }
    }
}

/// One look, over a new connection where the last was lost.
async fn look(
    context: &Context,
    way: &mut Option<(Connection, Store)>,
    args: &InspectArgs,
    id: &KeyId,
) -> Result<inspect::Report> {
    let (connection, store) = match way {
        Some(way) => way,
        None => way.insert(context.open().await?),
    };
    if let Some(report) = inspect::run(&*connection, store, id, args.show_response).await? {
        return Ok(report);
    }
    let history = inspect::history(&*connection, store, id).await?;
    Err(gone(context, id, history))
}

/// What was seen so far, and where it is shown.
struct Watch<'a> {
    context: &'a Context,
    args: &'a InspectArgs,
    /// On a terminal.
    live: Option<Live>,
    last: Option<InspectView>,
    changes: Vec<String>,
    /// Since when the database does not answer, and why.
    away: Option<(Stopwatch, String)>,
}

impl<'a> Watch<'a> {
    fn new(context: &'a Context, args: &'a InspectArgs) -> Self {
        let term = context.settings.environment().get("TERM");
        Self {
            context,
            args,
            live: Live::start(context.printer.format(), term),
            last: None,
            changes: Vec::new(),
            away: None,
        }
    }

    fn seen(&mut self, mut view: InspectView, is_final: bool) -> Result<()> {
        let changes = self
            .last
            .as_ref()
            .map(|last| view.changes_since(last))
            .unwrap_or_default();
        let printer = self.context.printer;
        let back = self.away.take().is_some();
        if self.live.is_some() {
            if !changes.is_empty() {
                let time = view.time();
                self.changes.push(format!("{time} {}", changes.join("; ")));
                let old = self.changes.len().saturating_sub(MOST_CHANGES);
                self.changes.drain(..old);
            }
            self.last = Some(view);
            return self.draw(is_final);
        }
        if back {
            printer.note("the database answers again");
        }
        if self.last.is_some() && changes.is_empty() {
            return Ok(());
        }
        if printer.format() == Format::Table {
            line(&view.line(&changes))?;
        } else {
            view.note_changes(changes);
            printer.document_line(&view)?;
        }
        self.last = Some(view);
        Ok(())
    }

    fn away(&mut self, error: &CliError) -> Result<()> {
        let why = error.message().to_owned();
        if let Some((_, before)) = &mut self.away {
            *before = why;
            return self.draw(false);
        }
        if self.live.is_none() {
            let note = format!("the database does not answer, trying again: {why}");
            self.context.printer.note(&note);
        }
        self.away = Some((Stopwatch::start(), why));
        self.draw(false)
    }

    fn draw(&mut self, is_final: bool) -> Result<()> {
        let (Some(live), Some(view)) = (&mut self.live, &self.last) else {
            return Ok(());
        };
        let room = Live::room();
        let mut lines = view.lines(room);
        let plain = anstyle::Style::new();
        let mut add = |name: &str, text: &str| {
            let head = Line::of(plain, format!("  {name:<13} "));
            lines.extend(hanging(head, plain, &printable(text), room));
        };
        for change in &self.changes {
            add("changed", change);
        }
        match &self.away {
            Some((since, why)) => {
                let since = age(since.elapsed().as_secs_f64());
                add(
                    "database",
                    &format!(
                        "has not answered for {since}, trying again; this is of {}: {why}",
                        view.time()
                    ),
                );
            }
            None if !is_final => {
                let interval = crate::settings::show_duration(self.args.interval);
                add(
                    "watching",
                    &format!("every {interval}, as of {}; Ctrl-C ends", view.time()),
                );
            }
            None => {}
        }
        live.draw(&lines, is_final)
    }
}
