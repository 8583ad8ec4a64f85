//! The tables: migrated, of the right shape, indexed, and as nobody else changed them.

use super::{Check, Fix, what};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::ops::migrate::{self, CitusStatus, MigrationState, Status};
use crate::store::doctor::{self, TableFacts};
use crate::store::shape;

/// Migrations, columns and indexes; gives the schema of the tables, where there are any.
pub(super) async fn checks(
    conn: &Connection,
    schema: Option<&str>,
    checks: &mut Vec<Check>,
) -> Option<String> {
    let shape = shape::look(conn, schema).await;
    let status = migrate::status(conn, schema).await;
    let privileges = match &shape {
        Ok(shape) => doctor::privileges(conn, &shape.schema, &[], &[])
            .await
            .ok()
            .flatten(),
        Err(_) => None,
    };
    // Services have no business with the record of migrations.
    let hidden = privileges.is_some_and(|has| !has.usage || has.migrations_read == Some(false));
    checks.push(if hidden {
        migrated().unknown("this role may not read idempotency_migration")
    } else {
        migrations(status.as_ref())
    });
    let check = Check::of(
        "columns",
        "every column with its type, and a unique key on (client_id, key)",
    );
    let name = match &shape {
        Err(error) => {
            checks.push(check.unknown(error.to_string()));
            None
        }
        Ok(shape) if !shape.exists() => {
            checks.push(check.unknown("there is no table"));
            None
        }
        Ok(shape) => {
            let problem = match shape.problem(true) {
                Some(problem) => Some((problem, "idemctl migrate")),
                None => shape
                    .require_claimable()
                    .err()
                    .map(|error| (what(&error), "see what was found")),
            };
            checks.push(match problem {
                None => check.ok(format!(
                    "{} columns in schema {}",
                    shape.columns.len(),
                    shape.schema
                )),
                Some((problem, mend)) => check.error(problem, mend),
            });
            Some(shape.schema.clone())
        }
    };
    checks.push(match (&status, &name) {
        (Ok(status), Some(_)) => indexes(status),
        (Err(error), _) => indexes_of().unknown(what(error)),
        (_, None) => indexes_of().unknown("there is no table"),
    });
    if let (
        Ok(Status {
            citus: Some(found), ..
        }),
        Some(_),
    ) = (&status, &name)
    {
        checks.push(citus(found));
    }
    name
}

fn migrated() -> Check {
    Check::of("schema", "every migration applied unchanged")
}

fn migrations(status: Result<&Status, &Error>) -> Check {
    let check = migrated();
    let status = match status {
        Ok(status) => status,
        Err(error @ Error::Migration { .. }) => return check.error(what(error), "idemctl migrate status"),
        Err(error) => return check.unknown(error.to_string()),
    };
    if let Some(problem) = &status.problem {
        // What stands in the way of a migration, missing rights too, counts only where one is needed.
        return check.error(problem.clone(), "idemctl migrate status");
    }
    let pending: Vec<String> = status
        .migrations
        .iter()
        .filter(|migration| migration.state != MigrationState::Applied)
        .map(|migration| migration.version.to_string())
        .collect();
    if pending.is_empty() {
        return check.ok(format!("schema {} is up to date", status.schema));
    }
    check.error(
        format!(
            "schema {}: migrations {} are not applied",
            status.schema,
            pending.join(", ")
        ),
        "idemctl migrate",
    )
}

fn indexes_of() -> Check {
    Check::of("indexes", "valid indexes by age and by lease end")
}

fn indexes(status: &Status) -> Check {
    let check = indexes_of();
    let lost: Vec<&str> = status
        .indexes
        .iter()
        .filter(|index| !index.valid)
        .map(|index| index.name.as_str())
        .collect();
    if lost.is_empty() {
        return check.ok("valid");
    }
    let check = check.error(
        format!(
            "missing or INVALID: {}; the purge or the search for stuck keys reads the whole table",
            lost.join(", ")
        ),
        "idemctl migrate",
    );
    // A pending migration makes them, and that is not for a doctor to begin.
    let applied = status
        .migrations
        .iter()
        .all(|migration| migration.state == MigrationState::Applied);
    if applied && status.problem.is_none() {
        check.fixable(Fix::Indexes)
    } else {
        check
    }
}

/// Only where there is Citus.
fn citus(found: &CitusStatus) -> Check {
    let check = Check::of(
        "citus",
        "one client's keys on one node, and each change committed together with its event",
    );
    let CitusStatus {
        version,
        workers,
        shards,
        distributed_by,
        events_joined,
    } = found;
    match distributed_by.as_deref() {
        _ if !events_joined => check.error(
            format!("Citus {version}: a change and its event are committed apart, and a crash may leave one of them"),
            "idemctl migrate",
        ),
        Some("client_id") => check.ok(format!(
            "Citus {version}: distributed by client_id over {shards} shards, {workers} workers"
        )),
        Some(column) => check.warning(
            format!("Citus {version}: distributed by {column}: what concerns one client asks every node"),
            "idemctl migrate --citus (it says how)",
        ),
        None if *shards == 0 => check.ok(format!(
            "Citus {version}, which does not hold the table: all of it is on this server"
        )),
        None => check.warning(
            format!("Citus {version} holds the table, but not distributed by a column"),
            "idemctl migrate --citus (it says how)",
        ),
    }
}

/// What somebody did to the table.
pub(super) fn table(facts: Result<&Option<TableFacts>, &Error>) -> Vec<Check> {
    let invalid = Check::of("invalid_indexes", "no index that a failed build left behind");
    let logged = Check::of("logged", "a table that outlives a crash");
    let security = Check::of("row_security", "no row is hidden from this role");
    let triggers = Check::of("triggers", "no trigger or rule on the table");
    let facts = match facts {
        Ok(Some(facts)) => facts,
        other => {
            let why = other
                .err()
                .map_or("there is no table".to_owned(), ToString::to_string);
            return [invalid, logged, security, triggers]
                .map(|check| check.unknown(why.clone()))
                .to_vec();
        }
    };
    vec![
        match facts.invalid.first() {
            None => invalid.ok("none"),
            Some(first) => invalid.warning(
                format!(
                    "{}: not used by any question, and kept up to date by each write",
                    facts.invalid.join(", ")
                ),
                format!(
                    "reindex index concurrently {first} (or drop it; `idemctl migrate` replaces its own)"
                ),
            ),
        },
        match facts.unlogged.first() {
            None => logged.ok("logged"),
            Some(first) => logged.error(
                format!(
                    "{} is UNLOGGED: empty after a crash, and every key charges again",
                    facts.unlogged.join(", ")
                ),
                format!("alter table {first} set logged"),
            ),
        },
        if facts.row_security {
            security.error(
                "row-level security is active for this role: a key that it hides is claimed again",
                "a policy that shows this role every row, or alter table ... disable row level security",
            )
        } else {
            security.ok("not active")
        },
        if facts.triggers.is_empty() {
            triggers.ok("none")
        } else {
            triggers.warning(
                format!(
                    "{}: runs within every claim, and can swallow it",
                    facts.triggers.join(", ")
                ),
                "drop trigger ... on the table, unless you know what it does",
            )
        },
    ]
}
