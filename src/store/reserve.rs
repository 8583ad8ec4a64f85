//! The claim: a statement that takes the key, and one that reads who has it.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::key_row::{headers, status_code};
use super::{Executor, Sql, Store, one_row};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::record::State;
use crate::response::Response;
use crate::time::Timestamp;

/// Takes the key where nobody has it. A conflict costs no transaction id, no row lock and no WAL: it is found before
/// anything is written. `on conflict` waits only while a competitor's insert is not committed yet.
///
/// One statement that does this and reads the row on a conflict was measured as well (PostgreSQL 15, CPU time of the
/// server's process for one claim, a bare INSERT taking 24 us and a bare SELECT 16): 50 us for a new key and 38 for
/// a repeat, against 31 for this one and 18 for `LOOK_AT` alone. On Citus it was three times slower.
const CLAIM: Sql = Sql {
    name: "claim",
    text: "-- idemctl:claim
insert into {keys} (client_id, key, fingerprint, status, locked_until, created_at, lease_token, owner,
                    operation, provider, order_id)
values ($1, $2, $3, 'in_progress', now() + make_interval(secs => $4), now(), $5, $6, $7, $8, $9)
on conflict (client_id, key) do nothing
returning locked_until",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::FLOAT8,
        Type::UUID,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
    ],
};

/// Takes over an expired row. Everything that was seen stands in the condition, so that of two retries one
/// wins, and a row that was renewed, completed or released meanwhile is not touched.
///
/// `operation` stays as it was: it is part of the provider key, which must be the same for every attempt.
const TAKE_OVER: Sql = Sql {
    name: "take_over",
    text: "-- idemctl:take_over
update {keys}
   set locked_until = now() + make_interval(secs => $3), lease_token = $4, owner = $5, attempt = attempt + 1,
       provider = coalesce(provider, $6), order_id = coalesce(order_id, $7)
 where client_id = $1 and key = $2 and status = 'in_progress' and locked_until <= now()
   and fingerprint = $8 and lease_token is not distinct from $9 and attempt = $10 and locked_until = $11
   and operation is not distinct from $12
returning attempt, provider, order_id, locked_until",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::FLOAT8,
        Type::UUID,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::UUID,
        Type::INT4,
        Type::TIMESTAMPTZ,
        Type::TEXT,
    ],
};

/// The claim of the same-database mode: a lease without length, since until the commit nobody else can touch the
/// row. A competitor's uncommitted insert is waited for.
const CLAIM_IN_TRANSACTION: Sql = Sql {
    name: "claim_in_transaction",
    text: "-- idemctl:claim_in_transaction
insert into {keys} (client_id, key, fingerprint, status, locked_until, created_at, lease_token, owner, operation)
values ($1, $2, $3, 'in_progress', now(), now(), $4, $5, $6)
on conflict (client_id, key) do nothing
returning attempt",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT, Type::UUID, Type::TEXT, Type::TEXT],
};

/// What a claim needs to know of the row that it met.
const LOOK_AT: Sql = Sql {
    name: "look_at",
    text: "-- idemctl:look_at
select k.fingerprint::text as fingerprint, k.operation, k.status::text as status,
           k.locked_until, k.locked_until <= now() as lease_over,
           case when k.status = 'in_progress' and isfinite(k.locked_until)
                then extract(epoch from k.locked_until - now())::float8 end as lease_remaining_seconds,
           k.attempt, k.lease_token, k.owner, k.provider, k.order_id, k.last_error,
           k.status_code::int4 as status_code, k.response_headers::text as response_headers,
           coalesce(k.response_body, convert_to(k.response::text, 'UTF8'), ''::bytea) as body,
           coalesce(k.completed_at, greatest(k.created_at, k.locked_until)) as retained_from
      from {keys} k
     where k.client_id = $1 and k.key = $2",
    types: &[Type::TEXT, Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[CLAIM, TAKE_OVER, CLAIM_IN_TRANSACTION, LOOK_AT];

/// What a claim writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewClaim<'a> {
    pub(crate) id: &'a KeyId,
    pub(crate) fingerprint: &'a str,
    pub(crate) lease: Duration,
    pub(crate) token: Uuid,
    pub(crate) owner: &'a str,
    pub(crate) operation: Option<&'a str>,
    pub(crate) provider: Option<&'a str>,
    pub(crate) order_id: Option<&'a str>,
}

/// The row that a claim met.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) fingerprint: String,
    pub(crate) operation: Option<String>,
    pub(crate) status: String,
    pub(crate) state: Option<State>,
    pub(crate) locked_until: Timestamp,
    pub(crate) lease_remaining_seconds: Option<f64>,
    pub(crate) attempt: i32,
    pub(crate) token: Option<Uuid>,
    pub(crate) owner: Option<String>,
    pub(crate) provider: Option<String>,
    pub(crate) order_id: Option<String>,
    pub(crate) last_error: Option<String>,
    pub(crate) response: Option<Response>,
    pub(crate) retained_from: Option<Timestamp>,
}

/// What a takeover gave.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub(crate) attempt: i32,
    pub(crate) until: Timestamp,
    pub(crate) provider: Option<String>,
    pub(crate) order_id: Option<String>,
}

impl Store {
    /// Takes the key, and gives the end of the lease as it was written; `None`: somebody has or had it.
    pub(crate) async fn claim(
        &self,
        executor: &impl Executor,
        new: &NewClaim<'_>,
    ) -> Result<Option<Timestamp>> {
        let answer = executor
            .run(
                self.statement(&CLAIM),
                &[
                    /* client_id */ &new.id.client_id(),
                    /* key */ &new.id.key(),
                    /* fingerprint */ &new.fingerprint,
                    /* lease seconds */ &new.lease.as_secs_f64(),
                    /* lease_token */ &new.token,
                    /* owner */ &new.owner,
                    /* operation */ &new.operation,
                    /* provider */ &new.provider,
                    /* order_id */ &new.order_id,
                ],
            )
            .await?;
        Ok(answer.rows.first().map(|row| row.get("locked_until")))
    }

    /// Takes over the expired row that was seen; `None` when it changed meanwhile.
    pub(crate) async fn take_over(
        &self,
        executor: &impl Executor,
        new: &NewClaim<'_>,
        seen: &Seen,
    ) -> Result<Option<TakenOver>> {
        let answer = executor
            .run(
                self.statement(&TAKE_OVER),
                &[
                    /* client_id */ &new.id.client_id(),
                    /* key */ &new.id.key(),
                    /* lease seconds */ &new.lease.as_secs_f64(),
                    /* lease_token */ &new.token,
                    /* owner */ &new.owner,
                    /* provider */ &new.provider,
                    /* order_id */ &new.order_id,
                    /* fingerprint seen */ &seen.fingerprint,
                    /* lease_token seen */ &seen.token,
                    /* attempt seen */ &seen.attempt,
                    /* locked_until seen */ &seen.locked_until,
                    /* operation seen */ &seen.operation,
                ],
            )
            .await?;
        Ok(answer.rows.first().map(|row| TakenOver {
            attempt: row.get("attempt"),
            until: row.get("locked_until"),
            provider: row.get("provider"),
            order_id: row.get("order_id"),
        }))
    }

    /// The claim inside the caller's own transaction; waits for a competitor. `true` when the key is ours.
    pub(crate) async fn claim_in_transaction(&self, tx: &impl Executor, new: &NewClaim<'_>) -> Result<bool> {
        let statement = self.statement(&CLAIM_IN_TRANSACTION);
        let answer = tx
            .run(
                statement,
                &[
                    /* client_id */ &new.id.client_id(),
                    /* key */ &new.id.key(),
                    /* fingerprint */ &new.fingerprint,
                    /* lease_token */ &new.token,
                    /* owner */ &new.owner,
                    /* operation */ &new.operation,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// The row as a claim would meet it.
    pub(crate) async fn look_at(&self, executor: &impl Executor, id: &KeyId) -> Result<Option<Seen>> {
        let answer = executor
            .run(
                self.statement(&LOOK_AT),
                &[/* client_id */ &id.client_id(), /* key */ &id.key()],
            )
            .await?;
        answer.rows.first().map(|row| seen(id, row)).transpose()
    }
}

fn seen(id: &KeyId, row: &Row) -> Result<Seen> {
    let status: String = row.get("status");
    let state = State::from_row(&status, row.get("lease_over"));
    let response = match state {
        Some(State::Done | State::Failed) => {
            let headers = headers(id, row.get("response_headers"))?;
            Some(Response::from_stored(
                status_code(row.get("status_code")),
                headers,
                row.get("body"),
            ))
        }
        _ => None,
    };
    Ok(Seen {
        fingerprint: row.get("fingerprint"),
        operation: row.get("operation"),
        status,
        state,
        locked_until: row.get("locked_until"),
        lease_remaining_seconds: row.get("lease_remaining_seconds"),
        attempt: row.get("attempt"),
        token: row.get("lease_token"),
        owner: row.get("owner"),
        provider: row.get("provider"),
        order_id: row.get("order_id"),
        last_error: row.get("last_error"),
        response,
        retained_from: row.get("retained_from"),
    })
}

/// A row with a status that we do not know is never touched.
pub(crate) fn unknown_status(id: &KeyId, status: &str) -> Error {
    Error::Inconsistent {
        what: format!("the row {id} has the unknown status {status:?}; nothing was changed"),
    }
}
