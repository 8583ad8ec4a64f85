//! Keys by state, age, client: page by page, never all at once.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::record::{Record, State};
use crate::store::list::{By, Part};
use crate::store::{Executor, Store};
use crate::time::Timestamp;

/// Most rows of one page.
pub const MAX_PAGE: u32 = 1_000;

/// Rows that a list looks at before it says how far it came, where no index finds those that are wanted.
pub const MAX_LOOK: u64 = 1_000_000;

/// Rows that are looked at by one statement, at first and at most: short enough for any time limit, and no more than
/// needed where most rows fit.
const WINDOW: (u32, u32) = (1_000, 100_000);

/// A client of no more rows is looked through by its key, where each row lies on a page of its own; of more, by age.
const SMALL_CLIENT: u32 = 2_000;

/// In which order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// Newest first.
    #[default]
    Newest,
    /// Oldest first.
    Oldest,
}

/// Which rows: every condition that is given must hold.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Of this client.
    pub client_id: Option<String>,
    /// Whose key begins with exactly this text.
    pub key_prefix: Option<String>,
    /// In one of these states; empty means any, unknown status words included.
    pub states: Vec<State>,
    /// Created longer ago than this.
    pub older_than: Option<Duration>,
    /// Created no longer ago than this.
    pub newer_than: Option<Duration>,
    /// Of this provider.
    pub provider: Option<String>,
}

/// A place in the list, to go on after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// `created_at` of the last row.
    pub(crate) created_at: Timestamp,
    /// Client of the last row.
    pub(crate) client_id: String,
    /// Key of the last row.
    pub(crate) key: String,
}

impl Cursor {
    /// The place of a row.
    pub fn after(record: &Record) -> Self {
        Self {
            created_at: record.created_at,
            client_id: record.id.client_id().to_owned(),
            key: record.id.key().to_owned(),
        }
    }

    /// Behind all rows of a creation time. No name is empty, so that every name comes after the empty one.
    fn behind(created_at: Timestamp, order: Order) -> Self {
        Self {
            created_at: match order {
                Order::Newest => created_at,
                Order::Oldest => created_at.successor(),
            },
            client_id: String::new(),
            key: String::new(),
        }
    }

    /// Whether it stands between two creation times and not behind a row.
    fn is_between(&self) -> bool {
        self.client_id.is_empty()
    }

    /// Up to which creation time the list came.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// As text for a command line: hex, so that it needs no quoting.
    pub fn to_text(&self) -> String {
        let json = serde_json::json!([self.created_at.to_micros(), self.client_id, self.key]).to_string();
        json.bytes()
            .fold(String::with_capacity(json.len() * 2), |mut text, byte| {
                use std::fmt::Write;
                // Writing into a String cannot fail.
                let _infallible = write!(text, "{byte:02x}");
                text
            })
    }

    /// Reads what [`Cursor::to_text`] wrote.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::Invalid {
            field: "cursor",
            reason: "is not one that `list` printed; leave it out to start at the beginning".to_owned(),
        };
        let digits = text.as_bytes();
        if !digits.len().is_multiple_of(2) || !text.is_ascii() {
            return Err(wrong());
        }
        let bytes: Vec<u8> = (0..digits.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16))
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| wrong())?;
        let (micros, client_id, key): (i64, String, String) =
            serde_json::from_slice(&bytes).map_err(|_| wrong())?;
        if client_id.contains('\0') || key.contains('\0') {
            return Err(wrong());
        }
        Ok(Self {
            created_at: Timestamp::from_micros(micros),
            client_id,
            key,
        })
    }
}

/// One page.
#[derive(Debug)]
pub struct Page {
    /// Its rows.
    pub records: Vec<Record>,
    /// What comes behind them.
    pub rest: Rest,
}

/// What comes behind a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rest {
    /// Nothing: the list is at its end.
    End,
    /// At least one more row.
    More(Cursor),
    /// Rows that were not looked at, since so many others were: whether any of them fits is not known.
    Unseen(Cursor),
}

impl Rest {
    /// Where the next page begins; `None` at the end of the list.
    pub fn cursor(&self) -> Option<&Cursor> {
        match self {
            Self::End => None,
            Self::More(cursor) | Self::Unseen(cursor) => Some(cursor),
        }
    }
}

/// A list that is read page by page.
///
/// What an index finds costs what is found: ages, the client (of a few thousand rows), leases of rows in progress. For
/// anything else rows are looked through by age, a window of creation times after the other, so that no statement
/// grows with the table; rows of one creation time are never divided.
#[derive(Debug)]
pub struct List<'a> {
    filter: &'a Filter,
    order: Order,
    place: Option<Cursor>,
    /// By which index, and whether in windows.
    way: (By, bool),
    /// Whether it was asked how many rows the client has.
    counted: bool,
    window: u32,
    most: Option<u64>,
    looked: u64,
}

impl<'a> List<'a> {
    /// Begins behind a place, or with the first row. `most`: look through about so many rows that do not fit
    /// ([`MAX_LOOK`], say), and no more; `None` goes on to the end of the table.
    pub fn new(filter: &'a Filter, order: Order, after: Option<Cursor>, most: Option<u64>) -> Self {
        Self {
            filter,
            order,
            place: after,
            way: way(filter),
            counted: false,
            window: WINDOW.0,
            most,
            looked: 0,
        }
    }

    /// Rows looked through in windows so far, whether they fit or not.
    pub fn looked(&self) -> u64 {
        self.looked
    }

    /// The next page: at most `limit` rows (1 to [`MAX_PAGE`]). Before the end of the list, it has fewer only where
    /// it is [`Rest::Unseen`] that comes.
    pub async fn page(&mut self, executor: &impl Executor, store: &Store, limit: u32) -> Result<Page> {
        let limit = limit.clamp(1, MAX_PAGE);
        let mut records = Vec::new();
        loop {
            let (by, windows) = self.way;
            let until = if windows {
                self.window_end(executor, store).await?
            } else {
                None
            };
            let part = Part {
                filter: self.filter,
                order: self.order,
                by,
                after: self.place.as_ref(),
                until,
                // One more tells whether there are more.
                limit: limit + 1 - u32::try_from(records.len()).unwrap_or(limit),
            };
            records.extend(store.list(executor, &part).await?);
            let more = records.len() > limit as usize;
            records.truncate(limit as usize);
            let rest = if more {
                self.place = records.last().map(Cursor::after);
                self.place.clone().map(Rest::More)
            } else if let Some(until) = until {
                let cursor = Cursor::behind(until, self.order);
                self.place = Some(cursor.clone());
                self.looked += u64::from(self.window);
                self.window = self.window.saturating_mul(10).min(WINDOW.1);
                if self.has_few(executor, store).await? {
                    self.way = (By::Client, false);
                    continue;
                }
                let enough = self.most.is_some_and(|most| self.looked >= most);
                enough.then_some(Rest::Unseen(cursor))
            } else {
                Some(Rest::End)
            };
            if let Some(rest) = rest {
                return Ok(Page { records, rest });
            }
        }
    }

    /// Whether the client has so few rows that they are found at once. Asked behind the first window, which ends the
    /// page of a client that sends much.
    async fn has_few(&mut self, executor: &impl Executor, store: &Store) -> Result<bool> {
        let Some(client) = self.filter.client_id.as_ref().filter(|_| !self.counted) else {
            return Ok(false);
        };
        self.counted = true;
        let rows = store
            .list_client_count(executor, client, SMALL_CLIENT + 1)
            .await?;
        Ok(rows <= u64::from(SMALL_CLIENT))
    }

    /// The last creation time of the next window; `None` at the end of the table.
    async fn window_end(&self, executor: &impl Executor, store: &Store) -> Result<Option<Timestamp>> {
        let from = self.place.as_ref().map(|cursor| match self.order {
            Order::Newest if cursor.is_between() => cursor.created_at.predecessor(),
            _ => cursor.created_at,
        });
        let until = store
            .list_window(executor, self.filter, self.order, from, self.window)
            .await?;
        // There is no time behind the infinities to go on from.
        Ok(until.filter(|until| until.is_finite()))
    }
}

/// By which index a list begins, and whether in windows.
fn way(filter: &Filter) -> (By, bool) {
    let Filter {
        client_id,
        key_prefix,
        states,
        provider,
        older_than: _,
        newer_than: _,
    } = filter;
    let only = |which: &[State]| !states.is_empty() && states.iter().all(|state| which.contains(state));
    if only(&[State::Expired]) {
        return (By::Expired, false);
    }
    if only(&[State::Expired, State::InProgress]) {
        return (By::Unfinished, false);
    }
    // By age alone, every row fits.
    let any = client_id.is_none() && key_prefix.is_none() && provider.is_none() && states.is_empty();
    (By::Age, !any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_the_command_line() {
        let cursor = Cursor {
            created_at: Timestamp::from_micros(i64::MAX),
            client_id: "a\tb".to_owned(),
            key: "\u{e9} '\"".to_owned(),
        };
        assert_eq!(Cursor::parse(&cursor.to_text()).unwrap(), cursor);
        for bad in ["", "zz", "7b7d", "é", "5b"] {
            assert!(Cursor::parse(bad).is_err(), "{bad}");
        }
    }
}
