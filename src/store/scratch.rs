//! A schema of our own, for work that must touch nothing else: made, filled, and dropped again.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::{Executor, Statement, Tables};
use crate::connect::Connection;
use crate::error::{Error, Result};

/// A statement for the tables of a scratch schema alone. It is none of the protocol's, so the rules that keep those
/// portable do not hold for it.
pub(crate) struct Scrap {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) types: &'static [Type],
}

impl Scrap {
    pub(crate) fn of(&self, tables: &Tables) -> Statement {
        Statement {
            name: self.name,
            text: Arc::from(tables.fill(self.text)),
            types: self.types,
        }
    }
}

/// Stands in the comment of every scratch schema. A schema without it is never dropped.
const MARK: &str = "scratch schema of idemctl; nothing in it is worth keeping";

/// Fails where the schema exists, which is the point.
const CREATE: Scrap = Scrap {
    name: "scratch_create",
    text: "-- idemctl:scratch_create
create schema {schema}",
    types: &[],
};

/// A comment takes no parameters, and an apostrophe is not in it.
const MARK_SCHEMA: Scrap = Scrap {
    name: "scratch_mark",
    text: "-- idemctl:scratch_mark
comment on schema {schema} is 'scratch schema of idemctl; nothing in it is worth keeping'",
    types: &[],
};

const FIND: Scrap = Scrap {
    name: "scratch_find",
    text: "-- idemctl:scratch_find
select n.nspname::text as name, n.oid
  from pg_catalog.pg_namespace n
 where pg_catalog.obj_description(n.oid, 'pg_namespace') = $1
 order by n.nspname",
    types: &[Type::TEXT],
};

const DROP: Scrap = Scrap {
    name: "scratch_drop",
    text: "-- idemctl:scratch_drop
drop schema {schema} cascade",
    types: &[],
};

/// A schema that we made.
#[derive(Debug, Clone)]
pub(crate) struct Scratch {
    pub(crate) name: String,
    oid: u32,
}

/// Makes the schema; SQLSTATE 42P06 where one of that name exists.
pub(crate) async fn create(connection: &mut Connection, name: &str) -> Result<Scratch> {
    let tables = Tables::new(name);
    let tx = connection.begin().await?;
    tx.run(&CREATE.of(&tables), &[]).await?;
    tx.run(&MARK_SCHEMA.of(&tables), &[]).await?;
    let found = find(&tx).await?.into_iter().find(|scratch| scratch.name == name);
    let scratch = found.ok_or_else(|| Error::Inconsistent {
        what: format!("the schema {name} was made and is not there; nothing was kept"),
    })?;
    tx.commit().await?;
    Ok(scratch)
}

/// Scratch schemas of earlier runs, or of runs that go on right now.
pub(crate) async fn leftovers(executor: &impl Executor) -> Result<Vec<String>> {
    let found = find(executor).await?;
    Ok(found.into_iter().map(|scratch| scratch.name).collect())
}

/// Drops the schema that we made and no other; one that is gone already is no error.
pub(crate) async fn drop_schema(connection: &mut Connection, scratch: &Scratch) -> Result<()> {
    let tx = connection.begin().await?;
    let ours = find(&tx)
        .await?
        .iter()
        .any(|found| found.name == scratch.name && found.oid == scratch.oid);
    if ours {
        tx.run(&DROP.of(&Tables::new(&scratch.name)), &[]).await?;
    }
    tx.commit().await
}

async fn find(executor: &impl Executor) -> Result<Vec<Scratch>> {
    // The catalogue is asked; no name is to be filled in.
    let answer = executor
        .run(&FIND.of(&Tables::new("")), &[/* mark */ &MARK])
        .await?;
    Ok(answer
        .rows
        .iter()
        .map(|row| Scratch {
            name: row.get("name"),
            oid: row.get("oid"),
        })
        .collect())
}
