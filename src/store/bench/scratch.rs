//! A schema of the benchmark's own: made, filled, and dropped again.

use tokio_postgres::types::Type;

use super::Scrap;
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::store::{Executor, Tables};

/// Stands in the comment of every scratch schema. A schema without it is never dropped.
const MARK: &str = "scratch schema of idemctl bench; nothing in it is worth keeping";

/// Fails where the schema exists, which is the point.
const CREATE: Scrap = Scrap {
    name: "bench_create_schema",
    text: "-- idemctl:bench_create_schema
create schema {schema}",
    types: &[],
};

/// A comment takes no parameters, and an apostrophe is not in it.
const MARK_SCHEMA: Scrap = Scrap {
    name: "bench_mark_schema",
    text: "-- idemctl:bench_mark_schema
comment on schema {schema} is 'scratch schema of idemctl bench; nothing in it is worth keeping'",
    types: &[],
};

const FIND: Scrap = Scrap {
    name: "bench_find_schema",
    text: "-- idemctl:bench_find_schema
select n.nspname::text as name, n.oid
  from pg_catalog.pg_namespace n
 where pg_catalog.obj_description(n.oid, 'pg_namespace') = $1
 order by n.nspname",
    types: &[Type::TEXT],
};

const DROP: Scrap = Scrap {
    name: "bench_drop_schema",
    text: "-- idemctl:bench_drop_schema
drop schema {schema} cascade",
    types: &[],
};

/// Keys that were done an hour ago.
const FILL_DONE: Scrap = Scrap {
    name: "bench_fill_done",
    text: "-- idemctl:bench_fill_done
insert into {keys} (client_id, key, fingerprint, status, locked_until, status_code, response, created_at,
                    completed_at, lease_token, owner, operation)
select $1, 'order-' || n, $2, 'done', now() - interval '59 min', 201, $3::json, now() - interval '1 h',
       now() - interval '1 h', gen_random_uuid(), 'bench', $4
  from generate_series($5, $6) n",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::INT8,
        Type::INT8,
    ],
};

/// Keys whose holder is gone.
const FILL_EXPIRED: Scrap = Scrap {
    name: "bench_fill_expired",
    text: "-- idemctl:bench_fill_expired
insert into {keys} (client_id, key, fingerprint, status, locked_until, created_at, lease_token, owner, operation)
select $1, 'order-' || n, $2, 'in_progress', now() - interval '59 min', now() - interval '1 h',
       gen_random_uuid(), 'bench', $3
  from generate_series($4, $5) n",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::INT8, Type::INT8],
};

const ANALYZE: Scrap = Scrap {
    name: "bench_analyze",
    text: "-- idemctl:bench_analyze
analyze {keys}",
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

/// Rows `from` to `to` of keys that are done.
pub(crate) async fn fill_done(
    executor: &impl Executor,
    tables: &Tables,
    client: &str,
    (fingerprint, body, operation): (&str, &str, &str),
    (from, to): (i64, i64),
) -> Result<()> {
    executor
        .run(
            &FILL_DONE.of(tables),
            &[
                /* client_id */ &client,
                /* fingerprint */ &fingerprint,
                /* response */ &body,
                /* operation */ &operation,
                /* from */ &from,
                /* to */ &to,
            ],
        )
        .await?;
    Ok(())
}

/// Rows `from` to `to` of keys whose lease is over.
pub(crate) async fn fill_expired(
    executor: &impl Executor,
    tables: &Tables,
    client: &str,
    (fingerprint, operation): (&str, &str),
    (from, to): (i64, i64),
) -> Result<()> {
    executor
        .run(
            &FILL_EXPIRED.of(tables),
            &[
                /* client_id */ &client,
                /* fingerprint */ &fingerprint,
                /* operation */ &operation,
                /* from */ &from,
                /* to */ &to,
            ],
        )
        .await?;
    Ok(())
}

/// Tells the planner what there is.
pub(crate) async fn analyze(executor: &impl Executor, tables: &Tables) -> Result<()> {
    executor.run(&ANALYZE.of(tables), &[]).await?;
    Ok(())
}
