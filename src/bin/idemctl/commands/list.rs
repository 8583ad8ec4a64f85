//! `idemctl list`: keys by state, age, client.

use std::time::Duration;

use idemctl::ops::list::{self, Cursor, Filter, List, Order, Rest};
use idemctl::record::State;

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::key::KeyView;
use crate::settings;

/// List keys, newest first
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Show at most this many rows
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// Every row, page by page
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Go on where an earlier list stopped (it says how on stderr)
    #[arg(long, value_name = "TEXT")]
    cursor: Option<String>,
    /// In which order
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,
}

/// Which rows.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct FilterArgs {
    /// Only this client
    #[arg(long, value_name = "CLIENT")]
    client: Option<String>,
    /// Only keys that begin with exactly this text
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Only this state (repeatable)
    #[arg(long, value_enum, value_name = "STATE")]
    state: Vec<StateArg>,
    /// Only created longer ago than this, such as 30m, 24h or 7d
    #[arg(long, value_name = "DURATION", value_parser = settings::duration)]
    older_than: Option<Duration>,
    /// Only created no longer ago than this
    #[arg(long, value_name = "DURATION", value_parser = settings::duration)]
    newer_than: Option<Duration>,
    /// Only rows of this provider
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

/// A state on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum StateArg {
    /// The lease is alive
    InProgress,
    /// In progress, but the lease is over: stuck
    #[value(alias = "stuck")]
    Expired,
    /// Final answer of the service
    Done,
    /// Final error of the janitor or an operator
    Failed,
}

/// Order on the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Sort {
    /// Newest first
    #[default]
    Newest,
    /// Oldest first
    Oldest,
}

impl Sort {
    pub(super) fn order(self) -> Order {
        match self {
            Self::Newest => Order::Newest,
            Self::Oldest => Order::Oldest,
        }
    }
}

pub(crate) async fn run(context: &Context, args: ListArgs) -> Result<Exit> {
    let filter = args.filter.filter();
    let order = args.sort.order();
    let cursor = args.cursor.as_deref().map(Cursor::parse).transpose()?;
    let (mut left, look) = if args.all {
        (u64::MAX, None)
    } else {
        (u64::from(args.limit), Some(list::MAX_LOOK))
    };
    let (connection, store) = context.open().await?;
    let mut printed = context.printer.list();
    let mut shown = 0;
    let mut list = List::new(&filter, order, cursor, look);
    let rest = loop {
        // A list that fits one page tells the page's length to the database; a longer one comes in pages.
        let size = u32::try_from(left).unwrap_or(u32::MAX).min(list::MAX_PAGE);
        let page = list.page(&connection, &store, size).await?;
        left -= page.records.len() as u64;
        shown += page.records.len();
        let config = &context.settings.config;
        let views: Vec<KeyView> = page
            .records
            .into_iter()
            .map(|record| KeyView::new(record, config))
            .collect();
        printed.page(&views)?;
        if left == 0 || !matches!(page.rest, Rest::More(_)) {
            break page.rest;
        }
    };
    printed.end()?;
    if let Some(note) = note(&rest, shown, list.looked(), order) {
        context.printer.note(&note);
    }
    Ok(Exit::Done)
}

/// What the rows alone do not tell.
fn note(rest: &Rest, shown: usize, looked: u64, order: Order) -> Option<String> {
    match rest {
        Rest::End => (shown == 0).then(|| "no key fits".to_owned()),
        Rest::More(cursor) => Some(format!(
            "there are more; go on with --cursor {}, or see all with --all",
            cursor.to_text()
        )),
        Rest::Unseen(cursor) => Some(format!(
            "looked through {looked} keys, {} {}, and stopped there: there may be more; go on with --cursor {}, or look \
             through all with --all",
            match order {
                Order::Newest => "back to",
                Order::Oldest => "up to",
            },
            cursor.created_at(),
            cursor.to_text()
        )),
    }
}

impl FilterArgs {
    fn filter(self) -> Filter {
        let Self {
            client,
            key_prefix,
            state,
            older_than,
            newer_than,
            provider,
        } = self;
        let states = state
            .into_iter()
            .map(|state| match state {
                StateArg::InProgress => State::InProgress,
                StateArg::Expired => State::Expired,
                StateArg::Done => State::Done,
                StateArg::Failed => State::Failed,
            })
            .collect();
        Filter {
            client_id: client,
            key_prefix,
            states,
            older_than,
            newer_than,
            provider,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_stopped_early_says_how_far_it_came_and_how_to_go_on() {
        // 2000-01-01, and no row: behind all of that time.
        let text = "5b302c22222c22225d";
        let cursor = Cursor::parse(text).unwrap();
        let unseen = Rest::Unseen(cursor.clone());
        let said = note(&unseen, 0, 1_011_000, Order::Newest).unwrap();
        assert!(
            said.starts_with("looked through 1011000 keys, back to 2000-01-01T00:00:00Z, and stopped"),
            "{said}"
        );
        assert!(
            said.contains(&format!("--cursor {text},")) && said.contains("--all"),
            "{said}"
        );
        let said = note(&unseen, 3, 1_011_000, Order::Oldest).unwrap();
        assert!(said.contains("up to 2000-01-01"), "{said}");
        let more = note(&Rest::More(cursor), 50, 0, Order::Newest).unwrap();
        assert!(more.starts_with("there are more"), "{more}");
        assert_eq!(
            note(&Rest::End, 0, 0, Order::Newest).as_deref(),
            Some("no key fits")
        );
        assert_eq!(note(&Rest::End, 1, 0, Order::Newest), None);
    }
}
