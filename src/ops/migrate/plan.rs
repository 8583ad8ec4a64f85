//! What a run would do, as data and as a script to be run by hand.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::error::Result;
use crate::store::Tables;
use crate::store::citus::PROPAGATE_LIMITS;
use crate::store::migrate::{
    self as sql, Action, Kind, MIGRATIONS, Migration, Wanted, plan_index, plan_index_of_new,
};

use super::Options;
use super::situation::Situation;

/// The wait for a lock in a script that is run by hand; there is nobody to ask again.
const LOCK_TIMEOUT_BY_HAND: Duration = Duration::from_secs(2);

/// What a run would do on this database.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The schema of the tables.
    pub schema: String,
    /// What is left to do, in order.
    pub steps: Vec<Step>,
    scripts: Vec<String>,
}

/// One migration that is run, or an index that is built again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The migration's number.
    pub version: i32,
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Whether it runs outside a transaction while readers and writers go on.
    pub online: bool,
    /// The statements, with the schema filled in.
    pub statements: Vec<String>,
}

impl Step {
    fn new(migration: &Migration, statements: Vec<String>) -> Self {
        Self {
            version: migration.version,
            name: migration.name().to_owned(),
            file: migration.file.to_owned(),
            online: matches!(migration.kind, Kind::Index(_)),
            statements,
        }
    }

    /// A migration that runs in a transaction.
    pub(super) fn in_transaction(
        migration: &Migration,
        situation: &Situation,
        create_schema: bool,
        options: &Options,
    ) -> Self {
        let tables = &situation.tables;
        let schema = create_schema.then(|| sql::create_schema(tables));
        let own = migration
            .statements()
            .into_iter()
            .flat_map(|statement| match options.partitions {
                Some(partitions) if situation.nodes.is_empty() => sql::partitioned(&statement, partitions),
                _ => vec![statement],
            })
            .map(|statement| tables.fill(&statement));
        let spreading = situation.spreading(migration, options);
        Self::new(
            migration,
            schema.into_iter().chain(own).chain(spreading).collect(),
        )
    }

    /// What Citus is told of a table that was made without it.
    pub(super) fn spreading(migration: &Migration, statements: Vec<String>) -> Self {
        let name = format!("citus_{}", migration.name());
        Self {
            file: name.clone(),
            name,
            ..Self::new(migration, statements)
        }
    }

    /// An index.
    pub(super) fn online(migration: &Migration, actions: &[Action]) -> Self {
        Self::new(
            migration,
            actions.iter().map(|action| action.sql.clone()).collect(),
        )
    }
}

impl Plan {
    pub(super) fn new(situation: &Situation, options: &Options) -> Result<Self> {
        let mut plan = Self {
            schema: situation.schema().to_owned(),
            steps: Vec::new(),
            scripts: Vec::new(),
        };
        let script = Script {
            tables: &situation.tables,
            spreads: situation.spreads(options),
        };
        let mut create_schema = !situation.place.schema_exists;
        for migration in MIGRATIONS {
            let pending = situation.is_pending(migration);
            match &migration.kind {
                Kind::Transaction if pending => {
                    let step = Step::in_transaction(migration, situation, create_schema, options);
                    create_schema = false;
                    plan.scripts.push(script.transaction(&step, migration, true));
                    plan.steps.push(step);
                }
                Kind::Transaction => {
                    let statements = situation.spreading(migration, options);
                    if !statements.is_empty() {
                        let step = Step::spreading(migration, statements);
                        plan.scripts.push(script.transaction(&step, migration, false));
                        plan.steps.push(step);
                    }
                }
                Kind::Index(wanted) if pending || situation.lacks(wanted) => {
                    let actions = match options.partitions {
                        Some(_) if situation.nodes.is_empty() => {
                            vec![new_index(migration, wanted, situation)]
                        }
                        _ => index_actions(migration, situation)?,
                    };
                    plan.scripts.push(script.online(&actions, migration, pending));
                    plan.steps.push(Step::online(migration, &actions));
                }
                Kind::Index(_) => {}
            }
        }
        Ok(plan)
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// A script for `psql` that does the same, the record of what was applied included. Empty when there is
    /// nothing to do.
    pub fn to_sql(&self) -> String {
        if self.scripts.is_empty() {
            return String::new();
        }
        let header = format!(
            "-- idemctl {}, schema {}. One session, in this order, stopping at the first error\n\
             -- (psql --no-psqlrc -v ON_ERROR_STOP=1 -f FILE).\n\n",
            sql::APP_VERSION,
            self.schema
        );
        header + &self.scripts.join("\n")
    }
}

/// An index of a partitioned table that the same plan makes.
fn new_index(migration: &Migration, wanted: &Wanted, situation: &Situation) -> Action {
    let template = migration.statements().join(";\n");
    plan_index_of_new(wanted, &template, &situation.tables)
}

/// What is left of an index migration in this situation.
pub(super) fn index_actions(migration: &Migration, situation: &Situation) -> Result<Vec<Action>> {
    let Kind::Index(wanted) = &migration.kind else {
        return Ok(Vec::new());
    };
    // Such a file holds one statement; a unit test counts them.
    let template = migration.statements().join(";\n");
    plan_index(
        wanted,
        &template,
        &situation.tables,
        &situation.nodes,
        &situation.found_indexes,
    )
}

fn header(migration: &Migration) -> String {
    let comments = migration.sql.lines().take_while(|line| line.starts_with("--"));
    let mut text = format!("-- {}\n", migration.file);
    for line in comments {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// What each part of the script needs to know.
struct Script<'a> {
    tables: &'a Tables,
    /// Whether other nodes must keep the time limits, too.
    spreads: bool,
}

impl Script<'_> {
    fn begin(&self) -> String {
        let timeout = sql::set_lock_timeout(LOCK_TIMEOUT_BY_HAND);
        if self.spreads {
            format!("begin;\n{};\n{timeout};\n", PROPAGATE_LIMITS.text)
        } else {
            format!("begin;\n{timeout};\n")
        }
    }

    fn transaction(&self, step: &Step, migration: &Migration, record: bool) -> String {
        let mut script = if record {
            header(migration)
        } else {
            format!("-- {}\n", step.file)
        };
        script.push_str(&self.begin());
        for statement in &step.statements {
            // Writing into a string cannot fail.
            let _ = writeln!(script, "{statement};");
        }
        if record {
            script.push_str(&sql::record_by_hand(self.tables, migration));
        }
        script.push_str("commit;\n");
        script
    }

    fn online(&self, actions: &[Action], migration: &Migration, pending: bool) -> String {
        let mut script = header(migration);
        for action in actions {
            let sql = &action.sql;
            let _ = if action.concurrently {
                writeln!(script, "{sql};")
            } else {
                writeln!(script, "{}{sql};\ncommit;", self.begin())
            };
        }
        if pending {
            script.push_str(&sql::record_by_hand(self.tables, migration));
        }
        script
    }
}
