//! What the catalogue says of the table's partitions and indexes, and who builds one right now.

use tokio_postgres::types::Type;

use crate::error::Result;
use crate::store::{Executor, Sql, Tables};

/// The table, or one table of its partition tree.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) oid: u32,
    pub(crate) parent: Option<u32>,
    pub(super) kind: String,
    pub(super) schema: String,
    pub(super) name: String,
}

const NODES: Sql = Sql {
    name: "migrate_nodes",
    text: "-- idemctl:migrate_nodes
with root as (
    select c.oid from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
     where n.nspname = $1 /* schema */ and c.relname = 'idempotency' and c.relkind in ('r', 'p')
), node as (
    select root.oid, null::oid as parent, 0 as level from root
    union all
    select tree.relid::oid, tree.parentrelid::oid, tree.level
      from root, pg_partition_tree(root.oid) tree
     where tree.level > 0
)
select c.oid, node.parent, c.relkind::text as kind, n.nspname::text as schema, c.relname::text as name
  from node
  join pg_class c on c.oid = node.oid
  join pg_namespace n on n.oid = c.relnamespace
 order by node.level, n.nspname, c.relname",
    types: &[Type::TEXT],
};

/// The table and its partitions, parents first; empty where there is no table.
pub(crate) async fn nodes(executor: &impl Executor, schema: &str) -> Result<Vec<Node>> {
    let statement = Tables::new("").statement(&NODES);
    let answer = executor.run(&statement, &[/* schema */ &schema]).await?;
    let node = |row: &tokio_postgres::Row| Node {
        oid: row.get("oid"),
        parent: row.get("parent"),
        kind: row.get("kind"),
        schema: row.get("schema"),
        name: row.get("name"),
    };
    Ok(answer.rows.iter().map(node).collect())
}

/// An index that is there.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(super) oid: u32,
    pub(super) table: u32,
    pub(super) schema: String,
    pub(crate) name: String,
    pub(super) valid: bool,
    pub(super) method: String,
    pub(super) first_column: Option<String>,
    pub(super) predicate: Option<String>,
    pub(super) parent: Option<u32>,
}

const INDEXES: Sql = Sql {
    name: "migrate_indexes",
    text: "-- idemctl:migrate_indexes
select c.oid, i.indrelid as table, n.nspname::text as schema, c.relname::text as name,
       i.indisvalid as valid, m.amname::text as method,
       (select a.attname::text from pg_attribute a
         where a.attrelid = i.indrelid and a.attnum = i.indkey[0]) as first_column,
       pg_get_expr(i.indpred, i.indrelid) as predicate,
       (select h.inhparent from pg_inherits h where h.inhrelid = c.oid) as parent
  from pg_index i
  join pg_class c on c.oid = i.indexrelid
  join pg_namespace n on n.oid = c.relnamespace
  join pg_am m on m.oid = c.relam
 where i.indrelid = any($1 /* tables */)
 order by c.relname",
    types: &[Type::OID_ARRAY],
};

/// Every index of these tables.
pub(crate) async fn indexes(executor: &impl Executor, nodes: &[Node]) -> Result<Vec<Index>> {
    let tables: Vec<u32> = nodes.iter().map(|node| node.oid).collect();
    let statement = Tables::new("").statement(&INDEXES);
    let answer = executor.run(&statement, &[/* tables */ &tables]).await?;
    let index = |row: &tokio_postgres::Row| Index {
        oid: row.get("oid"),
        table: row.get("table"),
        schema: row.get("schema"),
        name: row.get("name"),
        valid: row.get("valid"),
        method: row.get("method"),
        first_column: row.get("first_column"),
        predicate: row.get("predicate"),
        parent: row.get("parent"),
    };
    Ok(answer.rows.iter().map(index).collect())
}

const BUILDERS: Sql = Sql {
    name: "migrate_builders",
    // The progress view hides what other roles do, the lock does not. Vacuum and analyze hold the same lock. A
    // build that has let go of its lock and not yet committed shows by its text alone, to its own role.
    text: "-- idemctl:migrate_builders
select l.pid
  from pg_locks l
 where l.locktype = 'relation' and l.granted and l.mode = 'ShareUpdateExclusiveLock'
   and l.database = (select d.oid from pg_database d where d.datname = current_database())
   and l.relation = $1 /* table */ and l.pid <> pg_backend_pid()
   and not exists (select from pg_stat_progress_vacuum v where v.pid = l.pid)
   and not exists (select from pg_stat_progress_analyze a where a.pid = l.pid)
union
select p.pid
  from pg_stat_progress_create_index p
 where p.relid = $1 /* table */ and p.datname = current_database() and p.pid <> pg_backend_pid()
union
select a.pid
  from pg_stat_activity a
 where a.datname = current_database() and a.state = 'active' and a.pid <> pg_backend_pid()
   and a.query ~* '^\\s*(--[^\\n]*\\n\\s*)*(create\\s+(unique\\s+)?index|reindex)\\M'
   and not exists (select from pg_locks l
                    where l.pid = a.pid and l.locktype = 'relation' and l.mode = 'ShareUpdateExclusiveLock')",
    types: &[Type::OID],
};

/// Processes that are building an index on the table right now.
pub(crate) async fn builders(executor: &impl Executor, table: u32) -> Result<Vec<i32>> {
    let statement = Tables::new("").statement(&BUILDERS);
    let answer = executor.run(&statement, &[/* table */ &table]).await?;
    Ok(answer.rows.iter().map(|row| row.get("pid")).collect())
}

const UNSETTLED: Sql = Sql {
    name: "migrate_unsettled",
    text: "-- idemctl:migrate_unsettled
select exists (select from pg_locks l
                where l.locktype = 'virtualxid' and l.granted and l.pid = any($1 /* pids */)) as unsettled",
    types: &[Type::INT4_ARRAY],
};

/// Whether one of these processes is within a transaction.
///
/// A build lets go of its lock just before it commits that the index is valid.
pub(crate) async fn unsettled(executor: &impl Executor, pids: &[i32]) -> Result<bool> {
    let statement = Tables::new("").statement(&UNSETTLED);
    let answer = executor.run(&statement, &[/* pids */ &pids]).await?;
    Ok(answer.rows.first().is_some_and(|row| row.get("unsettled")))
}

/// The statements of this file.
pub(crate) const STATEMENTS: &[Sql] = &[NODES, INDEXES, BUILDERS, UNSETTLED];
