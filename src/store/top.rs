//! What the server counts by itself, for rates: a few words of its memory, however large the table is.

use tokio_postgres::types::Type;

use super::{Executor, Sql, Store};
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// Rows written since the statistics were reset, over the leaves where the table is partitioned. Rolled back
/// transactions count too (PostgreSQL manual, `pg_stat_all_tables`).
const TOP_COUNTERS: Sql = Sql {
    name: "top_counters",
    text: "-- idemctl:top_counters
select now() as now,
       sum(pg_stat_get_tuples_inserted(leaf.oid))::int8 as inserted,
       sum(pg_stat_get_tuples_updated(leaf.oid))::int8 as updated,
       sum(pg_stat_get_tuples_deleted(leaf.oid))::int8 as deleted
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
  join pg_class leaf on leaf.relkind = 'r'
       and (leaf.oid = c.oid or leaf.oid in (select relid from pg_partition_tree(c.oid) where isleaf))
 where n.nspname = $1 and c.relname = 'idempotency'",
    types: &[Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[TOP_COUNTERS];

/// Rows written to the key table since somebody reset the server's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// The database's time at which this was read.
    pub now: Timestamp,
    /// Inserted: keys claimed for the first time.
    pub inserted: i64,
    /// Updated: completions, renewals, takeovers and what operators wrote.
    pub updated: i64,
    /// Deleted: by the purge, by a release, or given back by a service whose work had not begun.
    pub deleted: i64,
}

impl Store {
    /// The server's own counters of the key table.
    pub(crate) async fn top_counters(&self, executor: &impl Executor) -> Result<Counters> {
        let answer = executor
            .run(self.statement(&TOP_COUNTERS), &[/* schema */ &self.tables.schema])
            .await?;
        let row = answer.rows.first().ok_or_else(|| Error::Inconsistent {
            what: "an aggregate gave no row".to_owned(),
        })?;
        let count = |column: &str| row.get::<_, Option<i64>>(column).unwrap_or_default();
        Ok(Counters {
            now: row.get("now"),
            inserted: count("inserted"),
            updated: count("updated"),
            deleted: count("deleted"),
        })
    }
}
