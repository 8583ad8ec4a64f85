//! The migration tried on a copy: the table's definition, a sample of its rows, and everything that comes afterwards.

use std::time::Duration;

use serde::Serialize;

use super::Report;
use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::fingerprint::Fingerprint;
use crate::key::KeyId;
use crate::ops::actor::Actor;
use crate::ops::purge::{self, Retention};
use crate::ops::{inspect, migrate, scratch};
use crate::protocol::{Idempotency, OnExpired, Options, Request, Reservation};
use crate::response::Response;
use crate::stop::Stop;
use crate::store::adopt::{self as sql, Copy, Table};
use crate::store::scratch as schema;

/// One step of the trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What was tried.
    pub name: &'static str,
    /// What came of it.
    pub found: String,
    /// Whether it is as it must be; `None`: there was nothing to try it on.
    pub ok: Option<bool>,
}

/// Tries the migration of the report in a scratch schema, which is dropped at the end, also when `stop` asks for it.
/// `warn` is told of scratch schemas that earlier runs left behind.
///
/// It needs CREATE on the database, and copies up to 1,000 rows into the scratch schema for the time that it lasts.
/// Returns [`Error::Invalid`] for a report without a migration, and the errors of connections and of the scratch schema
/// as [`crate::ops::selftest::run`] does. What goes wrong in a step is its result.
pub async fn rehearse(
    settings: &Settings,
    report: &Report,
    warn: &mut dyn FnMut(&str),
    stop: &Stop,
) -> Result<Vec<Step>> {
    let Some((copy, columns)) = &report.plan else {
        return Err(Error::Invalid {
            field: "table",
            reason: "cannot be adopted, so there is nothing to rehearse".to_owned(),
        });
    };
    let mut admin = Connection::open(settings).await?;
    for warning in scratch::leftovers(&admin).await? {
        warn(&warning);
    }
    let name = scratch::random_name("adopt");
    let made = schema::create(&mut admin, &name).await?;
    let theirs = Table {
        schema: name.clone(),
        // Both are in one schema here, and ours take these names.
        name: match copy.table.name.as_str() {
            "idempotency"
            | "idempotency_event"
            | "idempotency_job"
            | "idempotency_migration"
            | "idempotency_read"
            | sql::FILLED => "theirs".to_owned(),
            name => name.to_owned(),
        },
        ..copy.table.clone()
    };
    let trial = Copy {
        schema: name,
        table: theirs,
        ..copy.clone()
    };
    let steps = async {
        let mut conn = Connection::open(settings).await?;
        sql::copy_definition(&conn, &copy.table, &trial.table).await?;
        let rows = sql::sample(&conn, &copy.table, &trial, columns).await?;
        let mut steps = vec![Step {
            name: "sample",
            found: format!("{rows} rows of {}", copy.table.quoted()),
            ok: Some(true),
        }];
        let tried = steps_of(settings, &mut conn, &trial, rows, &mut steps).await;
        if let Err((name, error)) = tried {
            steps.push(Step {
                name,
                found: told(&error),
                ok: Some(false),
            });
        }
        conn.close().await;
        Ok(steps)
    };
    let result = tokio::select! {
        steps = steps => steps,
        () = stop.soft() => Err(Error::Interrupted),
    };
    scratch::settle(result, admin, settings, &made).await
}

/// What an error says, without what stands in a row.
fn told(error: &Error) -> String {
    match error.sqlstate() {
        Some(code) if super::rows::class_of_values(error) => {
            format!("a value in a row cannot be converted (SQLSTATE {code})")
        }
        _ => error.to_string(),
    }
}

/// The step that an error ended.
type Ended = (&'static str, Error);

async fn steps_of(
    settings: &Settings,
    conn: &mut Connection,
    trial: &Copy,
    rows: u64,
    steps: &mut Vec<Step>,
) -> Result<(), Ended> {
    let at = |name| move |error| (name, error);
    let name = "view";
    steps.push(view(conn, trial).await.map_err(at(name))?);
    let name = "script";
    for statement in trial.statements() {
        sql::step(conn, &statement).await.map_err(at(name))?;
    }
    steps.push(Step {
        name,
        found: "every statement ran".to_owned(),
        ok: Some(true),
    });
    let name = "migrate";
    let schema = Some(trial.schema.as_str());
    migrate::run(settings, schema, &migrate::Options::default())
        .await
        .map_err(at(name))?;
    let keys = Idempotency::open(conn, schema, Options::default())
        .await
        .map_err(at(name))?;
    steps.push(Step {
        name,
        found: "the table is current".to_owned(),
        ok: Some(true),
    });
    steps.push(old_done(conn, &keys, trial).await.map_err(at("old key, done"))?);
    steps.push(
        unfinished(conn, &keys, trial)
            .await
            .map_err(at("old key, unfinished"))?,
    );
    steps.push(new_key(conn, &keys).await.map_err(at("new key"))?);
    let name = "purge";
    let mut request = purge::Request::new(Retention::default(), Actor::default());
    request.dry_run = true;
    let report = purge::run(conn, keys.store(), &request, &mut |_| {}, &Stop::never())
        .await
        .map_err(|failure| (name, failure.into()))?;
    steps.push(Step {
        name,
        found: format!(
            "of {rows} rows {} would be deleted now with a retention of 24 hours",
            report.deleted
        ),
        ok: Some(true),
    });
    Ok(())
}

/// That the view can be read, and what PostgreSQL says to a claim through it.
async fn view(conn: &mut Connection, trial: &Copy) -> Result<Step> {
    sql::step(conn, &trial.view()).await?;
    let read = sql::step(conn, &sql::read_view(&trial.schema)).await;
    let claim = sql::step(conn, &sql::claim_view(&trial.schema)).await;
    let said = match claim {
        Ok(()) => "a claim through it passed, which is not to be".to_owned(),
        Err(error) => format!("a claim through it is refused: {error}"),
    };
    // The script renames what the view reads; it goes with the schema.
    Ok(Step {
        name: "view",
        found: format!(
            "{}; {said}",
            if read.is_ok() {
                "it can be read"
            } else {
                "it cannot be read"
            }
        ),
        ok: Some(read.is_ok()),
    })
}

/// A key that was finished before is inspected, and asked for again by its own fingerprint.
async fn old_done(conn: &Connection, keys: &Idempotency, trial: &Copy) -> Result<Step> {
    let name = "old key, done";
    let Some((id, fingerprint)) = sql::one_of(conn, &trial.schema, "done").await? else {
        return Ok(nothing(name));
    };
    let seen = inspect::run(conn, keys.store(), &id, false).await?.is_some();
    let request = Request::new(id, Fingerprint::from_hex(fingerprint)?);
    let answer = keys.reserve(conn, &request).await?;
    Ok(Step {
        name,
        found: match &answer {
            Reservation::Replay(replay) => format!(
                "replayed: status {}, {} bytes",
                replay.response.status_code(),
                replay.response.body().len()
            ),
            other => format!("not replayed: {other:?}"),
        },
        ok: Some(seen && matches!(answer, Reservation::Replay(_))),
    })
}

/// A key that was not is never given to somebody new unasked.
async fn unfinished(conn: &Connection, keys: &Idempotency, trial: &Copy) -> Result<Step> {
    let name = "old key, unfinished";
    let Some((id, fingerprint)) = sql::one_of(conn, &trial.schema, "in_progress").await? else {
        return Ok(nothing(name));
    };
    let request = Request::new(id, Fingerprint::from_hex(fingerprint)?).on_expired(OnExpired::Return);
    let answer = keys.reserve(conn, &request).await?;
    let (found, ok) = match answer {
        Reservation::InProgress(_) => ("in progress: a repeat gets 409", true),
        Reservation::Expired(_) => ("expired: ask the provider before it is repeated", true),
        Reservation::Acquired(lease) => {
            lease.forget();
            ("it was taken for a new key", false)
        }
        Reservation::Replay(_) | Reservation::Mismatch(_) => ("it was taken for another request", false),
    };
    Ok(Step {
        name,
        found: found.to_owned(),
        ok: Some(ok),
    })
}

async fn new_key(conn: &Connection, keys: &Idempotency) -> Result<Step> {
    let name = "new key";
    let id = KeyId::new("idemctl-rehearsal", "new")?;
    let request = Request::new(id, Fingerprint::of_bytes(b"new")).lease(Duration::from_secs(30))?;
    let stored = Response::new(201, "{\"rehearsal\": 1}\n")?;
    let Reservation::Acquired(mut lease) = keys.reserve(conn, &request).await? else {
        return Ok(Step {
            name,
            found: "it could not be claimed".to_owned(),
            ok: Some(false),
        });
    };
    lease.complete(conn, &stored).await?;
    let answer = keys.reserve(conn, &request).await?;
    let same = matches!(&answer, Reservation::Replay(replay) if replay.response == stored);
    Ok(Step {
        name,
        found: if same {
            "claimed, completed, and replayed byte for byte".to_owned()
        } else {
            format!("not replayed: {answer:?}")
        },
        ok: Some(same),
    })
}

fn nothing(name: &'static str) -> Step {
    Step {
        name,
        found: "there is none in the sample".to_owned(),
        ok: None,
    }
}
