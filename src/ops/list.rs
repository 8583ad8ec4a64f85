//! Keys by state, age, client: page by page, never all at once.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::record::{Record, State};
use crate::store::{Executor, Store};
use crate::time::Timestamp;

/// Most rows of one page.
pub const MAX_PAGE: u32 = 1_000;

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
    /// Where the next page begins; `None` at the end of the list.
    pub next: Option<Cursor>,
}

/// One page of the list: at most `limit` rows (1 to [`MAX_PAGE`]).
pub async fn page(
    executor: &impl Executor,
    store: &Store,
    filter: &Filter,
    order: Order,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Page> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut records = store.list(executor, filter, order, after, limit + 1).await?;
    let more = records.len() > limit as usize;
    records.truncate(limit as usize);
    let next = more.then(|| records.last().map(Cursor::after)).flatten();
    Ok(Page { records, next })
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
