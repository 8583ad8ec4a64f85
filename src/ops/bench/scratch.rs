//! Getting rid of the scratch schema, whatever has happened before.

use std::time::Duration;

use crate::connect::{Connection, Settings};
use crate::error::Result;
use crate::store::bench::{self as sql, Scratch};

/// Sessions that were cut off may hold their locks until the server notices.
const TRIES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
];

/// Drops it: on the connection that made it, or else on a new one.
pub(super) async fn drop(mut admin: Connection, settings: &Settings, scratch: &Scratch) -> Result<()> {
    let mut result = if admin.is_closed() {
        None
    } else {
        Some(sql::drop_schema(&mut admin, scratch).await)
    };
    for pause in TRIES {
        match result {
            Some(Ok(())) => break,
            Some(Err(_)) => tokio::time::sleep(pause).await,
            None => {}
        }
        result = Some(match Connection::open(settings).await {
            Ok(mut connection) => sql::drop_schema(&mut connection, scratch).await,
            Err(error) => Err(error),
        });
    }
    result.unwrap_or(Ok(()))
}
