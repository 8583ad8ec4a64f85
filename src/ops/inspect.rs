//! One key: everything that the table and the event log know of it.

use crate::connect::Connection;
use crate::error::Result;
use crate::key::KeyId;
use crate::ops::actor::Actor;
use crate::ops::history::Filter;
use crate::ops::list::Order;
use crate::record::Record;
use crate::store::event::NewEvent;
use crate::store::{Event, Executor, Store};

/// How many events of one key are looked at.
pub const MAX_EVENTS: u32 = 50;

/// What is known of one key.
#[derive(Debug)]
pub struct Report {
    /// The row.
    pub record: Record,
    /// The exact bytes of the stored body, if it was asked for and there is one.
    pub body: Option<Vec<u8>>,
    /// What operators and the janitor did to the key, newest first, at most [`MAX_EVENTS`].
    pub history: Vec<Event>,
}

/// Looks at one key; `None` when there is no row.
pub async fn run(
    executor: &impl Executor,
    store: &Store,
    id: &KeyId,
    with_response: bool,
) -> Result<Option<Report>> {
    let Some(record) = store.get(executor, id).await? else {
        return Ok(None);
    };
    let body = match (with_response, &record.response) {
        (true, Some(_)) => store.get_body(executor, id).await?,
        _ => None,
    };
    let history = history(executor, store, id).await?;
    Ok(Some(Report {
        record,
        body,
        history,
    }))
}

/// What the event log knows of a key, whether or not there is a row: why it is gone.
pub async fn history(executor: &impl Executor, store: &Store, id: &KeyId) -> Result<Vec<Event>> {
    store
        .history(executor, &Filter::of(id), Order::Newest, None, MAX_EVENTS)
        .await
}

/// Clients that have the same key in progress or expired, at most `limit`: whom somebody may have meant who finds no
/// row. Its cost is that of the keys in progress.
pub async fn unfinished_namesakes(
    executor: &impl Executor,
    store: &Store,
    id: &KeyId,
    limit: u32,
) -> Result<Vec<String>> {
    store.unfinished_namesakes(executor, id.key(), limit).await
}

/// Writes into the event log that somebody looks at a body without masks.
pub async fn record_unmask(conn: &mut Connection, store: &Store, id: &KeyId, actor: &Actor) -> Result<()> {
    let tx = conn.begin().await?;
    let event = NewEvent {
        id: Some(id),
        action: "unmask",
        ..NewEvent::default()
    };
    store.append_event(&tx, actor, &event).await?;
    tx.commit().await
}
