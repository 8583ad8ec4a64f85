//! Expired keys as whole records, for somebody who is about to end them.

use std::time::Duration;

use crate::error::Result;
use crate::key::KeyId;
use crate::record::Record;
use crate::store::{Executor, Store};
use crate::time::Timestamp;

/// A place in the order of lease ends, to go on from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) locked_until: Timestamp,
    pub(crate) id: KeyId,
}

impl Cursor {
    /// As the statements take it.
    pub(crate) fn place(cursor: Option<&Self>) -> (Timestamp, &str, &str) {
        cursor.map_or((Timestamp::NEG_INFINITY, "", ""), |cursor| {
            (cursor.locked_until, cursor.id.client_id(), cursor.id.key())
        })
    }
}

/// Rows, and what is wrong with those that cannot be read.
#[derive(Debug)]
pub struct Page {
    /// Oldest lease end first.
    pub rows: Vec<Record>,
    /// One message for each row that holds something unreadable; it never keeps the others from their turn.
    pub unreadable: Vec<String>,
    /// Where to go on; `None` when the end was reached.
    pub next: Option<Cursor>,
}

/// At most `limit` rows whose lease ended at least `older_than` ago, oldest lease end first, behind a cursor.
pub async fn page(
    executor: &impl Executor,
    store: &Store,
    older_than: Duration,
    client_id: Option<&str>,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Page> {
    let found = store
        .stuck(executor, older_than, client_id, Cursor::place(after), limit)
        .await?;
    let full = u32::try_from(found.len()).is_ok_and(|len| len == limit);
    let (mut rows, mut unreadable, mut last) = (Vec::new(), Vec::new(), None);
    for (place, row) in found {
        // Behind an unreadable one too: a page full of them would keep the rest from their turn for ever.
        last = place
            .map(|(locked_until, id)| Cursor { locked_until, id })
            .or(last);
        match row {
            Ok(row) => rows.push(row),
            Err(error) => unreadable.push(error.to_string()),
        }
    }
    Ok(Page {
        next: last.filter(|_| full),
        rows,
        unreadable,
    })
}
