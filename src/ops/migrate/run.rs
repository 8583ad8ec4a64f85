//! Running migrations: one connection holds the lock, the other works.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

use crate::connect::{Connection, Settings, Tx};
use crate::error::{Error, Result};
use crate::store::citus::PROPAGATE_LIMITS;
use crate::store::migrate::{self as sql, Action, Kind, MIGRATIONS, Migration, Wanted};
use crate::store::{Executor, Tables};

use super::plan::index_actions;
use super::situation::Situation;
use super::{Options, Plan, Report, Step, plan};

/// Building an index on a large table takes hours; the server's own limits apply.
const LONGEST_STATEMENT: Duration = Duration::from_hours(7 * 24);

/// An index that was built is not always there afterwards (somebody else ended our build).
const MAX_REPEATS: usize = 5;

/// Between two questions for a lock.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Applies what is pending and builds the indexes that are missing or invalid.
///
/// `schema`: where the tables are or shall be; `None` takes the first schema of the search path that has the
/// table, else `public`. A schema that was named and is absent is created.
///
/// Returns [`Error::Migration`] with what stands in the way: a table of another shape, a changed or unknown
/// migration, a missing privilege, a lock that was not to be had. What was applied until then stays applied, and
/// the next run goes on from there.
pub async fn run(settings: &Settings, schema: Option<&str>, options: &Options) -> Result<Report> {
    let mut worker = Connection::open(&patient(settings)).await?;
    match plan(&worker, schema, options).await {
        Ok(Plan { schema, steps, .. }) if options.dry_run || steps.is_empty() => {
            return Ok(Report {
                schema,
                dry_run: options.dry_run,
                steps,
            });
        }
        // Another run may be at work, and half of what we saw older than the other half: judge under the lock.
        Ok(_) => {}
        Err(Error::Migration { .. }) if !options.dry_run => {}
        Err(error) => return Err(error),
    }
    let mut guard = Connection::open(settings).await?;
    let mut runner = Runner {
        worker: &mut worker,
        schema: schema.map(str::to_owned),
        options,
        spreads: false,
        steps: Vec::new(),
    };
    locked(&mut guard, &mut runner, settings.timeouts.connect).await
}

fn patient(settings: &Settings) -> Settings {
    let mut settings = settings.clone();
    settings.timeouts.statement = LONGEST_STATEMENT;
    // An index build waits for open transactions, and nobody queues behind it. Where a wait for a lock must be
    // short, the transaction itself says so.
    settings.timeouts.lock = LONGEST_STATEMENT;
    settings
}

fn backoff(total: Option<Duration>) -> impl Iterator<Item = Duration> {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(20))
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
        .with_total_delay(total)
        .build()
}

/// Runs everything under the lock; waits for another run as long as it takes.
async fn locked(guard: &mut Connection, runner: &mut Runner<'_>, first_answer: Duration) -> Result<Report> {
    let mut delays = backoff(None);
    let mut told = false;
    loop {
        let tx = guard.begin().await?;
        tx.run(&sql::command(sql::NO_TRANSACTION_TIMEOUT), &[]).await?;
        if try_lock(&tx).await? {
            let result = runner.migrate(&tx, first_answer).await;
            // Everything is recorded by the other connection; this one only lets go of the lock.
            let _ = tx.commit().await;
            return result;
        }
        tx.commit().await?;
        if !told {
            tracing::info!("another migration of this database is running; waiting for it");
            told = true;
        }
        tokio::time::sleep(delays.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// Takes the lock, or takes it once more where this transaction has it already.
async fn try_lock(tx: &Tx<'_>) -> Result<bool> {
    let answer = tx.run(&sql::try_lock(), &[/* lock */ &sql::LOCK]).await?;
    tx.run(&sql::command(sql::HOLD), &[]).await?;
    Ok(answer.rows.first().is_some_and(|row| row.get("locked")))
}

struct Runner<'a> {
    worker: &'a mut Connection,
    /// As it was asked for, and once we have the lock as it was found.
    schema: Option<String>,
    options: &'a Options,
    /// Whether other nodes must keep the time limits, too.
    spreads: bool,
    steps: Vec<Step>,
}

impl Runner<'_> {
    async fn migrate(&mut self, lock: &Tx<'_>, first_answer: Duration) -> Result<Report> {
        let mut situation = match tokio::time::timeout(first_answer, self.look()).await {
            Ok(situation) => situation?,
            Err(_) => {
                return Err(Error::Migration {
                    what: "the second connection got no answer while the first held the lock; a pooler has to give \
                           us two server connections at once (pool size), or migrate past it"
                        .to_owned(),
                });
            }
        };
        situation.refuse_with(&*self.worker, self.options).await?;
        self.spreads = situation.spreads(self.options);
        self.schema = Some(situation.schema().to_owned());
        for migration in MIGRATIONS {
            self.still_locked(lock).await?;
            let pending = situation.is_pending(migration);
            match &migration.kind {
                Kind::Transaction if pending => {
                    let create_schema = !situation.place.schema_exists;
                    let step = Step::in_transaction(migration, &situation, create_schema, self.options);
                    self.transaction(migration, Some(&situation.tables), step).await?;
                    situation = self.look().await?;
                }
                Kind::Transaction => {
                    let statements = situation.spreading(migration, self.options);
                    if !statements.is_empty() {
                        let step = Step::spreading(migration, statements);
                        self.transaction(migration, None, step).await?;
                        situation = self.look().await?;
                    }
                }
                Kind::Index(wanted) if pending || situation.lacks(wanted) => {
                    situation = self.index(migration, wanted, lock, pending).await?;
                }
                Kind::Index(_) => {}
            }
        }
        // Whatever we were told by the server, the table has to be usable now.
        situation.refuse()?;
        let steps = std::mem::take(&mut self.steps);
        Ok(Report {
            schema: situation.schema().to_owned(),
            dry_run: false,
            steps,
        })
    }

    async fn look(&self) -> Result<Situation> {
        Situation::look(&*self.worker, self.schema.as_deref()).await
    }

    /// The lock lives as long as its connection; without it, another run may have begun.
    async fn still_locked(&self, lock: &Tx<'_>) -> Result<()> {
        if try_lock(lock).await? {
            return Ok(());
        }
        Err(Error::Migration {
            what: "the lock was lost; run `idemctl migrate` again".to_owned(),
        })
    }

    /// `record`: the tables, where the step is the migration itself.
    async fn transaction(
        &mut self,
        migration: &Migration,
        record: Option<&Tables>,
        step: Step,
    ) -> Result<()> {
        self.patiently(migration, &step.statements, record).await?;
        self.steps.push(step);
        Ok(())
    }

    /// Builds an index and records that; returns the situation afterwards.
    async fn index(
        &mut self,
        migration: &Migration,
        wanted: &Wanted,
        lock: &Tx<'_>,
        pending: bool,
    ) -> Result<Situation> {
        let mut done: Vec<Action> = Vec::new();
        let situation = loop {
            let situation = self.look().await?;
            let Some(next) = index_actions(migration, &situation)?.into_iter().next() else {
                break situation;
            };
            let repeats = done.iter().filter(|action| action.sql == next.sql).count();
            if repeats >= MAX_REPEATS {
                return Err(Error::Migration {
                    what: format!(
                        "migrations/{}: `{}` ran {repeats} times and {} is still not a valid index; is the name \
                         taken by something else, or does somebody end our builds?",
                        migration.file, next.sql, wanted.name
                    ),
                });
            }
            if let Some(table) = next.after_builders_on {
                self.wait_for_builders(table).await?;
                // Whoever was at it may have finished between our look and our question: look again.
                let now = index_actions(migration, &self.look().await?)?;
                if now.first() != Some(&next) {
                    continue;
                }
            }
            self.still_locked(lock).await?;
            self.act(migration, &next).await?;
            done.push(next);
        };
        if pending {
            let statement = sql::record(&situation.tables);
            let (name, sha256) = (migration.name(), migration.sha256());
            self.worker
                .run(
                    &statement,
                    &[&migration.version, &name, &sha256, &sql::APP_VERSION],
                )
                .await
                .map_err(|error| in_file(migration, error))?;
        }
        self.steps.push(Step::online(migration, &done));
        self.look().await
    }

    /// One step towards an index.
    async fn act(&mut self, migration: &Migration, action: &Action) -> Result<()> {
        if !action.concurrently {
            return self
                .patiently(migration, std::slice::from_ref(&action.sql), None)
                .await;
        }
        match self.worker.run(&sql::command(&action.sql), &[]).await {
            Ok(_) => Ok(()),
            // A deadlock ended the build; what it left is dropped in the next round.
            Err(error) if is_lock_trouble(&error) => Ok(()),
            Err(error) => Err(in_file(migration, error)),
        }
    }

    /// Waits for whoever is still building an index that looks abandoned.
    async fn wait_for_builders(&self, table: u32) -> Result<()> {
        let mut seen = Vec::new();
        for delay in backoff(None) {
            let pids = sql::builders(&*self.worker, table).await?;
            if pids.is_empty() {
                break;
            }
            if seen.is_empty() {
                tracing::info!(
                    ?pids,
                    "an index is still being built by another process; waiting for it"
                );
            }
            seen = pids;
            tokio::time::sleep(delay).await;
        }
        // Bounded, since that session may go on with other work.
        for delay in backoff(Some(LONGEST_PAUSE)) {
            if seen.is_empty() || !sql::unsettled(&*self.worker, &seen).await? {
                break;
            }
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    /// Runs statements in one transaction, with the migration's record when tables are given; asks for locks with
    /// a short timeout, again and again.
    async fn patiently(
        &mut self,
        migration: &Migration,
        statements: &[String],
        record: Option<&Tables>,
    ) -> Result<()> {
        let mut delays = backoff(Some(self.options.lock_patience));
        loop {
            match self.in_transaction(migration, statements, record).await {
                Err(error) if is_lock_trouble(&error) => {
                    let Some(delay) = delays.next() else {
                        return Err(self.blocked(migration).await);
                    };
                    tracing::debug!(
                        file = migration.file,
                        ?delay,
                        "a lock was not to be had; asking again"
                    );
                    tokio::time::sleep(delay).await;
                }
                Err(error) => return Err(in_file(migration, error)),
                Ok(()) => return Ok(()),
            }
        }
    }

    async fn in_transaction(
        &mut self,
        migration: &Migration,
        statements: &[String],
        record: Option<&Tables>,
    ) -> Result<()> {
        let tx = self.worker.begin().await?;
        if self.spreads {
            tx.run(&sql::command(PROPAGATE_LIMITS.text), &[]).await?;
        }
        tx.run(
            &sql::command(&sql::set_lock_timeout(self.options.lock_timeout)),
            &[],
        )
        .await?;
        for statement in statements {
            tx.run(&sql::command(statement), &[]).await?;
        }
        if let Some(tables) = record {
            let (name, sha256) = (migration.name(), migration.sha256());
            tx.run(
                &sql::record(tables),
                &[&migration.version, &name, &sha256, &sql::APP_VERSION],
            )
            .await?;
        }
        tx.commit().await
    }

    async fn blocked(&self, migration: &Migration) -> Error {
        let schema = self.schema.as_deref().unwrap_or("public");
        let holders = match sql::blockers(&*self.worker, schema).await {
            Ok(holders) if !holders.is_empty() => holders.join(", "),
            _ => "unknown (gone by now)".to_owned(),
        };
        Error::Migration {
            what: format!(
                "migrations/{}: no lock on {schema}.idempotency within {} s, nothing of this migration was changed; \
                 transactions that hold it: {holders}; end them or try again at a quieter time",
                migration.file,
                self.options.lock_patience.as_secs_f64()
            ),
        }
    }
}

/// `lock_timeout` ran out (55P03), or a deadlock (40P01).
fn is_lock_trouble(error: &Error) -> bool {
    matches!(error.sqlstate(), Some("55P03" | "40P01"))
}

/// Says which file failed, where the database itself answered.
fn in_file(migration: &Migration, error: Error) -> Error {
    match error {
        Error::Database(source) if source.as_db_error().is_some() => {
            let what = Error::Database(source).to_string();
            Error::Migration {
                what: format!("migrations/{}: {what}", migration.file),
            }
        }
        Error::Schema { what } => Error::Migration {
            what: format!("migrations/{}: {what}", migration.file),
        },
        other => other,
    }
}
