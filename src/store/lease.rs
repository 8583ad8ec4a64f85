//! What the holder of a lease may do. Every statement carries the token and `status = 'in_progress'`; no row
//! touched means that the lease is lost.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Executor, ResponseType, Sql, Store, one_row};
use crate::error::Result;
use crate::key::KeyId;
use crate::response::{Response, fits_json, fits_jsonb};

const COMPLETE: Sql = Sql {
    name: "complete",
    text: "-- idemctl:complete
update {keys}
   set status = 'done', status_code = $4, response = $5::json, response_headers = $6::jsonb, response_body = $7,
       completed_at = now(), last_error = null
 where client_id = $1 and key = $2 and lease_token = $3 and status = 'in_progress'",
    types: &[Type::TEXT, Type::TEXT, Type::UUID, Type::INT4, Type::TEXT, Type::TEXT, Type::BYTEA],
};

/// A renewal only ever lengthens a lease.
const RENEW: Sql = Sql {
    name: "renew",
    text: "-- idemctl:renew
update {keys}
   set locked_until = greatest(locked_until, now() + make_interval(secs => $4))
 where client_id = $1 and key = $2 and lease_token = $3 and status = 'in_progress'",
    types: &[Type::TEXT, Type::TEXT, Type::UUID, Type::FLOAT8],
};

/// Only a first attempt may take the row away: after a takeover an earlier attempt may have reached the
/// provider, and the row is all that is known of it.
const ABANDON: Sql = Sql {
    name: "abandon",
    text: "-- idemctl:abandon
delete from {keys}
 where client_id = $1 and key = $2 and lease_token = $3 and status = 'in_progress' and attempt = 1",
    types: &[Type::TEXT, Type::TEXT, Type::UUID],
};

const END_LEASE: Sql = Sql {
    name: "end_lease",
    text: "-- idemctl:end_lease
update {keys}
   set locked_until = least(locked_until, now()), last_error = $4
 where client_id = $1 and key = $2 and lease_token = $3 and status = 'in_progress'",
    types: &[Type::TEXT, Type::TEXT, Type::UUID, Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[COMPLETE, RENEW, ABANDON, END_LEASE];

impl Store {
    /// Stores the response; `false` when the lease is lost.
    pub(crate) async fn complete(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        token: Uuid,
        response: &Response,
    ) -> Result<bool> {
        let statement = self.statement(&COMPLETE);
        let (json, bytes) = self.columns_for(response.body());
        let headers = (!response.headers().is_empty()).then(|| headers_text(response));
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* lease_token */ &token,
                    /* status_code */ &i32::from(response.status_code()),
                    /* response */ &json,
                    /* response_headers */ &headers,
                    /* response_body */ &bytes,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// Lets the lease end no earlier than `lease` from now; `false` when it is lost.
    pub(crate) async fn renew(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        token: Uuid,
        lease: Duration,
    ) -> Result<bool> {
        let statement = self.statement(&RENEW);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* lease_token */ &token,
                    /* lease seconds */ &lease.as_secs_f64(),
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// Deletes the row of a first attempt; `false` when the lease is lost or this is no first attempt.
    pub(crate) async fn abandon(&self, executor: &impl Executor, id: &KeyId, token: Uuid) -> Result<bool> {
        let statement = self.statement(&ABANDON);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* lease_token */ &token,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// Ends the lease now and keeps the row in progress; `false` when the lease is lost.
    pub(crate) async fn end_lease(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        token: Uuid,
        last_error: &str,
    ) -> Result<bool> {
        let statement = self.statement(&END_LEASE);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* lease_token */ &token,
                    /* last_error */ &last_error,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// Which columns hold a body: `response` where its type keeps the bytes or other programs read it,
    /// `response_body` where `response` alone would not give the same bytes back.
    pub(crate) fn columns_for<'a>(&self, body: &'a [u8]) -> (Option<&'a str>, Option<&'a [u8]>) {
        let json = fits_json(body, self.shape.utf8);
        match (self.shape.response_type(), json) {
            (ResponseType::Json, Some(text)) => (Some(text), None),
            (ResponseType::Jsonb, Some(text)) if fits_jsonb(text) => (Some(text), Some(body)),
            (_, _) => (None, Some(body)),
        }
    }
}

/// Headers as an array of pairs, which keeps their order and repetitions in `jsonb`.
pub(crate) fn headers_text(response: &Response) -> String {
    serde_json::json!(response.headers()).to_string()
}
