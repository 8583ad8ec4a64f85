//! Sizes and housekeeping from the catalogue, the oldest expired key, and how fast purges went.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::unsigned;
use crate::error::Result;
use crate::store::purge::no_row;
use crate::store::{Executor, Sql, Store};
use crate::time::Timestamp;

const STATS_OLDEST_EXPIRED: Sql = Sql {
    name: "stats_oldest_expired",
    text: "-- idemctl:stats_oldest_expired
select client_id::text as client_id, key::text as key, provider, created_at, locked_until,
       case when isfinite(locked_until) then extract(epoch from now() - locked_until)::float8 end as over_seconds
  from {keys}
 where status = 'in_progress' and locked_until <= now()
 order by locked_until
 limit 1",
    types: &[],
};

/// Sums over the leaves: a partitioned parent has no size and no statistics of its own.
const STATS_STORAGE: Sql = Sql {
    name: "stats_storage",
    text: "-- idemctl:stats_storage
with root as (
    select c.oid, c.relkind
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 /* schema */ and c.relname = $2 /* table */ and c.relkind in ('r', 'p')
), leaf as (
    select root.oid from root where root.relkind = 'r'
    union all
    select t.relid::oid from root, pg_partition_tree(root.oid) t where root.relkind = 'p' and t.isleaf
), part as (
    select coalesce(pg_table_size(c.oid), 0) as with_toast,
           coalesce(pg_indexes_size(c.oid), 0) as indexes,
           case when c.reltoastrelid = 0 then 0
                else coalesce(pg_total_relation_size(c.reltoastrelid), 0) end as toast,
           coalesce(pg_relation_size(c.oid), 0) as pages_bytes,
           s.n_dead_tup, s.n_live_tup, s.n_mod_since_analyze, s.last_vacuum, s.last_autovacuum, s.last_analyze,
           s.last_autoanalyze
      from leaf
      join pg_class c on c.oid = leaf.oid
      left join pg_stat_all_tables s on s.relid = c.oid
)
select now() as now,
       count(*) as tables,
       coalesce(sum(with_toast - toast), 0)::int8 as table_bytes,
       coalesce(sum(indexes), 0)::int8 as index_bytes,
       coalesce(sum(toast), 0)::int8 as toast_bytes,
       coalesce(sum(pages_bytes), 0)::int8 as pages_bytes,
       coalesce(sum(n_dead_tup), 0)::int8 as dead_rows,
       coalesce(sum(n_live_tup), 0)::int8 as live_rows,
       coalesce(sum(n_mod_since_analyze), 0)::int8 as changed_rows,
       min(last_vacuum) as last_vacuum, min(last_autovacuum) as last_autovacuum,
       min(last_analyze) as last_analyze, min(last_autoanalyze) as last_autoanalyze,
       count(*) filter (where last_vacuum is null and last_autovacuum is null) as never_vacuumed,
       count(*) filter (where last_analyze is null and last_autoanalyze is null) as never_analyzed
  from part",
    types: &[Type::TEXT, Type::TEXT],
};

/// How fast the last purges went: each batch has an event, and the time between two batches of a run is what the
/// second one took.
const STATS_PURGE_RATE: Sql = Sql {
    name: "stats_purge_rate",
    text: "-- idemctl:stats_purge_rate
with recent as (
    select e.id, e.at, e.action, e.details ->> 'deleted' as deleted
      from {events} e
     order by e.id desc
     limit 1000
), batch as (
    select at - lag(at) over (order by id) as took,
           case when deleted ~ '^[0-9]{1,9}$' then deleted::int8 end as deleted
      from recent
     where action = 'purge'
)
select sum(deleted)::float8 as deleted, extract(epoch from sum(took))::float8 as seconds
  from batch
 where took > interval '0' and took < interval '1 minute' and deleted is not null",
    types: &[],
};

pub(crate) const STATEMENTS: &[Sql] = &[STATS_OLDEST_EXPIRED, STATS_STORAGE, STATS_PURGE_RATE];

/// The expired key that has waited longest.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OldestRow {
    pub(crate) client_id: String,
    pub(crate) key: String,
    pub(crate) provider: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) locked_until: Timestamp,
    pub(crate) over_seconds: Option<f64>,
}

/// Sizes and the housekeeping of a table, summed over its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorageRow {
    pub(crate) now: Timestamp,
    pub(crate) tables: u64,
    pub(crate) table_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) toast_bytes: u64,
    /// The pages that hold rows, without the maps beside them.
    pub(crate) pages_bytes: u64,
    pub(crate) dead_rows: u64,
    pub(crate) live_rows: u64,
    pub(crate) changed_rows: u64,
    pub(crate) last_vacuum: Option<Timestamp>,
    pub(crate) last_autovacuum: Option<Timestamp>,
    pub(crate) last_analyze: Option<Timestamp>,
    pub(crate) last_autoanalyze: Option<Timestamp>,
    pub(crate) never_vacuumed: u64,
    pub(crate) never_analyzed: u64,
}

impl StorageRow {
    /// Numbers that a sum over nothing leaves null are 0.
    pub(in crate::store) fn of(row: &Row) -> Self {
        Self {
            now: row.get("now"),
            tables: unsigned(row, "tables"),
            table_bytes: unsigned(row, "table_bytes"),
            index_bytes: unsigned(row, "index_bytes"),
            toast_bytes: unsigned(row, "toast_bytes"),
            pages_bytes: unsigned(row, "pages_bytes"),
            dead_rows: unsigned(row, "dead_rows"),
            live_rows: unsigned(row, "live_rows"),
            changed_rows: unsigned(row, "changed_rows"),
            last_vacuum: row.get("last_vacuum"),
            last_autovacuum: row.get("last_autovacuum"),
            last_analyze: row.get("last_analyze"),
            last_autoanalyze: row.get("last_autoanalyze"),
            never_vacuumed: unsigned(row, "never_vacuumed"),
            never_analyzed: unsigned(row, "never_analyzed"),
        }
    }
}

impl Store {
    /// The expired key whose lease ended first.
    pub(crate) async fn stats_oldest_expired(&self, executor: &impl Executor) -> Result<Option<OldestRow>> {
        let answer = executor.run(self.statement(&STATS_OLDEST_EXPIRED), &[]).await?;
        Ok(answer.rows.first().map(|row| OldestRow {
            client_id: row.get("client_id"),
            key: row.get("key"),
            provider: row.get("provider"),
            created_at: row.get("created_at"),
            locked_until: row.get("locked_until"),
            over_seconds: row.get("over_seconds"),
        }))
    }

    /// Sizes and housekeeping of one of our tables; zeros where there is none of that name.
    pub(crate) async fn stats_storage(&self, executor: &impl Executor, table: &str) -> Result<StorageRow> {
        let statement = self.statement(&STATS_STORAGE);
        let answer = executor
            .run(statement, &[/* schema */ &self.schema(), /* table */ &table])
            .await?;
        let row = answer.rows.first().ok_or_else(|| no_row(statement.name))?;
        Ok(StorageRow::of(row))
    }

    /// Rows a second of the last purges, as their events tell; `None` where no two batches followed each other.
    pub(crate) async fn stats_purge_rate(&self, executor: &impl Executor) -> Result<Option<f64>> {
        let answer = executor.run(self.statement(&STATS_PURGE_RATE), &[]).await?;
        let Some(row) = answer.rows.first() else {
            return Ok(None);
        };
        let (deleted, seconds): (Option<f64>, Option<f64>) = (row.get("deleted"), row.get("seconds"));
        Ok(deleted
            .zip(seconds)
            .filter(|(deleted, seconds)| *deleted > 0.0 && *seconds > 0.0)
            .map(|(deleted, seconds)| deleted / seconds))
    }
}
