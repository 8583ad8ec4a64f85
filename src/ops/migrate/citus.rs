//! Tables that Citus holds: what is refused, what is left to do, and how it stands.
//!
//! The keys are distributed by the client: everything that is said of one key says its client, and so concerns one
//! node. The event log becomes a table that Citus knows and keeps on the coordinator ("Citus local"): then a
//! transaction that changes a row on a node and appends its event is committed in two phases, and after a crash in
//! between it is both or neither. With an ordinary table the node commits first, alone. Distributing the log instead
//! would take its key (an event of a whole purge has no client) and lose events' order; a reference table could not be
//! written while any node is down. The janitor's jobs and the record of migrations are never written together with
//! a key, and stay ordinary tables.

use crate::error::{Error, Result};
use crate::store::Executor;
use crate::store::citus::{Citus, Held};
use crate::store::migrate::{self as sql, Migration};

use super::situation::{Situation, refusal};
use super::{CitusStatus, Options};

/// The migrations that make the tables which Citus is to know.
const KEYS: i32 = 2;
const EVENTS: i32 = 3;

impl Situation {
    /// Whether Citus holds the table of keys, or shall.
    pub(super) fn spreads(&self, options: &Options) -> bool {
        let held = self
            .citus
            .as_ref()
            .is_some_and(|citus| citus.keys() != Held::Plain);
        options.citus || held
    }

    /// What is left to be told to Citus once this migration has made its table; nothing where it knows.
    pub(super) fn spreading(&self, migration: &Migration, options: &Options) -> Vec<String> {
        let Some(citus) = self.citus.as_ref().filter(|_| self.spreads(options)) else {
            return Vec::new();
        };
        match migration.version {
            KEYS if citus.keys() == Held::Plain => sql::distribute_keys(&self.tables),
            EVENTS if !citus.joins_events() => sql::join_events(&self.tables),
            _ => Vec::new(),
        }
    }

    /// A worker has no tables of its own to migrate.
    pub(super) fn refuse_worker(&self) -> Result<()> {
        match &self.citus {
            Some(citus) if !citus.coordinator => refusal(
                "this server is a worker of a Citus cluster; connect to the coordinator, which brings the tables to \
                 every node"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// Refuses `--citus` where it cannot be done as things are.
    pub(super) async fn refuse_citus(&self, executor: &impl Executor, options: &Options) -> Result<()> {
        if options.citus && options.partitions.is_some() {
            return Err(Error::Invalid {
                field: "partitions",
                reason: "cannot be had together with --citus, which makes shards of its own".to_owned(),
            });
        }
        if !self.spreads(options) {
            return Ok(());
        }
        let Some(citus) = &self.citus else {
            return refusal(format!(
                "database {} has no Citus; on each node put citus first into shared_preload_libraries, and in this \
                 database `create extension citus`; or leave --citus out",
                self.place.database
            ));
        };
        if citus.workers > 0 && !citus.registered {
            return refusal(
                "the workers do not know the coordinator's address, which tables that it shares with them need; run \
                 `select citus_set_coordinator_host('HOST', PORT)` with an address that each worker reaches"
                    .to_owned(),
            );
        }
        if options.citus {
            self.refuse_other_ways(citus)?;
            self.refuse_filled(executor, citus).await?;
        }
        Ok(())
    }

    fn refuse_other_ways(&self, citus: &Citus) -> Result<()> {
        let (schema, table) = (self.schema(), self.tables.fill("{keys}"));
        match citus.keys() {
            Held::By("client_id") => Ok(()),
            Held::By(column) => refusal(format!(
                "Citus distributes {schema}.idempotency by column {column}, not by client_id; leave --citus out to keep \
                 it so, or run `select alter_distributed_table('{table}', distribution_column := \
                 'client_id')`, which copies the table while nobody can write to it"
            )),
            Held::Otherwise => refusal(format!(
                "Citus holds {schema}.idempotency, but does not distribute it by a column; leave --citus out to keep it \
                 so, or run `select undistribute_table('{table}')` and then what migrate --citus will tell"
            )),
            Held::Plain if self.is_partitioned() => refusal(format!(
                "table {schema}.idempotency is in partitions, and Citus would distribute each of them; leave --citus \
                 out, or migrate --citus into another schema with --schema and move the clients there"
            )),
            Held::Plain => Ok(()),
        }
    }

    /// Citus would distribute a table with rows as well: it copies them while nobody can write, and leaves the old
    /// copies behind, where no purge ever comes. When to stop the payments for that is not for us to say.
    async fn refuse_filled(&self, executor: &impl Executor, citus: &Citus) -> Result<()> {
        if citus.keys() != Held::Plain
            || self.nodes.is_empty()
            || !sql::has_rows(executor, &self.tables).await?
        {
            return Ok(());
        }
        let (schema, table) = (self.schema(), self.tables.fill("{keys}"));
        refusal(format!(
            "table {schema}.idempotency has rows, and distributing them means copying them while nobody can claim a \
             key; at a quiet time, as the table's owner, run `select create_distributed_table('{table}', \
             'client_id')` and then `select truncate_local_data_after_distributing_table('{table}')` (it \
             removes the old copies, which no purge would find), then migrate --citus again"
        ))
    }

    pub(super) fn citus_status(&self) -> Option<CitusStatus> {
        let citus = self.citus.as_ref()?;
        Some(CitusStatus {
            version: citus.version.clone(),
            workers: u64::try_from(citus.workers).unwrap_or(0),
            shards: u64::try_from(citus.shards).unwrap_or(0),
            distributed_by: match citus.keys() {
                Held::By(column) => Some(column.to_owned()),
                _ => None,
            },
            events_joined: citus.keys() == Held::Plain || citus.joins_events(),
        })
    }
}
