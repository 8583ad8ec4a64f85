//! Statements of the benchmark: its scratch schema, the floors, and other people's ways to claim a key.

mod fill;
mod floor;
mod rival;
mod surroundings;

use super::Sql;

pub(crate) use fill::{analyze, fill_done, fill_expired};
pub(crate) use floor::Floors;
pub(crate) use rival::{Rivals, Stored};
pub(crate) use surroundings::{Activity, activity, wal};

/// What is asked of the server itself, on any kind of database.
pub(crate) const STATEMENTS: &[Sql] = surroundings::STATEMENTS;
