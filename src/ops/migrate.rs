//! Brings the tables to the shape that this version needs, on an empty database or on a table in use.
//!
//! Safe when run by many at once and when killed at any point: the next run goes on from there. Two connections
//! are used. One holds a transaction with an advisory lock, the other does the work; so nothing depends on a
//! session, and a pooler in transaction mode may stand between (with at least two server connections).

mod citus;
mod plan;
pub mod roles;
mod run;
mod situation;

use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::store::citus::{self as citus_facts, Held};
use crate::store::{Executor, shape};
use crate::time::Timestamp;

pub use plan::{Plan, Step};
pub use run::run;

use situation::Situation;

/// How to go about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Only say what would be run.
    pub dry_run: bool,
    /// Longest single wait for a lock on a table. While we wait, every later caller queues behind us, so this is
    /// short.
    pub lock_timeout: Duration,
    /// How long to go on asking for such a lock altogether.
    pub lock_patience: Duration,
    /// Makes the table of keys in so many partitions, [`MIN_PARTITIONS`] to [`MAX_PARTITIONS`], by a hash of the
    /// client. Only where there is no table yet; one that is there and has so many partitions is accepted.
    pub partitions: Option<u32>,
    /// Has Citus distribute the table of keys by the client, where it does not yet. Only on the coordinator of a
    /// cluster, and while the table is empty.
    pub citus: bool,
}

/// Fewest partitions that are any.
pub const MIN_PARTITIONS: u32 = 2;
/// Most partitions: planning a question about many keys looks at each.
pub const MAX_PARTITIONS: u32 = 1_000;

impl Default for Options {
    /// Half a second per wait, five minutes altogether; no partitions, no Citus.
    fn default() -> Self {
        Self {
            dry_run: false,
            lock_timeout: Duration::from_millis(500),
            lock_patience: Duration::from_mins(5),
            partitions: None,
            citus: false,
        }
    }
}

/// What a run did, or with [`Options::dry_run`] would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The schema of the tables.
    pub schema: String,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The steps in order; empty when there was nothing to do, or when another run did it meanwhile.
    pub steps: Vec<Step>,
}

/// How far the database is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Status {
    /// The schema of the tables, or the one where they would be made.
    pub schema: String,
    /// Those of this version and those that the database knows, by version.
    pub migrations: Vec<MigrationStatus>,
    /// The indexes that migrations make.
    pub indexes: Vec<IndexStatus>,
    /// How Citus holds the tables; `None` without that extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub citus: Option<CitusStatus>,
    /// What keeps `migrate` from running, if anything.
    pub problem: Option<String>,
}

/// One migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MigrationStatus {
    /// Its number.
    pub version: i32,
    /// Its name: the file's, without number and ending.
    pub name: String,
    /// How it stands.
    pub state: MigrationState,
    /// When it was applied, by the database's clock.
    pub applied_at: Option<Timestamp>,
    /// The version of idemctl that applied it.
    pub app_version: Option<String>,
}

/// How a migration stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MigrationState {
    /// Recorded, and the file is the one that was run.
    Applied,
    /// Not run yet.
    Pending,
    /// Recorded, but the file is not the one that was run.
    Changed,
    /// Recorded, and this version of idemctl does not have it.
    Unknown,
}

/// An index that a migration makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IndexStatus {
    /// The name that the migration gives it.
    pub name: String,
    /// The name of the valid index that does its work: the same, or one that an adopted table brought along.
    pub served_by: Option<String>,
    /// Whether there is such an index.
    pub valid: bool,
}

/// How Citus holds the tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CitusStatus {
    /// The extension's version.
    pub version: String,
    /// Active workers that the coordinator knows.
    pub workers: u64,
    /// Over how many shards the table of keys is distributed; 0 where Citus does not hold it.
    pub shards: u64,
    /// The column by whose hash it is; `None` where it is not.
    pub distributed_by: Option<String>,
    /// Whether a change of a row and its event are committed together.
    pub events_joined: bool,
}

impl Status {
    /// Whether every migration is applied unchanged, every index valid, and nothing stands in the way.
    pub fn is_current(&self) -> bool {
        self.problem.is_none()
            && self.indexes.iter().all(|index| index.valid)
            && self.citus.as_ref().is_none_or(|citus| citus.events_joined)
            && self
                .migrations
                .iter()
                .all(|migration| migration.state == MigrationState::Applied)
    }
}

/// How far the database is; changes nothing.
///
/// `schema`: where the tables are; `None` takes the first schema of the search path that has the table, else
/// `public`. A table of another shape, a changed migration and the like stand in [`Status::problem`].
pub async fn status(executor: &impl Executor, schema: Option<&str>) -> Result<Status> {
    let situation = Situation::look(executor, schema).await?;
    let problem = situation.refuse().err().map(|error| error.to_string());
    Ok(Status {
        schema: situation.schema().to_owned(),
        migrations: situation.migrations(),
        indexes: situation.indexes(),
        citus: situation.citus_status(),
        problem,
    })
}

/// How to make the tables of a scratch schema: distributed by Citus, where the database's own table is.
pub(crate) async fn like_own(executor: &impl Executor) -> Result<Options> {
    let own = shape::look(executor, None).await?;
    let citus = citus_facts::look(executor, &own.schema).await?;
    Ok(Options {
        citus: citus.is_some_and(|citus| citus.keys() == Held::By("client_id")),
        ..Options::default()
    })
}

/// What [`run`] would do with these options; changes nothing.
///
/// Returns [`crate::error::Error::Migration`] when it would be refused, as [`run`] does.
pub async fn plan(executor: &impl Executor, schema: Option<&str>, options: &Options) -> Result<Plan> {
    let situation = Situation::look(executor, schema).await?;
    situation.refuse_with(executor, options).await?;
    Plan::new(&situation, options)
}
