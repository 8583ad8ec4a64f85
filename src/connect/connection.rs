//! One connection with deadlines: what the operations and the janitor work on.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::store::{Answer, Cached, Executor, Params, Statement};

/// How long a step may take; enforced on the server and, a little later, on our side too, so that a peer that
/// vanished without a packet cannot hold a command for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Whole time for getting a usable connection.
    pub connect: Duration,
    /// One statement.
    pub statement: Duration,
    /// Waiting for one lock.
    pub lock: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            statement: Duration::from_secs(30),
            lock: Duration::from_secs(5),
        }
    }
}

/// Where and how to connect. (Skeleton: helper C replaces it.)
#[derive(Debug, Clone)]
pub struct Settings {
    /// libpq URI or key=value.
    pub dsn: String,
    /// Time limits.
    pub timeouts: Timeouts,
}

/// A connection with statement cache (or unnamed statements behind a pooler), deadlines and clean transactions.
#[derive(Debug)]
pub struct Connection {
    client: Cached<tokio_postgres::Client>,
    timeouts: Timeouts,
}

impl Connection {
    /// Connects.
    pub async fn open(settings: &Settings) -> Result<Self> {
        let (client, driver) = tokio_postgres::connect(&settings.dsn, tokio_postgres::NoTls).await?;
        tokio::spawn(driver);
        Ok(Self {
            client: Cached::new(client),
            timeouts: settings.timeouts,
        })
    }

    /// The time limits in force.
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Whether the connection is of no more use.
    pub fn is_closed(&self) -> bool {
        self.client.get().is_closed()
    }

    /// Starts a transaction; dropped without [`Tx::commit`], it rolls back.
    pub async fn begin(&mut self) -> Result<Tx<'_>> {
        let timeouts = self.timeouts;
        Ok(Tx {
            transaction: self.client.get_mut().transaction().await?,
            timeouts,
        })
    }
}

impl Executor for Connection {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        self.client.run(statement, params).await
    }
}

/// A transaction of a [`Connection`].
#[allow(missing_debug_implementations)]
pub struct Tx<'a> {
    transaction: tokio_postgres::Transaction<'a>,
    timeouts: Timeouts,
}

impl Tx<'_> {
    /// Commits. [`Error::Deadline`] means that the outcome is unknown.
    pub async fn commit(self) -> Result<()> {
        let after = self.timeouts.statement;
        match tokio::time::timeout(after, self.transaction.commit()).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(Error::Deadline { after }),
        }
    }
}

impl Executor for Tx<'_> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        self.transaction.run(statement, params).await
    }
}
