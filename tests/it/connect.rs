//! Connecting: what libpq's users expect, compared with psql where it can be.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test helper may panic")]

pub(crate) mod certificates;
mod deadlines;
mod hosts;
mod resolver;
mod tls;

use std::process::{Command, Output};

use idemctl::connect::{Connection, Environment};
use idemctl::error::{Error, Result};
use idemctl::store::{Answer, Executor, Statement};
use tokio_postgres::types::Type;

use crate::support::require_program;

/// A statement of a test's own.
pub(crate) fn sql(text: &str, types: &'static [Type]) -> Statement {
    Statement {
        name: "test",
        text: text.into(),
        types,
    }
}

/// Runs a statement without parameters.
pub(crate) async fn run(executor: &impl Executor, text: &str) -> Result<Answer> {
    executor.run(&sql(text, &[]), &[]).await
}

/// The one text that a statement returns.
pub(crate) async fn text(executor: &impl Executor, query: &str) -> String {
    run(executor, query).await.unwrap().rows[0].get(0)
}

/// Waits until a query of a plain client is true. The tests' time limit ends it if it never is.
pub(crate) async fn until(client: &tokio_postgres::Client, query: &str) {
    let wait = async {
        while !client.query_typed(query, &[]).await.unwrap()[0].get::<_, bool>(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), wait)
        .await
        .expect(query);
}

/// An environment with these variables and no home.
fn environment(variables: &[(&str, &str)]) -> Environment {
    Environment {
        variables: variables
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        home: None,
        user: Some("nobody".to_owned()),
    }
}

/// psql with these arguments and nothing but these variables in its environment.
fn psql(args: &[&str], variables: &[(&str, &str)], home: &std::path::Path) -> Output {
    Command::new(require_program("psql", "postgresql-client"))
        .args(["-X", "-A", "-t", "-w"])
        .args(args)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("LC_ALL", "C.UTF-8")
        .envs(variables.iter().copied())
        .output()
        .expect("psql runs")
}

/// The error of a connection that must not come about.
fn refused(result: Result<Connection>) -> Error {
    match result {
        Ok(connection) => panic!("connected: {:?}", connection.facts()),
        Err(error) => error,
    }
}
