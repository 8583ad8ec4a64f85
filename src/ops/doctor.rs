//! Is everything as it should be? Each check says what was found, what was expected, and how to mend it.
//!
//! It only looks; [`fix`] does the few things that are safe. A check that cannot be made (no connection, no privilege,
//! no table) is [`Severity::Unknown`], never [`Severity::Ok`].

mod config;
pub mod fix;
mod privileges;
mod schema;
mod server;
mod upkeep;

use std::time::Duration;

use serde::Serialize;

use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::ops::ask::Providers;
use crate::ops::purge::Retention;
use crate::store::Store;

pub(super) use server::{clock, pooler};

/// How bad it is. Ordered: the worst is the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// As expected.
    Ok,
    /// Could not be told.
    Unknown,
    /// Works, and should be looked at.
    Warning,
    /// Something does not work, or money is at risk.
    Error,
}

impl Severity {
    /// The word in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What [`fix::run`] can do about a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fix {
    /// Build missing and invalid indexes, while readers and writers go on.
    Indexes,
    /// Gather the planner's statistics.
    Analyze,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, which stays the same.
    pub name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub found: String,
    /// What was expected.
    pub expected: String,
    /// A command or SQL; words where neither would do. `None` where nothing has to be done.
    pub mend: Option<String>,
    /// What `doctor --fix` does about it, if anything.
    pub fix: Option<Fix>,
}

impl Check {
    /// A check before its result.
    pub fn of(name: &'static str, expected: impl Into<String>) -> Self {
        Self {
            name,
            severity: Severity::Ok,
            found: String::new(),
            expected: expected.into(),
            mend: None,
            fix: None,
        }
    }

    /// As expected.
    #[must_use]
    pub fn ok(self, found: impl Into<String>) -> Self {
        self.is(Severity::Ok, found, None)
    }

    /// Could not be told.
    #[must_use]
    pub fn unknown(self, found: impl Into<String>) -> Self {
        self.is(Severity::Unknown, found, None)
    }

    /// To be looked at.
    #[must_use]
    pub fn warning(self, found: impl Into<String>, mend: impl Into<String>) -> Self {
        self.is(Severity::Warning, found, Some(mend.into()))
    }

    /// Not as it must be.
    #[must_use]
    pub fn error(self, found: impl Into<String>, mend: impl Into<String>) -> Self {
        self.is(Severity::Error, found, Some(mend.into()))
    }

    fn is(self, severity: Severity, found: impl Into<String>, mend: Option<String>) -> Self {
        Self {
            severity,
            found: found.into(),
            mend,
            ..self
        }
    }

    fn fixable(self, fix: Fix) -> Self {
        Self {
            fix: Some(fix),
            ..self
        }
    }

    /// The answer of a question, or why there is none: an error of the database is a finding, not the end.
    fn or_unknown(self, result: Result<Self>) -> Self {
        result.unwrap_or_else(|error| {
            let found = match error.sqlstate() {
                Some("42501") => format!("this database role may not see it: {error}"),
                _ => error.to_string(),
            };
            self.unknown(found)
        })
    }
}

/// A purpose that a database role may be meant for: which privileges it has to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Services.
    App,
    /// People who look.
    Viewer,
    /// People who release, reconcile, resolve and purge.
    Operator,
    /// The daemon.
    Janitor,
    /// Whoever migrates.
    Owner,
}

/// What to check against.
#[derive(Debug)]
pub struct Request<'a> {
    /// How to connect.
    pub settings: &'a Settings,
    /// The schema of the tables; `None` as everywhere.
    pub schema: Option<&'a str>,
    /// The services' lease.
    pub lease: Duration,
    /// What the purge keeps.
    pub retention: Retention,
    /// The configured providers.
    pub providers: &'a Providers,
    /// What the role is for; `None`: a privilege that is missing as a whole is no finding.
    pub purpose: Option<Purpose>,
}

/// Makes every check, in an order in which later ones rest on earlier ones. Connects twice where a pooler may stand
/// between.
///
/// What goes wrong in a check is its result. Returns the error only where a check could not even be begun.
pub async fn run(request: &Request<'_>) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let connection = Check::of("connection", format!("a connection to {}", request.settings));
    let mut conn = match Connection::open(request.settings).await {
        Ok(conn) => conn,
        Err(error) => {
            checks.push(connection.error(error.to_string(), "idemctl config"));
            checks.extend(NEED_CONNECTION.iter().map(|name| {
                Check::of(name, "a connection first").unknown("not looked at: there is no connection")
            }));
            checks.extend(config::checks(request));
            return Ok(checks);
        }
    };
    let facts = conn.facts();
    checks.push(connection.ok(format!(
        "{} as {} on {}, PostgreSQL {}",
        facts.database, facts.user, facts.address, facts.server_version
    )));
    checks.extend(server::way(request.settings, &mut conn).await);
    if conn.is_closed() {
        conn = Connection::open(request.settings).await?;
    }
    checks.extend(server::server(&conn, request.schema).await);
    let schema = schema::checks(&conn, request.schema, &mut checks).await;
    let facts = match &schema {
        Some(schema) => crate::store::doctor::table(&conn, schema).await,
        None => Ok(None),
    };
    checks.extend(schema::table(facts.as_ref()));
    checks.extend(privileges::checks(&conn, schema.as_deref(), request.purpose).await);
    let store = Store::open(&conn, request.schema).await;
    let remembered = config::shortest_memory(request.providers);
    checks.extend(upkeep::checks(&conn, store, facts.as_ref(), request, remembered).await);
    checks.extend(config::checks(request));
    if conn.is_closed() {
        // What was not answered any more is unknown above; that must not look like a server in good health.
        checks[0] = Check::of("connection", format!("a connection to {}", request.settings)).error(
            "it broke while the checks were made",
            "look again; the server's log says why it ended",
        );
    }
    conn.close().await;
    Ok(checks)
}

/// Checks that need a connection, for when there is none.
const NEED_CONNECTION: &[&str] = &[
    "tls",
    "pooler",
    "server_version",
    "read_write",
    "durability",
    "encoding",
    "clock",
    "search_path",
    "schema",
    "columns",
    "indexes",
    "invalid_indexes",
    "logged",
    "row_security",
    "triggers",
    "privileges.inspect",
    "privileges.reserve",
    "privileges.release",
    "privileges.purge",
    "privileges.events",
    "privileges.migrate",
    "autovacuum",
    "dead_rows",
    "statistics",
    "oldest_transaction",
    "expired",
    "backlog",
    "janitor",
];

/// A length of time in its largest units, for people.
fn span(seconds: f64) -> String {
    let rounded = if seconds < 10.0 {
        (seconds * 1000.0).round() / 1000.0
    } else {
        seconds.round()
    };
    Duration::try_from_secs_f64(rounded.max(0.0))
        .map_or_else(|_| "for ever".to_owned(), crate::duration::format)
}

/// The text of an error about the schema without its advice, which stands elsewhere.
fn what(error: &Error) -> String {
    match error {
        Error::Schema { what } | Error::Migration { what } => what.clone(),
        other => other.to_string(),
    }
}
