//! What a connection asks and tells the server about itself.

use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::{Executor, Sql, Tables};
use crate::error::{Error, Result};

/// The largest value of the server's time limits, an `int4` of milliseconds.
const MOST_MS: u64 = i32::MAX as u64;

const SESSION: Sql = Sql {
    name: "session",
    text: "-- idemctl:session
select host(inet_server_addr()) as address,
       inet_server_port() as port,
       host(inet_client_addr()) as client_address,
       inet_client_port() as client_port,
       pg_backend_pid() as backend,
       current_setting('server_version') as version,
       current_setting('server_version_num')::int4 as version_number,
       pg_is_in_recovery() as in_recovery,
       current_setting('transaction_read_only')::bool as read_only,
       current_user::text as \"user\",
       current_database()::text as database",
    types: &[],
};

const LIMITS: Sql = Sql {
    name: "limits",
    text: "-- idemctl:limits
select set_config('statement_timeout', $1, $4),
       set_config('lock_timeout', $2, $4),
       set_config('idle_in_transaction_session_timeout', $3, $4)",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::BOOL],
};

pub(crate) const STATEMENTS: &[Sql] = &[SESSION, LIMITS];

/// Says the isolation level, since a role or database may have another default, and a transaction that only waits
/// must not hold a snapshot. It cannot be said later: behind a pooler the limits are set by a query.
pub(crate) const BEGIN: &str = "begin isolation level read committed";
pub(crate) const COMMIT: &str = "commit";
pub(crate) const ROLLBACK: &str = "rollback";

/// What the server says of the session.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: Option<i32>,
    pub(crate) client_address: Option<IpAddr>,
    pub(crate) client_port: Option<i32>,
    pub(crate) backend: i32,
    pub(crate) version: String,
    pub(crate) version_number: i32,
    pub(crate) in_recovery: bool,
    pub(crate) read_only: bool,
    pub(crate) user: String,
    pub(crate) database: String,
}

/// Time limits for the server to keep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) statement: Duration,
    pub(crate) lock: Duration,
    pub(crate) idle: Duration,
}

/// Asks the server about this session; unnamed, since it is not known yet who answers.
pub(crate) async fn session(client: &Client) -> Result<Session> {
    let answer = client.run(&Tables::new("").statement(&SESSION), &[]).await?;
    let row = answer.rows.first().ok_or_else(|| Error::Inconsistent {
        what: "the server gave no answer about the session; is it PostgreSQL?".to_owned(),
    })?;
    let address = |column| {
        row.get::<_, Option<String>>(column)
            .and_then(|text| text.parse().ok())
    };
    Ok(Session {
        address: address("address"),
        port: row.get("port"),
        client_address: address("client_address"),
        client_port: row.get("client_port"),
        backend: row.get("backend"),
        version: row.get("version"),
        version_number: row.get("version_number"),
        in_recovery: row.get("in_recovery"),
        read_only: row.get("read_only"),
        user: row.get("user"),
        database: row.get("database"),
    })
}

/// Sets the limits, for the session or, if `local`, for the transaction that is open.
pub(crate) async fn set_limits(client: &Client, limits: Limits, local: bool) -> Result<()> {
    let text = |limit: Duration| {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(MOST_MS);
        ms.clamp(1, MOST_MS).to_string()
    };
    let (statement, lock, idle) = (text(limits.statement), text(limits.lock), text(limits.idle));
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] = [
        /* statement */ &statement, /* lock */ &lock, /* idle */ &idle,
        /* local */ &local,
    ];
    client.run(&Tables::new("").statement(&LIMITS), &params).await?;
    Ok(())
}
