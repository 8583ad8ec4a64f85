//! What only Citus knows: whether and by what it distributes our tables, and how they stand on all nodes.
//!
//! Its functions and its catalogue are named in text that is read only where the extension is: without it each of
//! these statements is one that every server takes, and gives no row. What they find comes back in XML, in which a
//! text has its own spelling of `<` and `&`: so it is handed on in hexadecimal digits.

use tokio_postgres::types::Type;

use super::stats::StorageRow;
use super::{Executor, Sql, Store, Tables};
use crate::error::Result;

const CITUS_LOOK: Sql = Sql {
    name: "citus_look",
    text: "-- idemctl:citus_look
select facts.*
  from (select case when exists (select from pg_extension where extname = 'citus') then
                   convert_from(decode((xpath('//found/text()',
                          query_to_xml(format($citus$
select encode(convert_to(json_build_object(
           'version', (select extversion from pg_extension where extname = 'citus'),
           'coordinator', (select groupid = 0 from pg_dist_local_group),
           'registered', exists (select from pg_dist_node where groupid = 0),
           'workers', (select count(*) from pg_dist_node
                        where groupid > 0 and isactive and noderole = 'primary'),
           'keys', (select partmethod from pg_dist_partition where logicalrelid = to_regclass(%1$L)),
           'column', (select column_to_column_name(logicalrelid, partkey) from pg_dist_partition
                       where logicalrelid = to_regclass(%1$L)),
           'shards', (select count(*) from pg_dist_shard where logicalrelid = to_regclass(%1$L)),
           'events', (select partmethod from pg_dist_partition where logicalrelid = to_regclass(%2$L)))::text, getdatabaseencoding()), 'hex') as found
$citus$, format('%I.idempotency', $1::text), format('%I.idempotency_event', $1::text)), true, false, '')))[1]::text, 'hex'), getdatabaseencoding())::json
               end as json) looked,
       json_to_record(looked.json) as facts(version text, coordinator bool, registered bool, workers int8, keys text,
                                            \"column\" text, shards int8, events text)
 where looked.json is not null",
    types: &[Type::TEXT],
};

/// What `stats_storage` says of one table, summed over its shards on all nodes. A node that does not answer is
/// counted by its shards and does not end the others' answers.
const CITUS_STORAGE: Sql = Sql {
    name: "citus_storage",
    text: "-- idemctl:citus_storage
select now() as now, sums.*
  from (select case when exists (select from pg_extension where extname = 'citus') then
                   convert_from(decode((xpath('//found/text()',
                          query_to_xml(format($citus$
select encode(convert_to(json_build_object(
           'tables', count(*) filter (where success),
           'missing', count(*) filter (where not success),
           'why', min(result) filter (where not success),
           'table_bytes', sum((part ->> 'table')::int8),
           'index_bytes', sum((part ->> 'indexes')::int8),
           'toast_bytes', sum((part ->> 'toast')::int8),
           'pages_bytes', sum((part ->> 'pages')::int8),
           'dead_rows', sum((part ->> 'dead')::int8),
           'live_rows', sum((part ->> 'live')::int8),
           'changed_rows', sum((part ->> 'changed')::int8),
           'estimate', sum((part ->> 'estimate')::float8) filter (where (part ->> 'estimate')::float8 >= 0),
           'last_vacuum', min((part ->> 'vacuum')::timestamptz),
           'last_autovacuum', min((part ->> 'autovacuum')::timestamptz),
           'last_analyze', min((part ->> 'analyze')::timestamptz),
           'last_autoanalyze', min((part ->> 'autoanalyze')::timestamptz),
           'never_vacuumed', count(*) filter (where success and part ->> 'vacuum' is null
                                                    and part ->> 'autovacuum' is null),
           'never_analyzed', count(*) filter (where success and part ->> 'analyze' is null
                                                    and part ->> 'autoanalyze' is null))::text, getdatabaseencoding()), 'hex') as found
  from (select answer.success, answer.result, case when answer.success then answer.result::json end as part
          from pg_dist_partition p,
               run_command_on_shards(p.logicalrelid, $shard$
select json_build_object(
           'table', pg_table_size(c.oid) - case when c.reltoastrelid = 0 then 0
                                                else pg_total_relation_size(c.reltoastrelid) end,
           'indexes', pg_indexes_size(c.oid),
           'toast', case when c.reltoastrelid = 0 then 0 else pg_total_relation_size(c.reltoastrelid) end,
           'pages', pg_relation_size(c.oid),
           'dead', s.n_dead_tup, 'live', s.n_live_tup, 'changed', s.n_mod_since_analyze,
           'estimate', c.reltuples, 'vacuum', s.last_vacuum, 'autovacuum', s.last_autovacuum,
           'analyze', s.last_analyze, 'autoanalyze', s.last_autoanalyze)
  from pg_class c left join pg_stat_all_tables s on s.relid = c.oid
 where c.oid = %%1$L::regclass
$shard$) answer
         where p.logicalrelid = to_regclass(%1$L)) shard
having count(*) > 0
$citus$, format('%I.%I', $1::text, $2::text)), true, false, '')))[1]::text, 'hex'), getdatabaseencoding())::json
               end as json) looked,
       json_to_record(looked.json) as sums(
           tables int8, missing int8, why text, table_bytes int8, index_bytes int8, toast_bytes int8,
           pages_bytes int8, dead_rows int8, live_rows int8, changed_rows int8, estimate float8,
           last_vacuum timestamptz, last_autovacuum timestamptz, last_analyze timestamptz,
           last_autoanalyze timestamptz, never_vacuumed int8, never_analyzed int8)
 where looked.json is not null",
    types: &[Type::TEXT, Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[CITUS_LOOK, CITUS_STORAGE, PROPAGATE_LIMITS];

/// How Citus holds a table, as its catalogue calls it.
const HASH: &str = "h";

/// A database with the extension.
#[derive(Debug, Clone)]
pub(crate) struct Citus {
    pub(crate) version: String,
    /// Whether this server is the one that others ask, and no worker.
    pub(crate) coordinator: bool,
    /// Whether the workers know the coordinator's address.
    pub(crate) registered: bool,
    pub(crate) workers: i64,
    /// Over how many shards the table of keys is distributed; 0 where it is a plain table or absent.
    pub(crate) shards: i64,
    keys: Option<String>,
    column: Option<String>,
    events: Option<String>,
}

/// How the table of keys is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Held<'a> {
    /// By this server alone, or not at all: Citus knows no such table.
    Plain,
    /// Distributed by the hash of this column.
    By(&'a str),
    /// Some other way: a reference table, a single shard, by ranges.
    Otherwise,
}

impl Citus {
    pub(crate) fn keys(&self) -> Held<'_> {
        match (self.keys.as_deref(), &self.column) {
            (None, _) => Held::Plain,
            (Some(HASH), Some(column)) => Held::By(column),
            _ => Held::Otherwise,
        }
    }

    /// Whether a change of a row and the event that tells of it are committed together: Citus has to know the event
    /// log where it holds the keys, else it lets the nodes commit before it asks its own server.
    pub(crate) fn joins_events(&self) -> bool {
        self.events.is_some()
    }
}

/// `None` where the extension is not there. The schema need not be there either.
pub(crate) async fn look(executor: &impl Executor, schema: &str) -> Result<Option<Citus>> {
    let statement = Tables::new("").statement(&CITUS_LOOK);
    let answer = executor.run(&statement, &[/* schema */ &schema]).await?;
    Ok(answer.rows.first().map(|row| Citus {
        version: row.get("version"),
        coordinator: row.get("coordinator"),
        registered: row.get("registered"),
        workers: row.get("workers"),
        shards: row.get("shards"),
        keys: row.get("keys"),
        column: row.get("column"),
        events: row.get("events"),
    }))
}

/// A table over all nodes.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    /// Sums over the shards that answered.
    pub(crate) storage: StorageRow,
    /// The planner's estimate of rows; `None` where no shard was ever analyzed.
    pub(crate) estimate: Option<f64>,
    /// Shards whose node did not answer.
    pub(crate) missing: u64,
    /// Why the first of them did not.
    why: Option<String>,
}

impl Spread {
    /// What the sums leave out, in words; `None` where nothing is missing.
    pub(crate) fn gap(&self) -> Option<String> {
        let all = self.storage.tables + self.missing;
        (self.missing > 0).then(|| {
            let why = self.why.as_deref().unwrap_or("no reason was given").trim();
            format!("{} of {all} shards did not answer: {why}", self.missing)
        })
    }
}

/// Has the other nodes keep what the transaction sets with `set local`, such as its time limit for locks. A server
/// without Citus takes it for a setting of somebody's own.
pub(crate) const PROPAGATE_LIMITS: Sql = Sql {
    name: "propagate_limits",
    text: "-- idemctl:propagate_limits
set local citus.propagate_set_commands = 'local'",
    types: &[],
};

impl Store {
    /// One of our tables over all nodes; `None` where Citus does not hold it.
    pub(crate) async fn spread(&self, executor: &impl Executor, table: &str) -> Result<Option<Spread>> {
        if !self.is_citus() {
            return Ok(None);
        }
        let answer = executor
            .run(
                self.statement(&CITUS_STORAGE),
                &[/* schema */ &self.schema(), /* table */ &table],
            )
            .await?;
        Ok(answer.rows.first().map(|row| Spread {
            storage: StorageRow::of(row),
            estimate: row.get("estimate"),
            missing: super::stats::unsigned(row, "missing"),
            why: row.get("why"),
        }))
    }

    /// Size and housekeeping of one of our tables, wherever its rows are; and what the sums leave out.
    pub(crate) async fn storage(
        &self,
        executor: &impl Executor,
        table: &str,
    ) -> Result<(StorageRow, Option<String>)> {
        match self.spread(executor, table).await? {
            Some(spread) => {
                let gap = spread.gap();
                Ok((spread.storage, gap))
            }
            None => Ok((self.stats_storage(executor, table).await?, None)),
        }
    }

    /// Has Citus' nodes keep what this transaction sets with `set local`: they wait for locks on rows, not we.
    pub(super) async fn propagate_limits(&self, tx: &impl Executor) -> Result<()> {
        if self.is_citus() {
            tx.run(self.statement(&PROPAGATE_LIMITS), &[]).await?;
        }
        Ok(())
    }
}
