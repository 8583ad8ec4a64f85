//! The clients of a self test.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::key::KeyId;
use crate::ops::migrate;
use crate::protocol::{self, Idempotency, Lease, Options, Reservation};
use crate::store::Tables;
use crate::store::selftest::{self as sql, Row};

/// Whose keys they are.
const CLIENT: &str = "selftest-shop";
const OPERATION: &str = "POST /payments";
const REQUEST: &[u8] = br#"{"amount":1250,"currency":"EUR","order":"selftest"}"#;
/// Between two questions whether a lease is over.
const PAUSE: Duration = Duration::from_millis(20);

/// One client: a connection of its own, and a memory of its own, as if it were a process of its own.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) conn: Connection,
    pub(super) keys: Idempotency,
}

impl Client {
    /// Reserves with this body and lease.
    pub(super) async fn ask(&self, request: &protocol::Request) -> Result<Reservation> {
        self.keys.reserve(&self.conn, request).await
    }

    /// Reserves; an error unless the key is ours.
    pub(super) async fn acquire(&self, request: &protocol::Request) -> Result<Lease> {
        match self.ask(request).await? {
            Reservation::Acquired(lease) => Ok(lease),
            other => Err(unexpected(request.id(), "acquired", &other)),
        }
    }

    /// Reserves again and again until the key is ours; an error when it is not within this time.
    pub(super) async fn acquire_within(&self, request: &protocol::Request, time: Duration) -> Result<Lease> {
        let until = Instant::now() + time;
        loop {
            match self.ask(request).await? {
                Reservation::Acquired(lease) => return Ok(lease),
                Reservation::InProgress(_) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
                other => return Err(unexpected(request.id(), "acquired", &other)),
            }
        }
    }
}

/// An outcome that must not be.
pub(super) fn unexpected(id: &KeyId, wanted: &str, got: &Reservation) -> Error {
    Error::Inconsistent {
        what: format!("{id}: not {wanted} but {}", word(got)),
    }
}

/// The outcome's name.
pub(super) fn word(reservation: &Reservation) -> &'static str {
    match reservation {
        Reservation::Acquired(_) => "acquired",
        Reservation::Replay(_) => "replayed",
        Reservation::InProgress(_) => "in progress",
        Reservation::Mismatch(_) => "a mismatch",
        Reservation::Expired(_) => "expired",
    }
}

/// What every check needs.
#[derive(Debug)]
pub(super) struct Env {
    pub(super) tables: Tables,
    pub(super) clients: Vec<Arc<Client>>,
    /// For looking at rows and for what operators do.
    pub(super) admin: Connection,
}

impl Env {
    /// Migrates the schema and opens the connections.
    pub(super) async fn make(settings: &Settings, schema: &str, clients: usize) -> Result<Self> {
        let admin = Connection::open(settings).await?;
        migrate::run(settings, Some(schema), &migrate::like_own(&admin).await?).await?;
        let mut opening = JoinSet::new();
        for number in 1..=clients {
            let (settings, schema) = (settings.clone(), schema.to_owned());
            opening.spawn(async move { open(&settings, &schema, number).await });
        }
        let mut opened = Vec::with_capacity(clients);
        while let Some(client) = joined(opening.join_next().await)? {
            opened.push(Arc::new(client?));
        }
        Ok(Self {
            tables: Tables::new(schema),
            clients: opened,
            admin,
        })
    }

    pub(super) fn first(&self) -> &Client {
        &self.clients[0]
    }

    pub(super) fn second(&self) -> &Client {
        &self.clients[1]
    }

    /// The row of a key as it stands; an error where there is none.
    pub(super) async fn row(&self, id: &KeyId) -> Result<Row> {
        let row = sql::row(&self.admin, &self.tables, id).await?;
        row.ok_or_else(|| Error::Inconsistent {
            what: format!("the row {id} is not there"),
        })
    }

    /// Lets every client do the same at once, and gives what came of it, or the first error. All of them end first: who
    /// is cut off in mid-statement has no connection any more.
    pub(super) async fn all<T, F>(&self, work: impl Fn(Arc<Client>) -> F) -> Result<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut tasks = JoinSet::new();
        for client in &self.clients {
            tasks.spawn(work(Arc::clone(client)));
        }
        let mut results = Vec::with_capacity(self.clients.len());
        while let Some(result) = joined(tasks.join_next().await)? {
            results.push(result);
        }
        results.into_iter().collect()
    }

    /// Says farewell on every connection.
    pub(super) async fn close(self) {
        self.admin.close().await;
        for client in self.clients {
            if let Some(client) = Arc::into_inner(client) {
                client.conn.close().await;
            }
        }
    }
}

async fn open(settings: &Settings, schema: &str, number: usize) -> Result<Client> {
    let conn = Connection::open(settings).await?;
    let options = Options {
        owner: format!("selftest-{number}"),
        ..Options::default()
    };
    let keys = Idempotency::open(&conn, Some(schema), options).await?;
    Ok(Client { conn, keys })
}

fn joined<T>(next: Option<Result<T, tokio::task::JoinError>>) -> Result<Option<T>> {
    next.transpose().map_err(|error| Error::Local {
        what: format!("a client of the self test broke: {error}"),
    })
}

/// A key of the self test.
pub(super) fn id(key: &str) -> Result<KeyId> {
    KeyId::new(CLIENT, key)
}

/// What a service would ask the library for.
pub(super) fn request(id: KeyId) -> Result<protocol::Request> {
    protocol::Request::new(id, Fingerprint::of_json(REQUEST)?).operation(OPERATION)
}
