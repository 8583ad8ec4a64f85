//! What the role may do, per command.

use super::{Check, Purpose};
use crate::connect::Connection;
use crate::store::doctor::{self, Privileges};
use crate::store::roles::{END_COLUMNS, shown_columns};

/// A command with the privileges that it needs.
struct Command {
    name: &'static str,
    /// Which commands need the same.
    what: &'static str,
    /// A role that has none of these is simply not meant for it.
    telling: Vec<(&'static str, bool)>,
    /// What it needs besides.
    besides: Vec<(&'static str, bool)>,
    /// For whom it must work.
    purposes: &'static [Purpose],
}

/// One check per group of commands.
pub(super) async fn checks(conn: &Connection, schema: Option<&str>, purpose: Option<Purpose>) -> Vec<Check> {
    let shown = shown_columns();
    let privileges = match schema {
        Some(schema) => doctor::privileges(conn, schema, &shown, &END_COLUMNS).await,
        None => Ok(None),
    };
    match privileges {
        Ok(Some(privileges)) => commands(&privileges)
            .iter()
            .map(|command| judge(command, &privileges, purpose))
            .collect(),
        other => {
            let why = other
                .err()
                .map_or("there is no table".to_owned(), |error| error.to_string());
            commands(&Privileges::default())
                .iter()
                .map(|command| Check::of(command.name, expected(command)).unknown(why.clone()))
                .collect()
        }
    }
}

fn expected(command: &Command) -> String {
    format!("the privileges of {}", command.what)
}

fn commands(p: &Privileges) -> Vec<Command> {
    use Purpose::{App, Janitor, Operator, Owner, Viewer};
    // A table that is not there is a finding of another check.
    let has = |privilege: Option<bool>| privilege != Some(false);
    let keys_read = ("SELECT on idempotency", has(p.keys_read));
    vec![
        Command {
            name: "privileges.inspect",
            what: "inspect, list, history, stats",
            telling: vec![keys_read],
            besides: vec![("SELECT on idempotency_event", has(p.events_read))],
            purposes: &[Viewer, Operator, Janitor, Owner],
        },
        Command {
            name: "privileges.reserve",
            what: "services (reserve, complete)",
            telling: vec![("INSERT on idempotency", has(p.keys_insert))],
            besides: vec![
                keys_read,
                ("SELECT on the bodies", has(p.bodies_read)),
                ("UPDATE on idempotency", has(p.keys_update)),
                ("DELETE on idempotency", has(p.keys_delete)),
            ],
            purposes: &[App, Owner],
        },
        Command {
            name: "privileges.release",
            what: "release, reconcile, resolve",
            telling: vec![("INSERT on idempotency_event", has(p.events_insert))],
            besides: vec![
                keys_read,
                ("UPDATE on the columns that end a key", has(p.keys_end)),
                ("DELETE on idempotency", has(p.keys_delete)),
                ("SELECT on idempotency_event", has(p.events_read)),
            ],
            purposes: &[Operator, Janitor, Owner],
        },
        Command {
            name: "privileges.purge",
            what: "purge, janitor",
            telling: vec![("SELECT, INSERT and UPDATE on idempotency_job", has(p.jobs_write))],
            besides: vec![
                keys_read,
                ("DELETE on idempotency", has(p.keys_delete)),
                ("INSERT on idempotency_event", has(p.events_insert)),
                ("SELECT on idempotency_event", has(p.events_read)),
                ("SELECT on idempotency_job", has(p.jobs_read)),
            ],
            purposes: &[Operator, Janitor, Owner],
        },
        Command {
            name: "privileges.events",
            what: "the purge of old events",
            telling: vec![("DELETE on idempotency_event", has(p.events_delete))],
            besides: vec![],
            purposes: &[Janitor, Owner],
        },
        Command {
            name: "privileges.migrate",
            what: "migrate",
            telling: vec![("ownership of idempotency", has(p.owner))],
            besides: vec![],
            purposes: &[Owner],
        },
    ]
}

const MEND: &str = "idemctl migrate --roles | psql ..., then grant the role of its purpose to this one";

/// All of it, none of it, or the half that surfaces weeks later.
fn judge(command: &Command, privileges: &Privileges, purpose: Option<Purpose>) -> Check {
    let check = Check::of(command.name, expected(command));
    let needed = purpose.is_some_and(|purpose| command.purposes.contains(&purpose));
    if !privileges.usage {
        return if needed || purpose.is_none() && command.name == "privileges.inspect" {
            check.error("this role lacks USAGE on the schema", MEND)
        } else {
            check.ok("not this role's: it lacks USAGE on the schema")
        };
    }
    let all = command.telling.iter().chain(&command.besides);
    let missing: Vec<&str> = all.filter(|(_, has)| !has).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return check.ok("granted");
    }
    let found = format!("missing: {}", missing.join(", "));
    let meant = command.telling.iter().any(|(_, has)| *has);
    match (command.name, purpose) {
        _ if needed => check.error(found, MEND),
        // A service sees no events, and needs none.
        ("privileges.inspect", None) if meant => check.ok(format!("keys, but no history ({found})")),
        ("privileges.inspect", None) => check.error(found, MEND),
        (_, None) if meant => check.warning(format!("half granted; {found}"), MEND),
        _ => check.ok(format!("not this role's ({found})")),
    }
}
