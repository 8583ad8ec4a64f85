//! An index on a table in use: what is there, and which steps are left, on a plain or a partitioned table.

use std::collections::HashMap;

use tokio_postgres::types::Type;

use crate::error::{Error, Result};
use crate::store::{Executor, Sql, Tables, quote_ident};

/// An index that a migration makes.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) name: &'static str,
    /// What is added to a partition's name to get the name of its part.
    suffix: &'static str,
    column: &'static str,
    /// Whether it covers only the rows in progress.
    in_progress_only: bool,
}

pub(super) const CREATED_AT: Wanted = Wanted {
    name: "idempotency_created_at_idx",
    suffix: "_created_at_idx",
    column: "created_at",
    in_progress_only: false,
};

pub(super) const EXPIRED: Wanted = Wanted {
    name: "idempotency_expired_idx",
    suffix: "_expired_idx",
    column: "locked_until",
    in_progress_only: true,
};

/// The table, or one table of its partition tree.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    oid: u32,
    parent: Option<u32>,
    kind: String,
    schema: String,
    name: String,
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
    oid: u32,
    table: u32,
    schema: String,
    pub(crate) name: String,
    valid: bool,
    method: String,
    first_column: Option<String>,
    predicate: Option<String>,
    parent: Option<u32>,
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
    // The progress view hides what other roles do, the lock does not. Vacuum and analyze hold the same lock.
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
 where p.relid = $1 /* table */ and p.datname = current_database() and p.pid <> pg_backend_pid()",
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

/// One step towards an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) sql: String,
    /// Whether it must run outside a transaction.
    pub(crate) concurrently: bool,
    /// A table whose running index build has to end first.
    pub(crate) after_builders_on: Option<u32>,
}

impl Index {
    /// Whether the index does what `wanted` is for; perhaps under another name, or with further columns.
    fn serves(&self, wanted: &Wanted) -> bool {
        let covers = match &self.predicate {
            None => true,
            Some(predicate) => wanted.in_progress_only && is_in_progress(predicate),
        };
        covers && self.method == "btree" && self.first_column.as_deref() == Some(wanted.column)
    }

    fn qualified(&self) -> String {
        format!("{}.{}", quote_ident(&self.schema), quote_ident(&self.name))
    }

    /// A part that belongs to its parent's index already; nobody but its owner can mend it when it is invalid.
    fn chosen_if_sound(&self, node: &Node) -> Result<Chosen> {
        if self.valid || node.kind == "p" {
            return Ok(Chosen {
                oid: Some(self.oid),
                qualified: self.qualified(),
            });
        }
        Err(Error::Migration {
            what: format!(
                "index {0} is attached but not valid; run `reindex index concurrently {0}`, then migrate again",
                self.qualified()
            ),
        })
    }
}

/// `status = 'in_progress'` as PostgreSQL writes it back for text, varchar and char columns.
fn is_in_progress(predicate: &str) -> bool {
    let mut bare = predicate.to_owned();
    for noise in ["(", ")", "::text", "::character varying", "::bpchar", " "] {
        bare = bare.replace(noise, "");
    }
    bare == "status='in_progress'"
}

/// The valid index that does what `wanted` is for, if there is one.
pub(crate) fn serving<'a>(wanted: &Wanted, nodes: &[Node], indexes: &'a [Index]) -> Option<&'a Index> {
    let root = nodes.first()?;
    indexes
        .iter()
        .find(|index| index.table == root.oid && index.valid && index.serves(wanted))
}

/// Which steps are left, in order; none when a valid index does what `wanted` is for.
///
/// `template` is the migration's statement with the table's name not filled in yet.
pub(crate) fn plan_index(
    wanted: &Wanted,
    template: &str,
    tables: &Tables,
    nodes: &[Node],
    indexes: &[Index],
) -> Result<Vec<Action>> {
    if nodes.is_empty() {
        return Ok(vec![create(template, &tables.fill("{keys}"), wanted.name, true)]);
    }
    if serving(wanted, nodes, indexes).is_some() {
        return Ok(Vec::new());
    }
    let mut plan = Plan {
        wanted,
        template,
        indexes,
        chosen: HashMap::new(),
        actions: Vec::new(),
    };
    for node in nodes {
        let part = plan.node(node)?;
        plan.chosen.insert(node.oid, part);
    }
    Ok(plan.actions)
}

struct Plan<'a> {
    wanted: &'a Wanted,
    template: &'a str,
    indexes: &'a [Index],
    /// The index of each table seen so far.
    chosen: HashMap<u32, Chosen>,
    actions: Vec<Action>,
}

/// The index of one table of the tree, there already or planned.
#[derive(Clone)]
struct Chosen {
    oid: Option<u32>,
    qualified: String,
}

impl Plan<'_> {
    fn node(&mut self, node: &Node) -> Result<Chosen> {
        let above = node.parent.and_then(|parent| self.chosen.get(&parent).cloned());
        if let Some(parent) = above.as_ref().and_then(|above| above.oid) {
            let belongs = |index: &&Index| index.table == node.oid && index.parent == Some(parent);
            if let Some(attached) = self.indexes.iter().find(belongs) {
                return attached.chosen_if_sound(node);
            }
        }
        let name = match above {
            None => self.wanted.name.to_owned(),
            Some(_) => part_name(node, self.wanted),
        };
        let chosen = self.own(node, &name)?;
        if let Some(above) = above {
            self.actions.push(Action {
                sql: format!(
                    "alter index {} attach partition {}",
                    above.qualified, chosen.qualified
                ),
                concurrently: false,
                after_builders_on: None,
            });
        }
        Ok(chosen)
    }

    /// Plans the index of this name on one table, whatever an interrupted run has left of it.
    fn own(&mut self, node: &Node, name: &str) -> Result<Chosen> {
        let table = format!("{}.{}", quote_ident(&node.schema), quote_ident(&node.name));
        let partitioned = node.kind == "p";
        let found = self
            .indexes
            .iter()
            .find(|index| index.table == node.oid && index.name == name);
        if let Some(index) = found {
            if !index.serves(self.wanted) {
                return Err(Error::Migration {
                    what: format!(
                        "index {} is not the one that is meant by this name; rename it, then migrate again",
                        index.qualified()
                    ),
                });
            }
            if index.valid || partitioned {
                return Ok(Chosen {
                    oid: Some(index.oid),
                    qualified: index.qualified(),
                });
            }
            self.actions.push(Action {
                sql: format!("drop index concurrently if exists {}", index.qualified()),
                concurrently: true,
                after_builders_on: Some(node.oid),
            });
        }
        self.actions.push(if partitioned {
            create(self.template, &format!("only {table}"), name, false)
        } else {
            create(self.template, &table, name, true)
        });
        Ok(Chosen {
            oid: None,
            qualified: format!("{}.{}", quote_ident(&node.schema), quote_ident(name)),
        })
    }
}

fn create(template: &str, target: &str, name: &str, concurrently: bool) -> Action {
    let sql = template
        .replace("{concurrently} ", if concurrently { "concurrently " } else { "" })
        .replace("{index}", &quote_ident(name))
        .replace("{target}", target);
    Action {
        sql,
        concurrently,
        after_builders_on: None,
    }
}

/// The name of a partition's index: PostgreSQL cuts names at 63 bytes, and two that were cut must still differ.
fn part_name(node: &Node, wanted: &Wanted) -> String {
    const NAME_BYTES: usize = 63;
    let whole = format!("{}{}", node.name, wanted.suffix);
    if whole.len() <= NAME_BYTES {
        whole
    } else {
        format!("idempotency_{}{}", node.oid, wanted.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_predicate_is_known_in_each_spelling_of_the_server() {
        for known in [
            "(status = 'in_progress'::text)",
            "((status)::text = 'in_progress'::text)",
            "(status = 'in_progress'::bpchar)",
        ] {
            assert!(is_in_progress(known), "{known}");
        }
        for other in [
            "(status = 'done'::text)",
            "((status = 'in_progress'::text) AND (attempt > 1))",
        ] {
            assert!(!is_in_progress(other), "{other}");
        }
    }

    #[test]
    fn names_of_parts_are_never_cut() {
        let node = |name: &str| Node {
            oid: 4711,
            parent: Some(1),
            kind: "r".to_owned(),
            schema: "public".to_owned(),
            name: name.to_owned(),
        };
        assert_eq!(
            part_name(&node("idempotency_p0"), &CREATED_AT),
            "idempotency_p0_created_at_idx"
        );
        assert_eq!(
            part_name(&node(&"p".repeat(60)), &CREATED_AT),
            "idempotency_4711_created_at_idx"
        );
    }
}
