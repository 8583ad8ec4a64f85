//! Expired keys as whole records, for somebody who is about to end them.

use std::time::Duration;

use crate::error::Result;
use crate::record::Record;
use crate::store::{Executor, Store};

/// At most `limit` rows whose lease ended at least `older_than` ago, oldest lease end first.
pub async fn page(
    executor: &impl Executor,
    store: &Store,
    older_than: Duration,
    client_id: Option<&str>,
    limit: u32,
) -> Result<Vec<Record>> {
    store.stuck(executor, older_than, client_id, limit).await
}
