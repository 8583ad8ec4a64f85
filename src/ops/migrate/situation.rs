//! What there is in the database, and whether it may be migrated.

use crate::error::{Error, Result};
use crate::store::citus::{self, Citus};
use crate::store::migrate::{
    self as sql, Applied, Index, Kind, MIGRATIONS, Migration, Node, Place, Relation, Wanted, serving,
};
use crate::store::shape::{self, Shape};
use crate::store::{Executor, Tables};

use super::plan::index_actions;
use super::{IndexStatus, MAX_PARTITIONS, MIN_PARTITIONS, MigrationState, MigrationStatus, Options};

/// Longest name of a schema; PostgreSQL cuts what is longer.
const SCHEMA_BYTES: usize = 63;

/// Columns that mark a table as ours.
const MIGRATION_COLUMNS: [&str; 5] = ["version", "name", "sha256", "applied_at", "app_version"];
const EVENT_COLUMNS: [&str; 12] = [
    "id",
    "at",
    "client_id",
    "key",
    "action",
    "db_user",
    "os_user",
    "host",
    "reason",
    "before",
    "after",
    "details",
];
const JOB_COLUMNS: [&str; 11] = [
    "job",
    "known_since",
    "holder",
    "token",
    "held_until",
    "last_scheduled_at",
    "last_started_at",
    "last_finished_at",
    "last_success_at",
    "last_outcome",
    "last_summary",
];

/// The database as it was found.
#[derive(Debug)]
pub(super) struct Situation {
    pub(super) tables: Tables,
    pub(super) place: Place,
    pub(super) nodes: Vec<Node>,
    pub(super) found_indexes: Vec<Index>,
    pub(super) citus: Option<Citus>,
    shape: Shape,
    relations: Vec<Relation>,
    applied: Vec<Applied>,
}

impl Situation {
    pub(super) async fn look(executor: &impl Executor, schema: Option<&str>) -> Result<Self> {
        schema.map_or(Ok(()), check_schema_name)?;
        let shape = shape::look(executor, schema).await?;
        check_schema_name(&shape.schema)?;
        let tables = Tables::new(&shape.schema);
        let place = sql::place(executor, &shape.schema).await?;
        let relations = sql::relations(executor, &shape.schema).await?;
        let recorded = relations
            .iter()
            .find(|relation| relation.name == "idempotency_migration");
        let applied = match recorded {
            Some(relation) => {
                require_columns(relation, &MIGRATION_COLUMNS, &shape.schema)?;
                sql::applied(executor, &tables)
                    .await
                    .map_err(|error| unreadable(error, &shape.schema, &place))?
            }
            None => Vec::new(),
        };
        let nodes = sql::nodes(executor, &shape.schema).await?;
        let found_indexes = sql::indexes(executor, &nodes).await?;
        let citus = citus::look(executor, &shape.schema).await?;
        Ok(Self {
            tables,
            place,
            nodes,
            found_indexes,
            citus,
            shape,
            relations,
            applied,
        })
    }

    pub(super) fn schema(&self) -> &str {
        &self.shape.schema
    }

    pub(super) fn is_pending(&self, migration: &Migration) -> bool {
        !self
            .applied
            .iter()
            .any(|applied| applied.version == migration.version)
    }

    /// Whether an index that was recorded as built is not there or not valid any more.
    pub(super) fn lacks(&self, wanted: &Wanted) -> bool {
        serving(wanted, &self.nodes, &self.found_indexes).is_none()
    }

    pub(super) fn migrations(&self) -> Vec<MigrationStatus> {
        let ours = MIGRATIONS.iter().map(|migration| {
            let applied = self
                .applied
                .iter()
                .find(|applied| applied.version == migration.version);
            MigrationStatus {
                version: migration.version,
                name: migration.name().to_owned(),
                state: match applied {
                    None => MigrationState::Pending,
                    Some(applied) if applied.sha256 == migration.sha256() => MigrationState::Applied,
                    Some(_) => MigrationState::Changed,
                },
                applied_at: applied.and_then(|applied| applied.applied_at),
                app_version: applied.and_then(|applied| applied.app_version.clone()),
            }
        });
        let theirs = self.unknown().map(|applied| MigrationStatus {
            version: applied.version,
            name: applied.name.clone(),
            state: MigrationState::Unknown,
            applied_at: applied.applied_at,
            app_version: applied.app_version.clone(),
        });
        let mut all: Vec<_> = ours.chain(theirs).collect();
        all.sort_by_key(|migration| migration.version);
        all
    }

    pub(super) fn indexes(&self) -> Vec<IndexStatus> {
        let status = |wanted: &Wanted| {
            let found = serving(wanted, &self.nodes, &self.found_indexes);
            IndexStatus {
                name: wanted.name.to_owned(),
                served_by: found.map(|index| index.name.clone()),
                valid: found.is_some(),
            }
        };
        let wanted = MIGRATIONS.iter().filter_map(|migration| match &migration.kind {
            Kind::Index(wanted) => Some(wanted),
            Kind::Transaction => None,
        });
        wanted.map(status).collect()
    }

    fn unknown(&self) -> impl Iterator<Item = &Applied> {
        let known = |applied: &&Applied| MIGRATIONS.iter().any(|known| known.version == applied.version);
        self.applied.iter().filter(move |applied| !known(applied))
    }

    /// Refuses what must not be migrated. Nothing was changed yet.
    pub(super) fn refuse(&self) -> Result<()> {
        self.refuse_worker()?;
        self.refuse_history()?;
        self.refuse_tables()?;
        for migration in MIGRATIONS {
            // An index of the wrong sort under one of our names is found before anything is changed.
            index_actions(migration, self)?;
        }
        self.refuse_rights()
    }

    /// The same, and what these options ask for and cannot be had.
    pub(super) async fn refuse_with(&self, executor: &impl Executor, options: &Options) -> Result<()> {
        self.refuse()?;
        self.refuse_partitions(options.partitions)?;
        self.refuse_citus(executor, options).await
    }

    /// Refuses a number of partitions that the table cannot have any more.
    fn refuse_partitions(&self, wanted: Option<u32>) -> Result<()> {
        let Some(wanted) = wanted else { return Ok(()) };
        if !(MIN_PARTITIONS..=MAX_PARTITIONS).contains(&wanted) {
            return Err(Error::Invalid {
                field: "partitions",
                reason: format!("is {wanted}; {MIN_PARTITIONS} to {MAX_PARTITIONS} are allowed"),
            });
        }
        let Some(table) = self.relation("idempotency") else {
            return Ok(());
        };
        let root = self.nodes.first().map(|root| root.oid);
        let found = self.nodes.iter().filter(|node| node.parent == root).count();
        let schema = self.schema();
        match (table.kind.as_str(), u32::try_from(found)) {
            ("p", Ok(found)) if found == wanted => Ok(()),
            ("p", _) => refusal(format!(
                "table {schema}.idempotency is there and has {found} partitions, not {wanted}; leave --partitions out to \
                 keep them"
            )),
            _ => refusal(format!(
                "table {schema}.idempotency is there and is not partitioned, and no table is split in place; leave \
                 --partitions out, or migrate into another schema with --schema and move the clients there"
            )),
        }
    }

    fn refuse_history(&self) -> Result<()> {
        let schema = self.schema();
        if let Some(applied) = self.unknown().last() {
            let newest = MIGRATIONS.last().map_or(0, |migration| migration.version);
            let by = applied.app_version.as_deref().unwrap_or("unknown").escape_debug();
            return refusal(format!(
                "schema {schema} has migration {} ({}), applied by idemctl {by}; this is idemctl {}, which knows \
                 migrations 1 to {newest}; use that version or a later one",
                applied.version,
                applied.name.escape_debug(),
                sql::APP_VERSION,
            ));
        }
        for migration in MIGRATIONS {
            let applied = self
                .applied
                .iter()
                .find(|applied| applied.version == migration.version);
            match applied {
                Some(applied) if applied.sha256 != migration.sha256() => {
                    return refusal(format!(
                        "migrations/{} was changed after it was applied to schema {schema} (SHA-256 there {}, here \
                         {}); restore the file, and put the change into a new migration",
                        migration.file,
                        applied.sha256.escape_debug(),
                        migration.sha256(),
                    ));
                }
                None if self
                    .applied
                    .iter()
                    .any(|applied| applied.version > migration.version) =>
                {
                    return refusal(format!(
                        "migrations/{} is not recorded in {schema}.idempotency_migration although later ones are; \
                         if it was applied, put its row back, else remove the later rows",
                        migration.file,
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn refuse_tables(&self) -> Result<()> {
        let schema = self.schema();
        for relation in &self.relations {
            if !matches!(relation.kind.as_str(), "r" | "p") {
                return refusal(format!(
                    "{schema}.{} is there, but it is not a table",
                    relation.name
                ));
            }
            match relation.name.as_str() {
                "idempotency_event" => require_columns(relation, &EVENT_COLUMNS, schema)?,
                "idempotency_job" => require_columns(relation, &JOB_COLUMNS, schema)?,
                _ => {}
            }
        }
        for (version, name) in [
            (2, "idempotency"),
            (3, "idempotency_event"),
            (6, "idempotency_job"),
        ] {
            let recorded = self.applied.iter().any(|applied| applied.version == version);
            if recorded && self.relation(name).is_none() {
                return refusal(format!(
                    "{schema}.{name} is missing although migration {version} is recorded; restore it, or remove \
                     the rows from version {version} on from {schema}.idempotency_migration and migrate again"
                ));
            }
        }
        // Once the columns were added, all of them have to be there.
        let current = self.applied.iter().any(|applied| applied.version >= 2);
        match self.shape.problem(current) {
            Some(problem) if self.shape.exists() => refusal(format!(
                "table {schema}.idempotency cannot be adopted: {problem}; nothing was changed. Mend the column, or \
                 name another schema with --schema"
            )),
            _ => Ok(()),
        }
    }

    fn refuse_rights(&self) -> Result<()> {
        let pending = MIGRATIONS.iter().any(|migration| match &migration.kind {
            Kind::Transaction => self.is_pending(migration),
            Kind::Index(wanted) => self.is_pending(migration) || self.lacks(wanted),
        });
        if !pending {
            return Ok(());
        }
        let Place {
            role,
            database,
            schema_exists,
            may_create,
        } = &self.place;
        let schema = self.schema();
        if !may_create && !schema_exists {
            return refusal(format!(
                "schema {schema} does not exist and role {role} lacks CREATE on database {database}; create the \
                 schema, or grant create on database {database} to {role}"
            ));
        }
        if !may_create {
            return refusal(format!(
                "role {role} lacks CREATE and USAGE on schema {schema}; grant create, usage on schema {schema} to \
                 {role}, or name another schema with --schema"
            ));
        }
        match self.relations.iter().find(|relation| !relation.owned) {
            Some(relation) => refusal(format!(
                "{schema}.{} belongs to role {owner}, and only its owner may alter or index it; migrate as {owner}, \
                 or grant {owner} to {role}",
                relation.name,
                owner = relation.owner,
            )),
            None => Ok(()),
        }
    }

    pub(super) fn is_partitioned(&self) -> bool {
        self.relation("idempotency")
            .is_some_and(|table| table.kind == "p")
    }

    fn relation(&self, name: &str) -> Option<&Relation> {
        self.relations.iter().find(|relation| relation.name == name)
    }
}

pub(super) fn refusal<T>(what: String) -> Result<T> {
    Err(Error::Migration { what })
}

fn require_columns(relation: &Relation, columns: &[&str], schema: &str) -> Result<()> {
    match columns
        .iter()
        .find(|column| !relation.columns.iter().any(|found| found == *column))
    {
        None => Ok(()),
        Some(column) => refusal(format!(
            "table {schema}.{} is not ours: column {column} is missing; rename it, or name another schema with \
             --schema",
            relation.name
        )),
    }
}

fn unreadable(error: Error, schema: &str, place: &Place) -> Error {
    match error.sqlstate() {
        Some("42501") => Error::Migration {
            what: format!(
                "role {} lacks USAGE on schema {schema} or SELECT on {schema}.idempotency_migration",
                place.role
            ),
        },
        _ => error,
    }
}

/// Names that would have to be escaped in more ways than one, and those that PostgreSQL would cut, are refused.
pub(super) fn check_schema_name(name: &str) -> Result<()> {
    let odd = |c: char| c.is_control() || matches!(c, '\'' | '"' | '\\' | '%' | '{' | '}');
    let reason = if name.is_empty() {
        "is empty"
    } else if name.len() > SCHEMA_BYTES {
        "is longer than 63 bytes"
    } else if name.contains(odd) || name.contains("$$") {
        "holds a quote, backslash, percent sign, brace, double dollar sign or control character"
    } else if name.starts_with("pg_") {
        "starts with pg_, which is reserved for the server"
    } else {
        return Ok(());
    };
    Err(Error::Invalid {
        field: "schema",
        reason: format!("{} {reason}", name.escape_debug()),
    })
}
