//! How a statement reaches the server: unnamed and typed, or prepared once per connection and cached.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{TryStreamExt, pin_mut};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Row, RowStream, Transaction};

use crate::error::{Error, Result};

/// One statement of the store: its name, its text with the schema filled in, and its parameters' types.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The name that stands in the text's first comment, for the server's logs and for metrics.
    pub name: &'static str,
    /// The text.
    pub text: Arc<str>,
    /// Types of `$1`, `$2` ...
    pub types: &'static [Type],
}

/// A statement's parameters, in order.
pub type Params<'a> = [&'a (dyn ToSql + Sync)];

/// The rows that a statement returned, and how many it touched.
#[derive(Debug)]
pub struct Answer {
    /// Rows, in the server's order.
    pub rows: Vec<Row>,
    /// Rows inserted, updated, deleted or selected.
    pub affected: u64,
}

/// Something that can run a statement in one round trip.
///
/// Implemented for the driver's [`Client`] and [`Transaction`] with unnamed typed statements, which pass
/// through a pooler of any version in transaction mode, and for [`Cached`], which prepares each statement
/// once per connection.
pub trait Executor: Send + Sync {
    /// Runs one statement.
    fn run(&self, statement: &Statement, params: &Params<'_>) -> impl Future<Output = Result<Answer>> + Send;
}

impl Executor for Client {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        run_unnamed(self, statement, params).await
    }
}

impl Executor for Transaction<'_> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        run_unnamed(self, statement, params).await
    }
}

impl<E: Executor> Executor for &E {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        E::run(self, statement, params).await
    }
}

impl<E: Executor> Executor for Arc<E> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        E::run(self, statement, params).await
    }
}

/// A pool's connection, whatever the pool wraps around the driver's client. Its statements are unnamed, which any
/// pooler passes.
///
/// `Pooled::new(pool.get().await?, |connection| connection)`: the closure gives the [`Client`] inside, to which
/// the usual pools' connections coerce.
pub struct Pooled<T> {
    connection: T,
    client: fn(&T) -> &Client,
}

impl<T> Pooled<T> {
    /// Wraps a connection; it goes back to its pool when this is dropped.
    pub fn new(connection: T, client: fn(&T) -> &Client) -> Self {
        Self { connection, client }
    }
}

impl<T> std::fmt::Debug for Pooled<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pooled")
    }
}

impl<T: Send + Sync> Executor for Pooled<T> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        run_unnamed((self.client)(&self.connection), statement, params).await
    }
}

/// A client of the driver whose statements are prepared once and kept.
///
/// Faster than unnamed statements on a direct connection. Never put it behind a pooler in transaction mode
/// that does not track prepared statements: statement names of other clients would be met there.
#[derive(Debug)]
pub struct Cached<C> {
    client: C,
    statements: Mutex<Statements>,
}

/// Texts that are remembered by their address; more are only looked up by what they say.
const MOST_ADDRESSES: usize = 1024;

/// What was prepared on a connection.
#[derive(Debug, Default)]
struct Statements {
    by_text: HashMap<Arc<str>, tokio_postgres::Statement>,
    by_address: HashMap<usize, Prepared>,
}

impl Statements {
    fn find(&mut self, text: &Arc<str>) -> Option<tokio_postgres::Statement> {
        if let Some(known) = self.by_address.get(&address(text)) {
            return Some(known.statement.clone());
        }
        let statement = self.by_text.get(text).cloned()?;
        self.remember(text, &statement);
        Some(statement)
    }

    fn insert(&mut self, text: &Arc<str>, statement: &tokio_postgres::Statement) {
        self.by_text.insert(Arc::clone(text), statement.clone());
        self.remember(text, statement);
    }

    fn remember(&mut self, text: &Arc<str>, statement: &tokio_postgres::Statement) {
        if self.by_address.len() < MOST_ADDRESSES {
            let kept = Prepared {
                _text: Arc::clone(text),
                statement: statement.clone(),
            };
            self.by_address.insert(address(text), kept);
        }
    }

    fn clear(&mut self) {
        self.by_text.clear();
        self.by_address.clear();
    }
}

/// A statement as the server knows it. It holds the text, so that no other one can come to lie at its address.
#[derive(Debug)]
struct Prepared {
    _text: Arc<str>,
    statement: tokio_postgres::Statement,
}

/// Where a text lies: cheaper to look up than the text, and the statements of one `Store` stay in place.
fn address(text: &Arc<str>) -> usize {
    text.as_ptr().addr()
}

impl<C: GenericClient + Send + Sync> Cached<C> {
    /// Wraps a client.
    pub fn new(client: C) -> Self {
        Self {
            client,
            statements: Mutex::default(),
        }
    }

    /// The client inside.
    pub fn get(&self) -> &C {
        &self.client
    }

    /// The client inside, for a transaction.
    pub fn get_mut(&mut self) -> &mut C {
        &mut self.client
    }

    async fn prepared(&self, statement: &Statement) -> Result<tokio_postgres::Statement> {
        let known = self.lock().find(&statement.text);
        if let Some(known) = known {
            return Ok(known);
        }
        let prepared = self
            .client
            .prepare_typed(&statement.text, statement.types)
            .await?;
        self.lock().insert(&statement.text, &prepared);
        Ok(prepared)
    }

    async fn run_once(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        let prepared = self.prepared(statement).await?;
        collect(self.client.query_raw(&prepared, params.iter().copied()).await?).await
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Statements> {
        // A poisoned cache is still a cache: nothing in it is half-written.
        self.statements.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: GenericClient + Send + Sync> Executor for Cached<C> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        match self.run_once(statement, params).await {
            Err(error) if is_stale_plan(&error) => {
                // Somebody changed the table (a migration) or dropped our statements: neither was executed.
                self.lock().clear();
                self.run_once(statement, params).await
            }
            other => other,
        }
    }
}

/// "cached plan must not change result type" (0A000), or the statement is not there any more (26000).
fn is_stale_plan(error: &Error) -> bool {
    match error {
        Error::Database(source) => match source.as_db_error() {
            Some(db) => match db.code().code() {
                "26000" => true,
                "0A000" => db.message().contains("cached plan"),
                _ => false,
            },
            None => false,
        },
        _ => false,
    }
}

async fn run_unnamed<C: GenericClient + Sync>(
    client: &C,
    statement: &Statement,
    params: &Params<'_>,
) -> Result<Answer> {
    let typed = params.iter().copied().zip(statement.types.iter().cloned());
    collect(client.query_typed_raw(&statement.text, typed).await?).await
}

async fn collect(stream: RowStream) -> Result<Answer> {
    pin_mut!(stream);
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await? {
        rows.push(row);
    }
    let affected = stream.rows_affected().unwrap_or(0);
    Ok(Answer { rows, affected })
}
