//! What [`super::run`] answers.

use crate::record::State;
use crate::store::stats::{OldestRow, StorageRow};
use crate::time::Timestamp;

/// A number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Count {
    /// How many.
    pub count: u64,
    /// Whether it was scaled up from a sample.
    pub estimated: bool,
    /// Whether counting ended at a limit: there are at least so many.
    pub at_least: bool,
}

/// How the rows were counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Method {
    /// All of them were read.
    Counted,
    /// So many rows on so many percent of the pages were read.
    Sampled {
        /// Rows in the sample.
        rows: u64,
        /// Share of the pages, above 0 and up to 100.
        percent: f64,
    },
    /// None was read: see [`Report::unknown`].
    NotCounted,
}

/// Rows of one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateCount {
    /// The state; `None` for a status that we do not know.
    pub state: Option<State>,
    /// How many.
    pub rows: Count,
    /// By age, one more than [`AGE_ENDS`](super::AGE_ENDS); empty where they were not read.
    pub ages: Vec<Count>,
}

/// Rows of one client or provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameCount {
    /// Its name; `None` for rows that name no provider.
    pub name: Option<String>,
    /// How many.
    pub rows: Count,
    /// Of these expired (stuck).
    pub expired: Count,
    /// Of these acquired more than once.
    pub taken_over: Count,
}

/// The clients or providers with most rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// Most rows first.
    pub top: Vec<NameCount>,
    /// How many there are altogether; with a sample at least so many.
    pub known: u64,
}

/// The expired key whose lease ended first.
#[derive(Debug, Clone, PartialEq)]
pub struct OldestExpired {
    /// Who sent it.
    pub client_id: String,
    /// The client's key.
    pub key: String,
    /// Its provider, where the row names one.
    pub provider: Option<String>,
    /// When it was first claimed.
    pub created_at: Timestamp,
    /// When its lease ended.
    pub locked_until: Timestamp,
    /// Seconds since then; `None` for an infinite time.
    pub over_seconds: Option<f64>,
}

/// Room and housekeeping of one table, summed over its partitions or, on Citus, its shards. Sizes are in bytes; times are the earliest of
/// any partition, so that the one which has waited longest shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// How many tables hold the rows: 1, or the number of partitions or shards.
    pub tables: u64,
    /// Rows, with the maps beside them.
    pub table_bytes: u64,
    /// Indexes.
    pub index_bytes: u64,
    /// Values that are kept apart because they are long.
    pub toast_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
    /// Versions of rows that a vacuum will free, as the server estimates them.
    pub dead_rows: u64,
    /// When somebody last vacuumed.
    pub last_vacuum: Option<Timestamp>,
    /// When the server itself last did.
    pub last_autovacuum: Option<Timestamp>,
    /// When somebody last gathered the planner's statistics.
    pub last_analyze: Option<Timestamp>,
    /// When the server itself last did.
    pub last_autoanalyze: Option<Timestamp>,
    /// Partitions (shards) that were never vacuumed by anybody.
    pub never_vacuumed: u64,
    /// Partitions (shards) whose statistics were never gathered.
    pub never_analyzed: u64,
}

/// What the purge has before it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backlog {
    /// Rows whose retention is over; `None` where that could not be told.
    pub rows: Option<Count>,
    /// Rows a second that a purge deletes; `None` where no purge has left a trace of its pace.
    pub rate: Option<f64>,
    /// Whether the rate was given with the request.
    pub rate_given: bool,
}

impl Backlog {
    /// How long a purge takes for it, in seconds; `None` where rows or rate are unknown.
    pub fn seconds(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let rows = self.rows?.count as f64;
        if rows == 0.0 {
            return Some(0.0);
        }
        self.rate.filter(|rate| *rate > 0.0).map(|rate| rows / rate)
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The schema of the tables.
    pub schema: String,
    /// The database's time.
    pub as_of: Timestamp,
    /// How the rows were counted.
    pub method: Method,
    /// All rows; `None` where they were not counted.
    pub rows: Option<Count>,
    /// By state, in the order of a row's life, unknown ones last.
    pub states: Vec<StateCount>,
    /// Rows acquired more than once: takeovers.
    pub taken_over: Option<Count>,
    /// By client.
    pub clients: Option<Names>,
    /// By provider.
    pub providers: Option<Names>,
    /// The expired key whose lease ended first.
    pub oldest_expired: Option<OldestExpired>,
    /// Creation time of the oldest row.
    pub oldest: Option<Timestamp>,
    /// The table of the keys.
    pub keys: Option<Storage>,
    /// The event log.
    pub events: Option<Storage>,
    /// The purge's work.
    pub backlog: Backlog,
    /// What could not be told, and why.
    pub unknown: Vec<String>,
}

impl From<OldestRow> for OldestExpired {
    fn from(row: OldestRow) -> Self {
        let OldestRow {
            client_id,
            key,
            provider,
            created_at,
            locked_until,
            over_seconds,
        } = row;
        Self {
            client_id,
            key,
            provider,
            created_at,
            locked_until,
            over_seconds,
        }
    }
}

impl Storage {
    pub(super) fn of(row: &StorageRow) -> Self {
        Self {
            tables: row.tables,
            table_bytes: row.table_bytes,
            index_bytes: row.index_bytes,
            toast_bytes: row.toast_bytes,
            total_bytes: row.table_bytes + row.index_bytes + row.toast_bytes,
            dead_rows: row.dead_rows,
            last_vacuum: row.last_vacuum,
            last_autovacuum: row.last_autovacuum,
            last_analyze: row.last_analyze,
            last_autoanalyze: row.last_autoanalyze,
            never_vacuumed: row.never_vacuumed,
            never_analyzed: row.never_analyzed,
        }
    }
}
