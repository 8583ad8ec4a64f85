//! Statements of the benchmark: its scratch schema, the floors, and other people's ways to claim a key.

mod floor;
mod rival;
mod scratch;
mod surroundings;

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::{Sql, Statement, Tables};

pub(crate) use floor::Floors;
pub(crate) use rival::{Rivals, Stored};
pub(crate) use scratch::{Scratch, analyze, create, drop_schema, fill_done, fill_expired, leftovers};
pub(crate) use surroundings::{Activity, activity, wal};

/// What is asked of the server itself, on any kind of database.
pub(crate) const STATEMENTS: &[Sql] = surroundings::STATEMENTS;

/// A statement for the tables of a scratch schema alone. It is none of the protocol's, so the rules that keep those
/// portable do not hold for it: it shows what others do.
struct Scrap {
    name: &'static str,
    text: &'static str,
    types: &'static [Type],
}

impl Scrap {
    fn of(&self, tables: &Tables) -> Statement {
        Statement {
            name: self.name,
            text: Arc::from(tables.fill(self.text)),
            types: self.types,
        }
    }
}
