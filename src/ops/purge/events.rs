//! Deleting old events, in the order of their ids.

use serde_json::json;

use super::walk::Limits;
use super::{Report, Request};
use crate::connect::Connection;
use crate::error::Result;
use crate::store::Store;
use crate::store::event::NewEvent;
use crate::store::purge_event::NextEvents;

/// Deletes events older than their retention. Ids follow time closely, so it ends at the first batch of ids
/// in which nothing is due. Where our role may not delete events, which is how operators are kept from rewriting
/// the log, it leaves them and says so.
pub(super) async fn purge(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    limits: &Limits<'_>,
    report: &mut Report,
) -> Result<()> {
    let Some(ttl) = request.retention.events else {
        return Ok(());
    };
    let mut after = 0;
    loop {
        if let Some(stopped) = limits.reached() {
            report.stopped = stopped;
            return Ok(());
        }
        let end = store
            .purge_event_end(conn, ttl, after, request.batch_size)
            .await?;
        let Some(NextEvents {
            upto,
            any_due: true,
            may_delete,
        }) = end
        else {
            return Ok(());
        };
        if !may_delete {
            report.events_left = true;
            return Ok(());
        }
        if request.dry_run {
            report.events_deleted += store.purge_events(conn, ttl, (after, upto), true).await?;
        } else {
            let tx = conn.begin().await?;
            let deleted = store.purge_events(&tx, ttl, (after, upto), false).await?;
            let details = json!({"events_deleted": deleted, "ttl_events_seconds": ttl.as_secs_f64()});
            let event = NewEvent {
                action: "purge_events",
                details: Some(details),
                ..NewEvent::default()
            };
            store.append_event(&tx, &request.actor, &event).await?;
            tx.commit().await?;
            report.events_deleted += deleted;
        }
        after = upto;
        limits.pause(request.pause).await;
    }
}
