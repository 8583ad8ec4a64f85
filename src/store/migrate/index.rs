//! An index on a table in use: which steps are left, on a plain or a partitioned table.

use std::collections::HashMap;

use super::catalogue::{Index, Node};
use crate::error::{Error, Result};
use crate::store::{Tables, quote_ident};

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

/// The step towards an index of a partitioned table that is not there yet: it is empty, so that nobody has to wait for
/// anything, and building concurrently is refused on a partitioned table (PostgreSQL manual, CREATE INDEX).
pub(crate) fn plan_index_of_new(wanted: &Wanted, template: &str, tables: &Tables) -> Action {
    create(template, &tables.fill("{keys}"), wanted.name, false)
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
