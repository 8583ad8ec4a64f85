//! Stuck charges: the provider is asked, and the safe thing is done, once.

mod crash;
mod janitor;
mod many;
mod plan;
pub(crate) mod provider;
mod verdicts;

use serde_json::Value;

use crate::cli::fixture::{Cli, calm, cli};
use crate::support::Output;
use provider::{Provider, section};

/// A database, a provider without keys, and a configuration that names it `acme`.
struct Fixture {
    cli: Cli,
    provider: Provider,
    config: String,
}

async fn fixture() -> Fixture {
    let cli = cli().await;
    let provider = Provider::start().await;
    let config = cli.config(&section("acme", provider.address));
    Fixture {
        cli,
        provider,
        config,
    }
}

impl Fixture {
    /// A key whose holder died 15 minutes ago.
    async fn stuck(&self, key: &str) {
        self.stuck_at(key, "acme", 1).await;
    }

    async fn stuck_at(&self, key: &str, provider: &str, attempt: i32) {
        self.cli
            .execute(&format!(
                "insert into idempotency (client_id, key, fingerprint, locked_until, created_at, attempt, lease_token,
                                          owner, operation, provider)
                 values ('shop-1', '{key}', repeat('ab', 32), now() - interval '14 min', now() - interval '15 min',
                         {attempt}, gen_random_uuid(), 'pay-1:1:1', 'POST /payments', '{provider}')"
            ))
            .await;
    }

    /// `idemctl reconcile ARGS -c CONFIG -o json`
    async fn reconcile(&self, args: &[&str]) -> (i32, Value, Output) {
        let args = [&["reconcile"], args, &["-c", &self.config, "-o", "json"]].concat();
        let output = calm(self.cli.command(&args).run().await);
        let json = serde_json::from_str(&output.stdout).unwrap_or(Value::Null);
        (output.code, json, output)
    }

    /// The row of a key without its own history: state, status code, body.
    async fn row(&self, key: &str) -> Option<String> {
        let query = "select concat_ws(' ', status, status_code, response) from idempotency where key = $1";
        let row = self.cli.db.client.query_opt(query, &[&key]).await.unwrap();
        row.map(|row| row.get(0))
    }

    /// How often events of `reconcile` stand in the log for a key.
    async fn events(&self, key: &str) -> i64 {
        let sql =
            format!("select count(*) from idempotency_event where key = '{key}' and action = 'reconcile'");
        self.cli.number(&sql).await
    }
}

/// `key -> result` of the report.
#[track_caller]
fn results(json: &Value) -> Vec<(String, String)> {
    let items = json["reconciled"]
        .as_array()
        .unwrap_or_else(|| panic!("no report: {json}"));
    let mut results: Vec<_> = items
        .iter()
        .map(|item| {
            let text = |name: &str| item[name].as_str().unwrap().to_owned();
            (text("key"), text("result"))
        })
        .collect();
    results.sort();
    results
}

/// The one result of a report.
#[track_caller]
fn result(json: &Value) -> String {
    match results(json).as_slice() {
        [(_, result)] => result.clone(),
        other => panic!("not one result: {other:?}"),
    }
}
