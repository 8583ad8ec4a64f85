//! A scratch schema from its name to its end, whatever happens in between.

use std::time::Duration;

use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::store::quote_ident;
use crate::store::scratch::{self as sql, Scratch};

/// PostgreSQL cuts longer names.
const NAME_BYTES: usize = 63;

/// Sessions that were cut off may hold their locks until the server notices.
const TRIES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
];

/// Checks a name that somebody chose.
pub(super) fn check_name(name: &str) -> Result<()> {
    let reason = if name.is_empty() || name.len() > NAME_BYTES {
        format!("has {} bytes; 1 to {NAME_BYTES} are allowed", name.len())
    } else if name.chars().any(char::is_control) {
        "has control characters".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::Invalid {
        field: "scratch schema",
        reason,
    })
}

/// Keeps runs of one purpose apart; nothing secret.
pub(super) fn random_name(purpose: &str) -> String {
    format!("idemctl_{purpose}_{:010x}", fastrand::u64(0..1 << 40))
}

/// What runs that were killed left behind, or runs that go on right now, in words.
pub(super) async fn leftovers(conn: &Connection) -> Result<Vec<String>> {
    let names = sql::leftovers(conn).await?;
    Ok(names
        .iter()
        .map(|name| {
            format!(
                "the schema {name} is the scratch schema of another run; if none is going on, it was left behind by one \
                 that was killed: drop schema {} cascade",
                quote_ident(name)
            )
        })
        .collect())
}

/// Drops it, on the connection that made it or else on a new one, and gives the run's own result; where it could not
/// be dropped, an error that says how to do it by hand.
pub(super) async fn settle<T>(
    result: Result<T>,
    admin: Connection,
    settings: &Settings,
    scratch: &Scratch,
) -> Result<T> {
    let Err(error) = drop(admin, settings, scratch).await else {
        return result;
    };
    let before = result
        .err()
        .map_or_else(String::new, |first| format!("; before that: {first}"));
    Err(Error::Local {
        what: format!(
            "the scratch schema could not be dropped: {error}{before}; do it by hand: drop schema {} cascade",
            quote_ident(&scratch.name)
        ),
    })
}

async fn drop(mut admin: Connection, settings: &Settings, scratch: &Scratch) -> Result<()> {
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
