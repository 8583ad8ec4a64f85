//! What is sent to a private server before any of our tables exists.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::quote_ident;
use crate::error::Result;

const PING: &str = "-- idemctl:ping
select 1";

const FIND_DATABASE: &str = "-- idemctl:find_database
select 1 from pg_catalog.pg_database where datname = $1";

/// CREATE DATABASE takes no parameters: the quoted name is appended.
const CREATE_DATABASE: &str = "-- idemctl:create_database
create database ";

/// Ends the sessions that are still in it, too (PostgreSQL 13 and later).
const DROP_DATABASE: (&str, &str) = (
    "-- idemctl:drop_database
drop database if exists ",
    " with (force)",
);

/// Asks the server for an answer: it is ready when it gives one, and not merely when it listens.
pub(crate) async fn ping(client: &Client) -> Result<()> {
    client.query_typed(PING, &[]).await?;
    Ok(())
}

/// Creates a database unless it is there.
pub(crate) async fn ensure_database(client: &Client, name: &str) -> Result<()> {
    let found = client
        .query_typed(FIND_DATABASE, &[(/* name */ &name, Type::TEXT)])
        .await?;
    if found.is_empty() {
        client
            .batch_execute(&format!("{CREATE_DATABASE}{}", quote_ident(name)))
            .await?;
    }
    Ok(())
}

/// Creates a database anew; what was in one of this name is gone.
pub(crate) async fn recreate_database(client: &Client, name: &str) -> Result<()> {
    let (before, after) = DROP_DATABASE;
    let name = quote_ident(name);
    client.batch_execute(&format!("{before}{name}{after}")).await?;
    client.batch_execute(&format!("{CREATE_DATABASE}{name}")).await?;
    Ok(())
}
