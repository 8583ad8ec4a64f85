//! Reading rows of the key table as people see them.

use std::collections::BTreeMap;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use super::{Executor, Sql, Store};
use crate::error::{Error, Result, chain};
use crate::key::KeyId;
use crate::record::{Record, ResponseSummary, State};
use crate::response::Response;
use crate::time::Stopwatch;
#[cfg(feature = "operate")]
use crate::time::Timestamp;

/// The exact bytes of the stored body of the row `k`: `response_body` where it was needed, else the text of
/// `response`.
macro_rules! body {
    () => {
        "coalesce(k.response_body, convert_to(k.response::text, 'UTF8'), ''::bytea)"
    };
}

/// Every column that a [`Record`] needs, of the row `k`. One clock for all of it: `now()`.
///
/// `{has_body}`, `{body_bytes}` and `{body_sha256}` are filled in when the store is opened: see [`BodyTexts`].
///
/// A number that no HTTP status can be, which an adopted table may hold, is none.
macro_rules! record_columns {
    () => {
        "k.client_id::text as client_id, k.key::text as key, k.fingerprint::text as fingerprint,
       k.status::text as status, k.locked_until, k.locked_until <= now() as lease_over,
       case when k.status = 'in_progress' and isfinite(k.locked_until)
            then extract(epoch from k.locked_until - now())::float8 end as lease_remaining_seconds,
       k.created_at,
       case when isfinite(k.created_at)
            then extract(epoch from now() - k.created_at)::float8 end as age_seconds,
       k.completed_at,
       case when k.status <> 'in_progress'
            then coalesce(k.completed_at, greatest(k.created_at, k.locked_until)) end as retained_from,
       coalesce(k.attempt, 1) as attempt, k.lease_token, k.owner, k.operation, k.provider, k.order_id, k.last_error,
       now() as as_of,
       k.status <> 'in_progress' or {has_body} as has_response,
       case when k.status_code between -2147483648 and 2147483647 then k.status_code::int4 end as status_code, k.response_headers::text as response_headers,
       {body_bytes} as body_bytes, {body_sha256} as body_sha256"
    };
}
#[cfg(feature = "operate")]
pub(crate) use record_columns;

/// What statements say of a stored body: its size and hash, or nothing, for a role that may not read the columns.
///
/// A statement that names a column at all needs the privilege to read it, so a role without it needs other texts
/// (PostgreSQL manual, GRANT: column privileges).
pub(super) struct BodyTexts {
    pub(super) has_body: &'static str,
    pub(super) body_bytes: &'static str,
    pub(super) body_sha256: &'static str,
}

impl BodyTexts {
    const READABLE: Self = Self {
        has_body: "k.response is not null or k.response_body is not null",
        body_bytes: concat!("octet_length(", body!(), ")::int8"),
        body_sha256: concat!("encode(sha256(", body!(), "), 'hex')"),
    };
    /// A row in progress has no body by the protocol, so that nothing is lost by not looking.
    const HIDDEN: Self = Self {
        has_body: "false",
        body_bytes: "null::int8",
        body_sha256: "null::text",
    };

    pub(super) fn new(readable: bool) -> Self {
        if readable { Self::READABLE } else { Self::HIDDEN }
    }
}

const GET: Sql = Sql {
    name: "get",
    text: concat!(
        "-- idemctl:get
select ",
        record_columns!(),
        "
  from {keys} k
 where k.client_id = $1 and k.key = $2"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

const GET_RESPONSE: Sql = Sql {
    name: "get_response",
    text: concat!(
        "-- idemctl:get_response
select case when k.status_code between -2147483648 and 2147483647 then k.status_code::int4 end as status_code,
       k.response_headers::text as response_headers, ",
        body!(),
        " as body
  from {keys} k
 where k.client_id = $1 and k.key = $2"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[GET, GET_RESPONSE];

impl Store {
    /// One row; `None` when there is none.
    pub async fn get(&self, executor: &impl Executor, id: &KeyId) -> Result<Option<Record>> {
        let answer = executor
            .run(
                self.statement(&GET),
                &[/* client_id */ &id.client_id(), /* key */ &id.key()],
            )
            .await?;
        answer.rows.first().map(record).transpose()
    }

    /// The exact bytes of the stored body of one row, whatever stands in its headers; `None` when there is no row.
    pub async fn get_body(&self, executor: &impl Executor, id: &KeyId) -> Result<Option<Vec<u8>>> {
        let answer = executor
            .run(
                self.statement(&GET_RESPONSE),
                &[/* client_id */ &id.client_id(), /* key */ &id.key()],
            )
            .await?;
        Ok(answer.rows.first().map(|row| row.get("body")))
    }

    /// The stored response of one row with its exact bytes; `None` when there is no row.
    pub async fn get_response(&self, executor: &impl Executor, id: &KeyId) -> Result<Option<Response>> {
        let answer = executor
            .run(
                self.statement(&GET_RESPONSE),
                &[/* client_id */ &id.client_id(), /* key */ &id.key()],
            )
            .await?;
        let Some(row) = answer.rows.first() else {
            return Ok(None);
        };
        let headers = headers(id, row.get("response_headers"))?;
        Ok(Some(Response::from_stored(
            status_code(row.get("status_code")),
            headers,
            row.get("body"),
        )))
    }
}

/// Reads one row selected with [`record_columns`].
pub(crate) fn record(row: &Row) -> Result<Record> {
    let id = KeyId::from_row(cell(row, None, "client_id")?, cell(row, None, "key")?);
    let at = Some(&id);
    let status: String = cell(row, at, "status")?;
    let response = if cell(row, at, "has_response")? {
        Some(summary(&id, row)?)
    } else {
        None
    };
    Ok(Record {
        fingerprint: cell(row, at, "fingerprint")?,
        state: State::from_row(&status, cell(row, at, "lease_over")?),
        status,
        locked_until: cell(row, at, "locked_until")?,
        lease_remaining_seconds: cell(row, at, "lease_remaining_seconds")?,
        created_at: cell(row, at, "created_at")?,
        age_seconds: cell(row, at, "age_seconds")?,
        completed_at: cell(row, at, "completed_at")?,
        retained_from: cell(row, at, "retained_from")?,
        attempt: cell(row, at, "attempt")?,
        lease_token: cell(row, at, "lease_token")?,
        owner: cell(row, at, "owner")?,
        operation: cell(row, at, "operation")?,
        provider: cell(row, at, "provider")?,
        order_id: cell(row, at, "order_id")?,
        last_error: cell(row, at, "last_error")?,
        response,
        as_of: cell(row, at, "as_of")?,
        read: Stopwatch::start(),
        id,
    })
}

/// Where the row stands in the order of lease ends.
#[cfg(feature = "operate")]
pub(crate) fn place(row: &Row) -> Result<(Timestamp, KeyId)> {
    let id = KeyId::from_row(cell(row, None, "client_id")?, cell(row, None, "key")?);
    Ok((cell(row, Some(&id), "locked_until")?, id))
}

/// One value, or which row and column holds something that cannot be read, such as bytes that are no text in a
/// database without an encoding.
fn cell<'a, T: FromSql<'a>>(row: &'a Row, id: Option<&KeyId>, column: &str) -> Result<T> {
    row.try_get(column).map_err(|error| Error::Inconsistent {
        what: match id {
            Some(id) => format!(
                "the row {id} holds something unreadable in the column {column}: {}",
                chain(&error)
            ),
            None => format!(
                "a row holds something unreadable in the column {column}: {}",
                chain(&error)
            ),
        },
    })
}

fn summary(id: &KeyId, row: &Row) -> Result<ResponseSummary> {
    // Headers that are no list of pairs are another program's: the rest of the row can still be shown.
    let stored: Option<&str> = cell(row, Some(id), "response_headers")?;
    let content_type = headers(id, stored)
        .unwrap_or_default()
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    Ok(ResponseSummary {
        status_code: cell(row, Some(id), "status_code")?,
        content_type: content_type.map(|(_, value)| value),
        body_bytes: cell(row, Some(id), "body_bytes")?,
        body_sha256: cell(row, Some(id), "body_sha256")?,
    })
}

/// Headers as they are stored: an array of `[name, value]` pairs, which keeps order and repetitions. An object, as
/// other programs would write it, is read too.
pub(crate) fn headers(id: &KeyId, stored: Option<&str>) -> Result<Vec<(String, String)>> {
    let Some(stored) = stored else {
        return Ok(Vec::new());
    };
    if let Ok(members) = serde_json::from_str::<BTreeMap<String, String>>(stored) {
        return Ok(members.into_iter().collect());
    }
    serde_json::from_str(stored).map_err(|error| Error::Inconsistent {
        what: format!("the row {id} holds response_headers that are no list of [name, value] pairs: {error}"),
    })
}

/// A stored status as an HTTP status. A row that another program completed without one is replayed as 200,
/// and one with a number that no HTTP status can be as 500.
pub(crate) fn status_code(stored: Option<i32>) -> u16 {
    match stored {
        None => 200,
        Some(code) => u16::try_from(code)
            .ok()
            .filter(|code| (100..=599).contains(code))
            .unwrap_or(500),
    }
}
