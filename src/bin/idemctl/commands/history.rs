//! `idemctl history`: the event log.

use std::collections::HashSet;

use idemctl::connect::Connection;
use idemctl::key::KeyId;
use idemctl::ops::history::{self, Filter, When};
use idemctl::ops::list::Order;
use idemctl::store::Store;

use super::inspect::not_found;
use crate::cli::Format;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::Item;
use crate::render::event::EventView;

/// Show the event log: what operators and the janitor did, newest first
#[derive(Debug, clap::Args)]
pub(crate) struct HistoryArgs {
    /// Who sent the key; without one, the events of all keys, and those that concern many rows
    #[arg(value_name = "CLIENT", allow_hyphen_values = true)]
    client_id: Option<String>,
    /// The client's idempotency key: all its events, also when the row is gone
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: Option<String>,
    /// Only this verb, such as release, fail, unmask or purge (repeatable)
    #[arg(long, value_name = "VERB")]
    action: Vec<String>,
    /// Only by this user, of the database or of the operating system
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only keys of this client
    #[arg(long = "client", value_name = "CLIENT", conflicts_with = "client_id")]
    only_client: Option<String>,
    /// Only from then on: 2h (ago), 2026-11-29T10:00:00Z, 2026-11-29
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<When>)]
    since: Option<When>,
    /// Only before then
    #[arg(long, value_name = "WHEN", value_parser = str::parse::<When>)]
    until: Option<When>,
    /// Show at most this many events [default: 50; of one key all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: Option<u32>,
    /// Every event, page by page
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where an earlier one stopped (it says how on stderr)
    #[arg(long, value_name = "TEXT")]
    cursor: Option<String>,
    /// In which order
    #[arg(long, value_enum, default_value_t)]
    sort: super::list::Sort,
    /// Oldest first
    #[arg(long, conflicts_with = "sort")]
    reverse: bool,
}

/// How many events without `--limit`, unless they are those of one key.
const LIMIT: u32 = 50;

pub(crate) async fn run(context: &Context, args: HistoryArgs) -> Result<Exit> {
    let id = args.id()?;
    let mut cursor = args.cursor.as_deref().map(history::parse_cursor).transpose()?;
    let order = if args.reverse {
        Order::Oldest
    } else {
        args.sort.order()
    };
    let mut left = match args.limit {
        Some(limit) => u64::from(limit),
        None if args.all || id.is_some() => u64::MAX,
        None => u64::from(LIMIT),
    };
    let filter = args.filter(id.as_ref());
    let (connection, store) = context.open().await?;
    let mut list = context.printer.list();
    let mut known = HashSet::new();
    let mut shown = 0;
    while left > 0 {
        let size = u32::try_from(left).unwrap_or(u32::MAX).min(history::MAX_PAGE);
        let page = history::page(&connection, &store, &filter, order, cursor, size).await?;
        left -= page.events.len() as u64;
        shown += page.events.len();
        if let (0, Some(id)) = (shown, &id) {
            explain_nothing(context, &connection, &store, id).await?;
        }
        let mask = &context.settings.config.output.mask;
        let views = page.events.into_iter().map(|event| EventView::new(event, mask));
        let mut views: Vec<EventView> = views.collect();
        if context.printer.format() == Format::Ids {
            // Each key once, and nothing of what concerned many rows.
            views.retain(|view| {
                view.id()
                    .is_some_and(|(client, key)| known.insert(format!("{client}\t{key}")))
            });
        }
        list.page(&views)?;
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    list.end()?;
    if shown == 0 && id.is_none() {
        context.printer.note("no event fits");
    }
    if let Some(cursor) = cursor {
        context.printer.note(&format!(
            "there are more; go on with --cursor {cursor}, or see all with --all"
        ));
    }
    Ok(Exit::Done)
}

/// Nothing fits: because of the filters, because nobody but services touched the key, or because there is no such
/// key, which is an error.
async fn explain_nothing(
    context: &Context,
    connection: &Connection,
    store: &Store,
    id: &KeyId,
) -> Result<()> {
    let any = history::page(connection, store, &Filter::of(id), Order::Newest, None, 1).await?;
    if !any.events.is_empty() {
        context.printer.note("no event of this key fits the filters");
    } else if history::has_row(connection, store, id).await? {
        context
            .printer
            .note("no operator or janitor has touched this key");
    } else {
        return Err(not_found(id, None));
    }
    Ok(())
}

impl HistoryArgs {
    fn id(&self) -> Result<Option<KeyId>> {
        match (&self.client_id, &self.key) {
            (Some(client), Some(key)) => Ok(Some(KeyId::new(client, key)?)),
            (Some(_), None) => Err(CliError::usage("a key is missing")
                .hint("idemctl history CLIENT KEY, or --client CLIENT for all keys of a client")),
            (None, _) => Ok(None),
        }
    }

    fn filter(self, id: Option<&KeyId>) -> Filter {
        let key = id.map(Filter::of).unwrap_or_default();
        Filter {
            client_id: key.client_id.or(self.only_client),
            key: key.key,
            actions: self.action,
            user: self.user,
            since: self.since,
            until: self.until,
        }
    }
}
