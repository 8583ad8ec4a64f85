//! The event log: appended in the same transaction as the change that it describes.

use serde_json::Value;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Executor, Sql, Store, one_row};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::ops::actor::Actor;
use crate::time::Timestamp;

/// A row of the table `k` as the event log keeps it: everything but the response's bytes.
///
/// Each column is named: `to_jsonb` of the whole row would decode the stored response, which `jsonb` refuses
/// for some of what `json` holds.
macro_rules! row_json {
    () => {
        "jsonb_build_object(
           'fingerprint', k.fingerprint, 'status', k.status, 'locked_until', k.locked_until,
           'status_code', k.status_code, 'created_at', k.created_at, 'attempt', k.attempt,
           'lease_token', k.lease_token, 'owner', k.owner, 'operation', k.operation,
           'provider', k.provider, 'order_id', k.order_id, 'completed_at', k.completed_at,
           'response_headers', k.response_headers,
           'response_bytes', coalesce(octet_length(k.response_body), octet_length(k.response::text)),
           'last_error', k.last_error)::text"
    };
}
pub(crate) use row_json;

const APPEND_EVENT: Sql = Sql {
    name: "append_event",
    text: "-- idemctl:append_event
insert into {events} (client_id, key, action, os_user, host, reason, before, after, details)
values ($1, $2, $3, $4, $5, $6, $7::jsonb, $8::jsonb, $9::jsonb)",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
    ],
};

const SNAPSHOT: Sql = Sql {
    name: "snapshot",
    text: concat!(
        "-- idemctl:snapshot
select ",
        row_json!(),
        " as row
  from {keys} k
 where k.client_id = $1 and k.key = $2"
    ),
    types: &[Type::TEXT, Type::TEXT],
};

const HISTORY: Sql = Sql {
    name: "history",
    text: "-- idemctl:history
select e.id, e.at, e.action, e.db_user, e.os_user, e.host, e.reason, e.before::text as before,
       e.after::text as after, e.details::text as details
  from {events} e
 where e.client_id = $1 and e.key = $2
 order by e.id desc
 limit $3",
    types: &[Type::TEXT, Type::TEXT, Type::INT8],
};

pub(crate) const STATEMENTS: &[Sql] = &[APPEND_EVENT, SNAPSHOT, HISTORY];

/// One entry of the event log.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its number; later events have higher ones.
    pub id: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// The verb.
    pub action: String,
    /// Session user of the database.
    pub db_user: String,
    /// User of the operating system, as the acting program said.
    pub os_user: Option<String>,
    /// Host, as the acting program said.
    pub host: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The row before, without the response's bytes.
    pub before: Option<Value>,
    /// The row after; `None` when it is gone.
    pub after: Option<Value>,
    /// What else belongs to the verb.
    pub details: Option<Value>,
}

/// An event that is about to be written.
#[derive(Debug, Clone, Default)]
pub(crate) struct NewEvent<'a> {
    /// The key that was changed; `None` for what concerns many rows.
    pub(crate) id: Option<&'a KeyId>,
    /// The verb, such as `release` or `purge`.
    pub(crate) action: &'static str,
    pub(crate) before: Option<Value>,
    pub(crate) after: Option<Value>,
    pub(crate) details: Option<Value>,
}

impl Store {
    /// Appends one event; call it with the transaction that makes the change.
    pub(crate) async fn append_event(
        &self,
        tx: &impl Executor,
        actor: &Actor,
        event: &NewEvent<'_>,
    ) -> Result<()> {
        let statement = self.statement(&APPEND_EVENT);
        let params = [
            event.id.map(|id| storable(id.client_id())),
            event.id.map(|id| storable(id.key())),
            Some(event.action.to_owned()),
            actor.os_user.as_deref().map(storable),
            actor.host.as_deref().map(storable),
            actor.reason.as_deref().map(storable),
            event.before.as_ref().map(json_text),
            event.after.as_ref().map(json_text),
            event.details.as_ref().map(json_text),
        ];
        let [
            client_id,
            key,
            action,
            os_user,
            host,
            reason,
            before,
            after,
            details,
        ] = &params;
        let answer = tx
            .run(
                statement,
                &[
                    /* client_id */ client_id, /* key */ key, /* action */ action,
                    /* os_user */ os_user, /* host */ host, /* reason */ reason,
                    /* before */ before, /* after */ after, /* details */ details,
                ],
            )
            .await?;
        if one_row(answer.affected, statement)? {
            return Ok(());
        }
        Err(Error::Inconsistent {
            what: "the event was not stored; does a rule or trigger on idempotency_event swallow rows?"
                .to_owned(),
        })
    }

    /// The row as the event log keeps it (without the response's bytes); `None` when there is none.
    pub(crate) async fn snapshot(&self, executor: &impl Executor, id: &KeyId) -> Result<Option<Value>> {
        let statement = self.statement(&SNAPSHOT);
        let answer = executor
            .run(statement, &[/* client_id */ &id.client_id(), /* key */ &id.key()])
            .await?;
        answer
            .rows
            .first()
            .map(|row| parse_row_json(row.get("row")))
            .transpose()
    }
}

impl Store {
    /// Events of one key, newest first.
    pub(crate) async fn history(
        &self,
        executor: &impl Executor,
        id: &KeyId,
        limit: u32,
    ) -> Result<Vec<Event>> {
        let answer = executor
            .run(
                self.statement(&HISTORY),
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* limit */ &i64::from(limit),
                ],
            )
            .await?;
        answer.rows.iter().map(event).collect()
    }
}

fn event(row: &Row) -> Result<Event> {
    let json = |column: &str| row.get::<_, Option<&str>>(column).map(parse_row_json).transpose();
    Ok(Event {
        id: row.get("id"),
        at: row.get("at"),
        action: row.get("action"),
        db_user: row.get("db_user"),
        os_user: row.get("os_user"),
        host: row.get("host"),
        reason: row.get("reason"),
        before: json("before")?,
        after: json("after")?,
        details: json("details")?,
    })
}

/// Reads what [`row_json`] gave.
pub(crate) fn parse_row_json(text: &str) -> Result<Value> {
    serde_json::from_str(text).map_err(|error| Error::Inconsistent {
        what: format!("the row's snapshot is not JSON: {error}"),
    })
}

/// Text as PostgreSQL can hold it: it has no NUL. What an event says must never keep the event from being
/// written.
fn storable(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn json_text(value: &Value) -> String {
    fn clean(value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(storable(text)),
            Value::Array(items) => Value::Array(items.iter().map(clean).collect()),
            Value::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(name, value)| (storable(name), clean(value)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }
    clean(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_jsonb_refuses_is_made_storable() {
        let value = serde_json::json!({"a\0": ["b\0c", 1], "d": "\\u0000"});
        assert_eq!(
            json_text(&value),
            "{\"a\u{fffd}\":[\"b\u{fffd}c\",1],\"d\":\"\\\\u0000\"}"
        );
    }
}
