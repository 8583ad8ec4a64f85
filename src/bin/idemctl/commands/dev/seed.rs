//! The demo's keys: one or more in every state, made through the library as a service would make them.

use std::time::Duration;

use idemctl::connect::Connection;
use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::ops::actor::Actor;
use idemctl::ops::end::End;
use idemctl::ops::release;
use idemctl::protocol::{Idempotency, Lease, Options, Request, Reservation};
use idemctl::response::Response;

use crate::exit::{CliError, Exit, Result};

const OPERATION: &str = "POST /payments";
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// Makes the keys in an empty, migrated database.
pub(super) async fn fill(connection: &mut Connection) -> Result<()> {
    let options = Options {
        owner: "pay-7f9c:4121:9d2c".to_owned(),
        ..Options::default()
    };
    let keys = Idempotency::open(connection, None, options).await?;
    // Two days old: what the purge is for.
    for n in 90..95 {
        let key = format!("order-{n}");
        let mut lease = reserve(&keys, connection, "shop-1", &key, None).await?;
        let body = format!(r#"{{"charge_id":"pay_{n}"}}"#);
        lease.complete(connection, &Response::new(201, body)?).await?;
        age(&keys, connection, &lease, 48 * HOUR).await?;
    }
    // The one that somebody is called for: its service died after it had asked the provider to charge.
    let mut stuck = reserve(&keys, connection, "shop-1", "order-1", Some("acme")).await?;
    stuck
        .outcome_unknown(
            connection,
            "timeout after 10 s, the provider's answer is not known",
        )
        .await?;
    age(&keys, connection, &stuck, 14 * MINUTE).await?;
    // Answered.
    let mut done = reserve(&keys, connection, "shop-1", "order-7", Some("acme")).await?;
    let answer = Response::new(201, r#"{"charge_id":"pay_6A9","amount":1250,"currency":"EUR"}"#)?
        .with_header("content-type", "application/json")?;
    done.complete(connection, &answer).await?;
    age(&keys, connection, &done, 3 * HOUR).await?;
    let mut receipt = reserve(&keys, connection, "shop-2", "receipt-12", None).await?;
    let answer = Response::new(200, "Thank you!\n")?.with_header("content-type", "text/plain")?;
    receipt.complete(connection, &answer).await?;
    age(&keys, connection, &receipt, 2 * HOUR).await?;
    failed(&keys, connection).await?;
    // Somebody is at work this moment; the lease outlives the demo.
    let alive = reserve(&keys, connection, "shop-2", "order-9", Some("acme")).await?;
    // Dropping it would rightly be warned about.
    std::mem::forget(alive);
    Ok(())
}

/// A key that an operator gave up, with the entry in the event log.
async fn failed(keys: &Idempotency, connection: &mut Connection) -> Result<()> {
    let mut lease = reserve(keys, connection, "shop-2", "order-3", Some("acme")).await?;
    lease.outcome_unknown(connection, "connection reset").await?;
    age(keys, connection, &lease, HOUR).await?;
    let row = keys.store().get(connection, lease.id()).await?;
    let row = row.ok_or_else(|| unexpected(lease.id()))?;
    let request = release::Request {
        seen: &row,
        end: &End::Fail(None),
        steal: false,
        evidence: serde_json::Value::Null,
        dry_run: false,
        actor: Actor {
            os_user: Some("alice".to_owned()),
            host: Some("ops-1".to_owned()),
            reason: Some("the customer paid by bank transfer instead".to_owned()),
        },
    };
    release::run(connection, keys.store(), &request).await?;
    Ok(())
}

async fn reserve(
    keys: &Idempotency,
    connection: &Connection,
    client: &str,
    key: &str,
    provider: Option<&str>,
) -> Result<Lease> {
    let id = KeyId::new(client, key)?;
    let body = format!(r#"{{"amount":4990,"currency":"EUR","order":"{key}"}}"#);
    let mut request = Request::new(id.clone(), Fingerprint::of_json(body.as_bytes())?)
        .operation(OPERATION)?
        .lease(15 * MINUTE)?;
    if let Some(provider) = provider {
        request = request.provider(provider)?;
    }
    match keys.reserve(connection, &request).await? {
        Reservation::Acquired(lease) => Ok(lease),
        _ => Err(unexpected(&id)),
    }
}

async fn age(keys: &Idempotency, connection: &Connection, lease: &Lease, by: Duration) -> Result<()> {
    keys.store().shift_for_demo(connection, lease.id(), by).await?;
    Ok(())
}

/// The database was made a moment ago, for the demo alone.
fn unexpected(id: &KeyId) -> CliError {
    CliError::new(Exit::Bug, format!("the demo's key {id} is not as it was made"))
}
