//! A transaction that is committed, rolled back, or leaves a closed connection behind.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt;

use super::connection::Connection;
use crate::error::{Error, Result};
use crate::store::session::{COMMIT, ROLLBACK};
use crate::store::{Answer, Executor, Params, Statement};

/// A transaction of a [`Connection`]. Dropped without [`Tx::commit`], it rolls back.
///
/// Its statements are sent unnamed: that takes one round trip as well, and a cached plan that has gone stale
/// could not be mended inside a transaction.
#[derive(Debug)]
pub struct Tx<'a> {
    connection: &'a Connection,
    failed: AtomicBool,
    open: bool,
}

impl<'a> Tx<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            failed: AtomicBool::new(false),
            open: true,
        }
    }

    /// Commits. [`Error::Deadline`] and [`Error::Unreachable`] mean that the outcome is unknown.
    ///
    /// After a statement that failed there is nothing to commit: the server would roll back and call that a
    /// success, so it is rolled back here and an error returned.
    pub async fn commit(mut self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) {
            self.rollback().await?;
            return Err(Error::Inconsistent {
                what: "a statement of the transaction had failed; it was rolled back".to_owned(),
            });
        }
        self.open = false;
        self.finish(COMMIT).await
    }

    /// Rolls back and waits until that is done.
    pub async fn rollback(mut self) -> Result<()> {
        self.open = false;
        self.finish(ROLLBACK).await
    }

    async fn finish(&self, text: &str) -> Result<()> {
        let client = self.connection.client();
        let result = self
            .connection
            .exchange(async { Ok(client.batch_execute(text).await?) })
            .await;
        if result.is_err() && text == ROLLBACK {
            // Whatever state it is in, nobody shall go on in it.
            self.connection.abandon("a rollback failed");
        }
        result
    }
}

impl Executor for Tx<'_> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        let client = self.connection.client();
        let result = self.connection.exchange(client.run(statement, params)).await;
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }
}

impl Drop for Tx<'_> {
    fn drop(&mut self) {
        if !self.open || self.connection.is_closed() {
            return;
        }
        // The first poll puts the statement into the driver's queue, before whatever comes next; its answer
        // is read and thrown away. If it cannot be sent the connection is broken anyway.
        let sent = self.connection.client().batch_execute(ROLLBACK).now_or_never();
        if let Some(Err(_)) = sent {
            self.connection.abandon("a rollback could not be sent");
        }
    }
}
