//! The way to the database for long work: made anew when it is lost.

use std::time::Duration;

use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::stop::Stop;
use crate::store::Store;

/// A connection and the table on it.
#[derive(Debug)]
pub struct Database<'a> {
    /// The connection; replaced when it is lost.
    pub conn: &'a mut Connection,
    /// The table.
    pub store: &'a mut Store,
    /// How to connect again, and how long to try; `None`: a lost connection ends the work.
    pub reconnect: Option<(&'a Settings, Duration)>,
}

impl Database<'_> {
    /// Connects again after `cause`, which is returned where that is not wanted or does not succeed in time.
    pub(super) async fn again(&mut self, cause: Error, stop: &Stop) -> Result<()> {
        let Some((settings, patience)) = self.reconnect else {
            return Err(cause);
        };
        tracing::warn!(%cause, "the connection was lost; connecting again");
        let give_up = async {
            tokio::select! {
                () = tokio::time::sleep(patience) => {}
                () = stop.soft() => {}
            }
        };
        tokio::pin!(give_up);
        let schema = self.store.schema().to_owned();
        loop {
            let opened = async {
                let conn = Connection::open_with_retry(settings, std::future::pending()).await?;
                let store = Store::open(&conn, Some(&schema)).await?;
                Ok::<_, Error>((conn, store))
            };
            let result = tokio::select! {
                biased;
                result = opened => result,
                () = &mut give_up => {
                    return Err(if stop.is_soft() { Error::Interrupted } else { cause });
                }
            };
            match result {
                Ok((conn, store)) => {
                    (*self.conn, *self.store) = (conn, store);
                    return Ok(());
                }
                Err(error) if error.needs_reconnect() => {
                    tracing::debug!(%error, "lost again");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
