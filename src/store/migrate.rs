//! The migrations: their files, what each of them sends, and the record of what was applied.
//!
//! A file is never changed after it was released: its SHA-256 stands in every database that it was applied to.

mod catalogue;
mod index;
mod look;
mod spread;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Sql, Statement, Tables};

pub(crate) use catalogue::{Index, Node, builders, indexes, nodes, unsettled};
pub(crate) use index::{Action, Wanted, plan_index, plan_index_of_new, serving};
pub(crate) use look::{Applied, Place, Relation, applied, blockers, place, relations};
pub(crate) use spread::{distribute_keys, has_rows, join_events};

/// A file of `migrations/`.
#[derive(Debug)]
pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) file: &'static str,
    pub(crate) sql: &'static str,
    pub(crate) kind: Kind,
}

/// How a migration is run.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Its statements and the row that records it, in one transaction.
    Transaction,
    /// An index, built outside any transaction while readers and writers go on.
    Index(Wanted),
}

macro_rules! migration {
    ($version:literal, $file:literal, $kind:expr) => {
        Migration {
            version: $version,
            file: $file,
            sql: include_str!(concat!("../../migrations/", $file)),
            kind: $kind,
        }
    };
}

/// Every migration in order; versions count up from 1 without gaps.
pub(crate) static MIGRATIONS: &[Migration] = &[
    migration!(1, "0001_migrations.sql", Kind::Transaction),
    migration!(2, "0002_keys.sql", Kind::Transaction),
    migration!(3, "0003_events.sql", Kind::Transaction),
    migration!(4, "0004_created_at_index.sql", Kind::Index(index::CREATED_AT)),
    migration!(5, "0005_expired_index.sql", Kind::Index(index::EXPIRED)),
    migration!(6, "0006_jobs.sql", Kind::Transaction),
];

impl Migration {
    /// The file's name without its number and ending.
    pub(crate) fn name(&self) -> &'static str {
        let stem = self.file.strip_suffix(".sql").unwrap_or(self.file);
        stem.split_once('_').map_or(stem, |(_, name)| name)
    }

    /// SHA-256 of the file as it stands in the source, in hex.
    pub(crate) fn sha256(&self) -> String {
        crate::hex::sha256(self.sql.as_bytes())
    }

    /// The file's statements, without the comments between them and without the closing semicolon; the names of
    /// tables are not filled in yet.
    pub(crate) fn statements(&self) -> Vec<String> {
        split(self.sql)
    }
}

/// Splits a file of ours: a statement ends with a semicolon at the end of a line outside `$$`.
fn split(sql: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    for line in sql.lines() {
        if current.is_empty() && (line.trim().is_empty() || line.starts_with("--")) {
            continue;
        }
        if line.matches("$$").count() % 2 == 1 {
            quoted = !quoted;
        }
        current.push_str(line);
        if !quoted && line.ends_with(';') {
            current.pop();
            statements.push(std::mem::take(&mut current));
        } else {
            current.push('\n');
        }
    }
    debug_assert!(current.trim().is_empty(), "the last statement has no semicolon");
    statements
}

const RECORD: Sql = Sql {
    name: "migrate_record",
    text: "-- idemctl:migrate_record
insert into {migrations} (version, name, sha256, app_version)
values ($1 /* version */, $2 /* name */, $3 /* sha256 */, $4 /* app_version */)",
    types: &[Type::INT4, Type::TEXT, Type::TEXT, Type::TEXT],
};

const TRY_LOCK: Sql = Sql {
    name: "migrate_try_lock",
    text: "-- idemctl:migrate_try_lock
select pg_try_advisory_xact_lock($1 /* lock */) as locked",
    types: &[Type::INT8],
};

/// The advisory lock that migrations of one database hold: `idemctl` in ASCII.
pub(crate) const LOCK: i64 = 0x0069_6465_6d63_746c;

/// The statements of this folder that can be explained.
pub(crate) const STATEMENTS: &[Sql] = &[RECORD, TRY_LOCK];

/// The statements of the files beside this one.
pub(crate) use catalogue::STATEMENTS as CATALOGUE_STATEMENTS;
pub(crate) use look::STATEMENTS as LOOK_STATEMENTS;
pub(crate) use spread::STATEMENTS as SPREAD_STATEMENTS;

/// The version of this program, for the record.
pub(crate) const APP_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes down that a migration was applied: version, name, SHA-256, version of the program.
pub(crate) fn record(tables: &Tables) -> Statement {
    tables.statement(&RECORD)
}

/// Asks for the lock without waiting: a waiter would hold a snapshot, and `create index concurrently` waits for
/// every snapshot that is older than its own (PostgreSQL manual, CREATE INDEX, "Building Indexes Concurrently").
pub(crate) fn try_lock() -> Statement {
    Tables::new("").statement(&TRY_LOCK)
}

/// The same as [`record`] for a person to run by hand.
pub(crate) fn record_by_hand(tables: &Tables, migration: &Migration) -> String {
    tables.fill(&format!(
        "insert into {{migrations}} (version, name, sha256, app_version)\nvalues ({}, '{}', '{}', '{}');\n",
        migration.version,
        migration.name(),
        migration.sha256(),
        APP_VERSION,
    ))
}

/// A statement of a migration, or one that surrounds it.
pub(crate) fn command(text: &str) -> Statement {
    Statement {
        name: "migrate",
        text: Arc::from(format!("-- idemctl:migrate\n{text}")),
        types: &[],
    }
}

/// How the statement of a migration begins that makes the table of keys.
const CREATE_KEYS: &str = "create table if not exists {keys} (";

/// The statements that make the table of keys in so many partitions instead, by a hash of the client: everything that
/// is said of one key says its client, too, and so goes to one partition.
pub(crate) fn partitioned(statement: &str, partitions: u32) -> Vec<String> {
    if !statement.starts_with(CREATE_KEYS) {
        return vec![statement.to_owned()];
    }
    let parent = format!("{statement} partition by hash (client_id)");
    let leaf = |n| {
        format!(
            "create table if not exists {{schema}}.idempotency_p{n:03} partition of {{keys}}\n    for values with \
             (modulus {partitions}, remainder {n})"
        )
    };
    std::iter::once(parent).chain((0..partitions).map(leaf)).collect()
}

pub(crate) fn create_schema(tables: &Tables) -> String {
    tables.fill("create schema if not exists {schema}")
}

/// Bounds each wait for a lock within the transaction.
pub(crate) fn set_lock_timeout(timeout: Duration) -> String {
    format!("set local lock_timeout = {}", timeout.as_millis().max(1))
}

/// Nobody shall end the transaction that only holds the lock because it is idle.
///
/// It also ends the snapshot of the query before it: a query's portal stays open, with its snapshot, until the next
/// statement takes its place, and an index build would wait for that snapshot, and we for the build.
pub(crate) const HOLD: &str = "set local idle_in_transaction_session_timeout = 0";

/// PostgreSQL 17 also has a limit on whole transactions.
pub(crate) const NO_TRANSACTION_TIMEOUT: &str =
    "select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout'";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_file_names_agree() {
        for (position, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(usize::try_from(migration.version), Ok(position + 1));
            assert!(
                migration.file.starts_with(&format!("{:04}_", migration.version)),
                "{}",
                migration.file
            );
        }
    }

    #[test]
    fn one_statement_of_all_makes_the_table_of_keys() {
        let statements = MIGRATIONS.iter().flat_map(Migration::statements);
        let changed: Vec<Vec<String>> = statements
            .map(|statement| partitioned(&statement, 2))
            .filter(|statements| statements.len() > 1)
            .collect();
        assert_eq!(changed.len(), 1);
        assert!(
            changed[0][0].ends_with(") partition by hash (client_id)"),
            "{changed:?}"
        );
        assert!(changed[0][2].ends_with("(modulus 2, remainder 1)"), "{changed:?}");
    }

    #[test]
    fn each_file_is_split_into_whole_statements() {
        let counts: Vec<usize> = MIGRATIONS
            .iter()
            .map(|migration| migration.statements().len())
            .collect();
        assert_eq!(counts, [1, 3, 2, 1, 1, 1]);
        for statement in MIGRATIONS.iter().flat_map(Migration::statements) {
            assert!(!statement.ends_with(';'), "{statement}");
            assert_eq!(statement.matches("$$").count() % 2, 0, "{statement}");
        }
    }
}
