//! What the holder of a lease may do. Every statement carries the token, `status = 'in_progress'` and the fence
//! of time; no row touched means that the lease is lost.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Executor, ResponseType, Sql, Store, one_row};
use crate::error::Result;
use crate::key::KeyId;
use crate::response::{Response, fits_json, fits_jsonb};
use crate::time::Timestamp;

/// A program that knows only the old columns takes an expired row over by moving `locked_until`, and leaves our
/// token where it was. So the end of the lease as its holder knows it is a fence, too: once that is past, it
/// must still stand in the row. A null says that the holder does not know it (the answer to a renewal is
/// outstanding or was lost), and then the token alone decides.
macro_rules! mine {
    ($until:literal) => {
        concat!(
            "client_id = $1 and key = $2 and lease_token = $3 and status = 'in_progress'
   and (",
            $until,
            "::timestamptz is null or now() < ",
            $until,
            " or locked_until = ",
            $until,
            ")"
        )
    };
}

const COMPLETE: Sql = Sql {
    name: "complete",
    text: concat!(
        "-- idemctl:complete
update {keys}
   set status = 'done', status_code = $4, response = $5::json, response_headers = $6::jsonb, response_body = $7,
       completed_at = now(), last_error = null
 where ",
        mine!("$8")
    ),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::UUID,
        Type::INT4,
        Type::TEXT,
        Type::TEXT,
        Type::BYTEA,
        Type::TIMESTAMPTZ,
    ],
};

/// A renewal only ever lengthens a lease, and never wakes one that was ended while the renewal was on its way.
const RENEW: Sql = Sql {
    name: "renew",
    text: concat!(
        "-- idemctl:renew
update {keys}
   set locked_until = greatest(locked_until, now() + make_interval(secs => $4))
 where ",
        mine!("$5"),
        "
   and ($5 is null or locked_until > now() or locked_until = $5)
returning locked_until"
    ),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::UUID,
        Type::FLOAT8,
        Type::TIMESTAMPTZ,
    ],
};

/// Only a first attempt whose outcome nobody has called unknown may take the row away: otherwise the provider
/// may have been reached, and the row is all that is known of it.
const ABANDON: Sql = Sql {
    name: "abandon",
    text: concat!(
        "-- idemctl:abandon
delete from {keys}
 where attempt = 1 and last_error is null and ",
        mine!("$4")
    ),
    types: &[Type::TEXT, Type::TEXT, Type::UUID, Type::TIMESTAMPTZ],
};

const END_LEASE: Sql = Sql {
    name: "end_lease",
    text: concat!(
        "-- idemctl:end_lease
update {keys}
   set locked_until = now(), last_error = case when $6 then coalesce(last_error, $4) else $4 end
 where ",
        mine!("$5"),
        "
returning locked_until"
    ),
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::UUID,
        Type::TEXT,
        Type::TIMESTAMPTZ,
        Type::BOOL,
    ],
};

pub(crate) const STATEMENTS: &[Sql] = &[COMPLETE, RENEW, ABANDON, END_LEASE];

/// Which row a holder means: its key, its token, and the lease's end as far as it knows it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mine<'a> {
    pub(crate) id: &'a KeyId,
    pub(crate) token: Uuid,
    pub(crate) until: Option<Timestamp>,
}

impl Store {
    /// Stores the response; `false` when the lease is lost.
    pub(crate) async fn complete(
        &self,
        executor: &impl Executor,
        mine: Mine<'_>,
        response: &Response,
    ) -> Result<bool> {
        let statement = self.statement(&COMPLETE);
        let (json, bytes) = self.columns_for(response.body());
        let headers = (!response.headers().is_empty()).then(|| headers_text(response));
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &mine.id.client_id(),
                    /* key */ &mine.id.key(),
                    /* lease_token */ &mine.token,
                    /* status_code */ &i32::from(response.status_code()),
                    /* response */ &json,
                    /* response_headers */ &headers,
                    /* response_body */ &bytes,
                    /* locked_until known */ &mine.until,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// Lets the lease end no earlier than `lease` from now, and gives its end; `None` when it is lost.
    pub(crate) async fn renew(
        &self,
        executor: &impl Executor,
        mine: Mine<'_>,
        lease: Duration,
    ) -> Result<Option<Timestamp>> {
        let statement = self.statement(&RENEW);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &mine.id.client_id(),
                    /* key */ &mine.id.key(),
                    /* lease_token */ &mine.token,
                    /* lease seconds */ &lease.as_secs_f64(),
                    /* locked_until known */ &mine.until,
                ],
            )
            .await?;
        one_row(answer.affected, statement)?;
        Ok(answer.rows.first().map(|row| row.get("locked_until")))
    }

    /// Deletes the row of a first attempt; `false` when the lease is lost or this is no first attempt.
    pub(crate) async fn abandon(&self, executor: &impl Executor, mine: Mine<'_>) -> Result<bool> {
        let statement = self.statement(&ABANDON);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &mine.id.client_id(),
                    /* key */ &mine.id.key(),
                    /* lease_token */ &mine.token,
                    /* locked_until known */ &mine.until,
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }

    /// Ends the lease now and keeps the row in progress; `false` when the lease is lost.
    pub(crate) async fn end_lease(
        &self,
        executor: &impl Executor,
        mine: Mine<'_>,
        last_error: &str,
        keep_earlier: bool,
    ) -> Result<Option<Timestamp>> {
        let statement = self.statement(&END_LEASE);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &mine.id.client_id(),
                    /* key */ &mine.id.key(),
                    /* lease_token */ &mine.token,
                    /* last_error */ &last_error,
                    /* locked_until known */ &mine.until,
                    /* keep an earlier last_error */ &keep_earlier,
                ],
            )
            .await?;
        let ended = one_row(answer.affected, statement)?;
        Ok(answer
            .rows
            .first()
            .filter(|_| ended)
            .map(|row| row.get("locked_until")))
    }

    /// Which columns hold a body: `response` where its type keeps the bytes or other programs read it,
    /// `response_body` where `response` alone would not give the same bytes back.
    pub(crate) fn columns_for<'a>(&self, body: &'a [u8]) -> (Option<&'a str>, Option<&'a [u8]>) {
        let json = fits_json(body, self.shape.utf8);
        match (self.shape.response_type(), json) {
            (ResponseType::Json, Some(text)) => (Some(text), None),
            (ResponseType::Jsonb, Some(text)) if fits_jsonb(text, self.shape.utf8) => {
                (Some(text), Some(body))
            }
            (_, _) => (None, Some(body)),
        }
    }
}

/// Headers as an array of pairs, which keeps their order and repetitions in `jsonb`.
pub(crate) fn headers_text(response: &Response) -> String {
    serde_json::json!(response.headers()).to_string()
}
