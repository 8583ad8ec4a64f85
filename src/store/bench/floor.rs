//! The barest statements that do the same work, with the same columns and without asking anything.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::store::scratch::Scrap;
use crate::store::{Executor, Statement, Tables};

const INSERT: Scrap = Scrap {
    name: "bench_floor_insert",
    text: "-- idemctl:bench_floor_insert
insert into {keys} (client_id, key, fingerprint, status, locked_until, created_at, lease_token, owner, operation)
values ($1, $2, $3, 'in_progress', now() + make_interval(secs => $4), now(), $5, 'bench', $6)",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::FLOAT8,
        Type::UUID,
        Type::TEXT,
    ],
};

const SELECT: Scrap = Scrap {
    name: "bench_floor_select",
    text: "-- idemctl:bench_floor_select
select fingerprint, status, status_code, response::text, response_headers::text
  from {keys} where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT],
};

const UPDATE: Scrap = Scrap {
    name: "bench_floor_update",
    text: "-- idemctl:bench_floor_update
update {keys}
   set status = 'done', status_code = 201, response = $3::json, completed_at = now()
 where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

const EXTEND: Scrap = Scrap {
    name: "bench_floor_extend",
    text: "-- idemctl:bench_floor_extend
update {keys}
   set locked_until = now() + make_interval(secs => $3), lease_token = $4, attempt = attempt + 1
 where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT, Type::FLOAT8, Type::UUID],
};

/// The statements, ready to send.
#[derive(Debug)]
pub(crate) struct Floors {
    insert: Statement,
    select: Statement,
    update: Statement,
    extend: Statement,
}

impl Floors {
    pub(crate) fn new(tables: &Tables) -> Self {
        Self {
            insert: INSERT.of(tables),
            select: SELECT.of(tables),
            update: UPDATE.of(tables),
            extend: EXTEND.of(tables),
        }
    }

    pub(crate) async fn insert(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        (fingerprint, lease, operation): (&str, Duration, &str),
    ) -> Result<()> {
        let answer = executor
            .run(
                &self.insert,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* fingerprint */ &fingerprint,
                    /* lease seconds */ &lease.as_secs_f64(),
                    /* lease_token */ &Uuid::new_v4(),
                    /* operation */ &operation,
                ],
            )
            .await?;
        one(answer.affected, &self.insert)
    }

    pub(crate) async fn select(&self, executor: &impl Executor, id: &KeyId) -> Result<()> {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] =
            [/* client_id */ &id.client_id(), /* key */ &id.key()];
        let answer = executor.run(&self.select, &params).await?;
        one(answer.affected, &self.select)
    }

    pub(crate) async fn update(&self, executor: &impl Executor, id: &KeyId, body: &str) -> Result<()> {
        let answer = executor
            .run(
                &self.update,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* response */ &body,
                ],
            )
            .await?;
        one(answer.affected, &self.update)
    }

    pub(crate) async fn extend(&self, executor: &impl Executor, id: &KeyId, lease: Duration) -> Result<()> {
        let answer = executor
            .run(
                &self.extend,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* lease seconds */ &lease.as_secs_f64(),
                    /* lease_token */ &Uuid::new_v4(),
                ],
            )
            .await?;
        one(answer.affected, &self.extend)
    }
}

/// A floor that did not do its work measures nothing.
fn one(affected: u64, statement: &Statement) -> Result<()> {
    if affected == 1 {
        return Ok(());
    }
    Err(Error::Inconsistent {
        what: format!("{} touched {affected} rows where one was meant", statement.name),
    })
}
