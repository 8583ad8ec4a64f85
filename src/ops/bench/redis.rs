//! A Redis or Valkey server.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use super::meter::Meter;
use super::pool::Pool;
use super::request::RedisUrl;
use crate::error::{Error, Result};

/// How long a claim and a result are kept: everything goes away by itself, also after `kill -9`.
const KEEP: Duration = Duration::from_secs(30);
/// Commands in one message when keys are stored beforehand.
const LOT: usize = 1_000;
/// For one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a claim writes; anything else is a result.
const IN_PROGRESS: &str = "in_progress";

/// The server, and the names of this run's keys in it.
#[derive(Debug)]
pub(super) struct Redis {
    pub(super) pool: Pool<Line>,
    /// Host and port, without a password.
    place: String,
    prefix: String,
}

/// One connection. (The driver's own type has no `Debug` that is worth showing.)
pub(super) struct Line(MultiplexedConnection);

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

/// What a claim met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Met {
    Nobody,
    InProgress,
    Done,
}

impl Redis {
    /// Opens so many connections.
    pub(super) async fn open(url: &RedisUrl, connections: usize, prefix: &str) -> Result<Self> {
        let client = Client::open(url.expose()).map_err(|error| Error::Invalid {
            field: "redis",
            // The error says what is wrong and does not repeat the URL.
            reason: format!("is no URL of a Redis: {error}; redis://HOST:PORT/DB and redis+unix:///PATH are"),
        })?;
        let place = client.get_connection_info().addr().to_string();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let mut lines = Vec::with_capacity(connections);
        for _ in 0..connections {
            let line = client.get_multiplexed_async_connection_with_config(&config).await;
            lines.push(Line(line.map_err(|error| unreachable(&place, &error))?));
        }
        Ok(Self {
            pool: Pool::new(lines),
            place,
            prefix: format!("{prefix}:"),
        })
    }

    /// Takes the key, or says who has it: one round trip for the winner, two for a loser.
    pub(super) async fn claim(&self, line: &mut Line, key: &str) -> Result<Met> {
        let key = format!("{}{key}", self.prefix);
        let set: Option<String> = redis::cmd("SET")
            .arg(&key)
            .arg(IN_PROGRESS)
            .arg("NX")
            .arg("PX")
            .arg(milliseconds(KEEP))
            .query_async(&mut line.0)
            .await
            .map_err(|error| self.failed(&error))?;
        if set.is_some() {
            return Ok(Met::Nobody);
        }
        let found: Option<String> = redis::cmd("GET")
            .arg(&key)
            .query_async(&mut line.0)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(match found.as_deref() {
            // It ran out between the two questions; the caller is sent away all the same.
            None | Some(IN_PROGRESS) => Met::InProgress,
            Some(_) => Met::Done,
        })
    }

    /// Stores results beforehand, for at least `keep`.
    pub(super) async fn fill(&self, keys: &[String], body: &str, keep: Duration) -> Result<()> {
        let mut line = self.pool.get(&mut Meter::new()).await;
        for lot in keys.chunks(LOT) {
            let mut pipe = redis::pipe();
            for key in lot {
                let key = format!("{}{key}", self.prefix);
                pipe.cmd("SET")
                    .arg(key)
                    .arg(body)
                    .arg("PX")
                    .arg(milliseconds(keep))
                    .ignore();
            }
            let () = pipe
                .query_async(&mut line.0)
                .await
                .map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    /// Stores the result, whoever holds the key by now.
    pub(super) async fn complete(&self, line: &mut Line, key: &str, body: &str) -> Result<()> {
        let key = format!("{}{key}", self.prefix);
        let _: String = redis::cmd("SET")
            .arg(&key)
            .arg(body)
            .arg("PX")
            .arg(milliseconds(KEEP))
            .query_async(&mut line.0)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(())
    }

    fn failed(&self, error: &RedisError) -> Error {
        unreachable(&self.place, error)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn unreachable(place: &str, error: &RedisError) -> Error {
    Error::Unreachable {
        what: format!("the Redis at {place}: {error}"),
    }
}
