//! Everything that is sent to the database: SQL constants, their binds and the reading of their rows.
//! No other module writes SQL.

#[cfg(feature = "operate")]
pub(crate) mod adopt;
#[cfg(feature = "operate")]
pub(crate) mod approval;
#[cfg(feature = "operate")]
pub(crate) mod bench;
#[cfg(feature = "operate")]
pub(crate) mod bootstrap;
#[cfg(feature = "operate")]
pub(crate) mod citus;
#[cfg(feature = "operate")]
mod demo;
#[cfg(feature = "operate")]
pub(crate) mod doctor;
#[cfg(feature = "operate")]
pub(crate) mod event;
mod executor;
#[cfg(feature = "operate")]
pub(crate) mod expired;
#[cfg(feature = "operate")]
pub(crate) mod gauges;
#[cfg(feature = "operate")]
pub(crate) mod job;
mod key_row;
mod lease;
#[cfg(feature = "operate")]
pub(crate) mod list;
#[cfg(feature = "operate")]
pub(crate) mod migrate;
#[cfg(feature = "operate")]
pub(crate) mod purge;
#[cfg(feature = "operate")]
pub(crate) mod purge_event;
mod reserve;
#[cfg(feature = "operate")]
pub(crate) mod roles;
#[cfg(feature = "operate")]
mod run_event;
#[cfg(feature = "operate")]
pub(crate) mod scratch;
#[cfg(feature = "operate")]
pub(crate) mod selftest;
#[cfg(feature = "operate")]
pub(crate) mod session;
pub(crate) mod shape;
mod sql;
#[cfg(feature = "operate")]
pub(crate) mod stats;
#[cfg(feature = "operate")]
mod stuck;
#[cfg(feature = "operate")]
pub(crate) mod top;

use std::collections::HashMap;

use crate::error::{Error, Result};

#[cfg(feature = "operate")]
pub use event::Event;
pub use executor::{Answer, Cached, Executor, Params, Pooled, Statement};
#[cfg(feature = "operate")]
pub use job::JobRow;
pub(crate) use lease::Mine;
pub(crate) use reserve::{NewClaim, Seen, TakenOver, unknown_status};
pub use shape::ResponseType;
#[cfg(feature = "operate")]
pub(crate) use sql::quote_ident;
pub(crate) use sql::{Sql, Tables};

/// Every statement that the store sends to the tables. A test prepares and explains each on a plain and on a
/// partitioned table, so a constant that is not listed here is found there.
static STATEMENTS: &[&[Sql]] = &[
    shape::STATEMENTS,
    key_row::STATEMENTS,
    reserve::STATEMENTS,
    lease::STATEMENTS,
    #[cfg(feature = "operate")]
    list::STATEMENTS,
    #[cfg(feature = "operate")]
    stuck::STATEMENTS,
    #[cfg(feature = "operate")]
    event::STATEMENTS,
    #[cfg(feature = "operate")]
    purge::STATEMENTS,
    #[cfg(feature = "operate")]
    purge_event::STATEMENTS,
    #[cfg(feature = "operate")]
    expired::STATEMENTS,
    #[cfg(feature = "operate")]
    gauges::STATEMENTS,
    #[cfg(feature = "operate")]
    run_event::STATEMENTS,
    #[cfg(feature = "operate")]
    approval::STATEMENTS,
    #[cfg(feature = "operate")]
    job::STATEMENTS,
    #[cfg(feature = "operate")]
    session::STATEMENTS,
    #[cfg(feature = "operate")]
    migrate::STATEMENTS,
    #[cfg(feature = "operate")]
    migrate::CATALOGUE_STATEMENTS,
    #[cfg(feature = "operate")]
    migrate::LOOK_STATEMENTS,
    #[cfg(feature = "operate")]
    migrate::SPREAD_STATEMENTS,
    #[cfg(feature = "operate")]
    bench::STATEMENTS,
    #[cfg(feature = "operate")]
    demo::STATEMENTS,
    #[cfg(feature = "operate")]
    stats::STATEMENTS,
    #[cfg(feature = "operate")]
    stats::STORAGE_STATEMENTS,
    #[cfg(feature = "operate")]
    citus::STATEMENTS,
    #[cfg(feature = "operate")]
    doctor::STATEMENTS,
    #[cfg(feature = "operate")]
    top::STATEMENTS,
    #[cfg(feature = "operate")]
    adopt::STATEMENTS,
];

/// The tables of one schema: statement texts ready to send, and what is known of the table's shape.
#[derive(Debug)]
pub struct Store {
    tables: Tables,
    shape: shape::Shape,
    statements: HashMap<&'static str, Statement>,
}

impl Store {
    /// Finds the table and checks that its shape is the one this version needs.
    ///
    /// `schema`: where to look; `None` takes the first schema of the search path that has the table. Returns
    /// [`Error::Schema`] when there is none or it lacks something, and [`Error::Settings`] for a table that Citus
    /// distributes in a session whose `DateStyle` is not ISO.
    pub async fn open(executor: &impl Executor, schema: Option<&str>) -> Result<Self> {
        let shape = shape::look(executor, schema).await?;
        shape.require_current()?;
        shape.require_plain_dates()?;
        Ok(Self::with_shape(shape))
    }

    fn with_shape(shape: shape::Shape) -> Self {
        let tables = Tables::new(&shape.schema).with_bodies(shape.bodies);
        let statements = STATEMENTS
            .iter()
            .flat_map(|group| group.iter())
            .map(|sql| (sql.name, tables.statement(sql)))
            .collect();
        Self {
            tables,
            shape,
            statements,
        }
    }

    /// Refuses a table in which claims would go wrong although it can be read.
    pub(crate) fn require_claimable(&self) -> Result<()> {
        self.shape.require_claimable()
    }

    /// Whether the database has Citus, which may or may not hold the tables.
    #[cfg(feature = "operate")]
    pub(crate) fn is_citus(&self) -> bool {
        self.shape.citus
    }

    /// The schema of the tables.
    pub fn schema(&self) -> &str {
        &self.tables.schema
    }

    /// Whether the connection's role may read stored bodies, as of [`Store::open`]. Where it may not, records come
    /// without the size and the hash of the body.
    pub fn reads_bodies(&self) -> bool {
        self.shape.bodies
    }

    /// The name and text of every statement that is sent to the tables.
    #[doc(hidden)]
    pub fn statements(&self) -> impl Iterator<Item = &Statement> {
        self.statements.values()
    }

    /// Text that the database's encoding can hold: ASCII only, unless it is UTF-8.
    pub(crate) fn encodable(&self, text: &str) -> String {
        if self.shape.utf8 {
            return text.to_owned();
        }
        text.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
    }

    fn statement(&self, sql: &Sql) -> &Statement {
        // Unwrap safety: `with_shape` put in every entry of STATEMENTS, and a test compares that list with
        // the constants in this folder.
        #[expect(clippy::expect_used, reason = "the list is fixed at build time and tested")]
        self.statements
            .get(sql.name)
            .expect("every statement is registered")
    }
}

/// 0 or 1 rows touched, as a truth value; more is a broken primary key.
fn one_row(affected: u64, statement: &Statement) -> Result<bool> {
    match affected {
        0 => Ok(false),
        1 => Ok(true),
        n => Err(Error::Inconsistent {
            what: format!(
                "{} touched {n} rows where one was meant; is the primary key there?",
                statement.name
            ),
        }),
    }
}
