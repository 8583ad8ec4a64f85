//! The event log: appended in the same transaction as the change that it describes.

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Executor, Sql, Store, one_row};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::ops::actor::Actor;
use crate::ops::history::{Filter, When};
use crate::ops::list::Order;
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

/// Conditions that are always there and say nothing while their parameter is null, as in the list of keys.
///
/// `$order` is what is sorted by: the number as it stands is the primary key's own order, which pages through any
/// length of log. Of one key there are few events, and a planner that hopes to meet them early on that way would
/// read the whole log for them; an order that no index has leaves it the index over the keys.
macro_rules! history {
    ($name:literal, $compare:literal, $direction:literal, $order:literal) => {
        concat!(
            "-- idemctl:",
            $name,
            "
select e.id, e.at, e.client_id, e.key, e.action, e.db_user, e.os_user, e.host, e.reason,
       e.before::text as before, e.after::text as after, e.details::text as details
  from {events} e
 where ($1::text is null or e.client_id = $1)
   and ($2::text is null or e.key = $2)
   and ($3::text[] is null or e.action = any($3))
   and ($4::text is null or e.db_user = $4 or e.os_user = $4)
   and ($5::timestamptz is null or e.at >= $5)
   and ($6::float8 is null or e.at >= now() - make_interval(secs => $6))
   and ($7::timestamptz is null or e.at < $7)
   and ($8::float8 is null or e.at < now() - make_interval(secs => $8))
   and ($9::int8 is null or ",
            $order,
            " ",
            $compare,
            " $9)
 order by ",
            $order,
            " ",
            $direction,
            "
 limit $10"
        )
    };
}

const HISTORY_TYPES: &[Type] = &[
    Type::TEXT,
    Type::TEXT,
    Type::TEXT_ARRAY,
    Type::TEXT,
    Type::TIMESTAMPTZ,
    Type::FLOAT8,
    Type::TIMESTAMPTZ,
    Type::FLOAT8,
    Type::INT8,
    Type::INT8,
];

const HISTORY_NEWEST: Sql = Sql {
    name: "history_newest",
    text: history!("history_newest", "<", "desc", "e.id"),
    types: HISTORY_TYPES,
};

const HISTORY_OLDEST: Sql = Sql {
    name: "history_oldest",
    text: history!("history_oldest", ">", "asc", "e.id"),
    types: HISTORY_TYPES,
};

const HISTORY_KEY_NEWEST: Sql = Sql {
    name: "history_key_newest",
    text: history!("history_key_newest", "<", "desc", "e.id + 0"),
    types: HISTORY_TYPES,
};

const HISTORY_KEY_OLDEST: Sql = Sql {
    name: "history_key_oldest",
    text: history!("history_key_oldest", ">", "asc", "e.id + 0"),
    types: HISTORY_TYPES,
};

pub(crate) const STATEMENTS: &[Sql] = &[
    APPEND_EVENT,
    SNAPSHOT,
    HISTORY_NEWEST,
    HISTORY_OLDEST,
    HISTORY_KEY_NEWEST,
    HISTORY_KEY_OLDEST,
];

/// One entry of the event log, as `-o json` shows it too.
#[derive(Debug, Clone, Serialize)]
pub struct Event {
    /// Its number; later events have higher ones.
    pub id: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Client of the key; `None` for what concerned many rows, such as a purge.
    pub client_id: Option<String>,
    /// The key.
    pub key: Option<String>,
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
    /// The row before, without the response's bytes; in the database's own spelling of JSON.
    pub before: Option<Box<RawValue>>,
    /// The row after; `None` when it is gone.
    pub after: Option<Box<RawValue>>,
    /// What else belongs to the verb.
    pub details: Option<Box<RawValue>>,
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
    /// At most `limit` events behind the one with the number `after`.
    pub(crate) async fn history(
        &self,
        executor: &impl Executor,
        filter: &Filter,
        order: Order,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Event>> {
        let sql = match (filter.key.is_some(), order) {
            (false, Order::Newest) => &HISTORY_NEWEST,
            (false, Order::Oldest) => &HISTORY_OLDEST,
            (true, Order::Newest) => &HISTORY_KEY_NEWEST,
            (true, Order::Oldest) => &HISTORY_KEY_OLDEST,
        };
        let actions = (!filter.actions.is_empty()).then_some(&filter.actions);
        let ago = |when: &Option<When>| match when {
            Some(When::Ago(age)) => Some(age.as_secs_f64()),
            _ => None,
        };
        let at = |when: &Option<When>| match when {
            Some(When::At(time)) => Some(*time),
            _ => None,
        };
        let answer = executor
            .run(
                self.statement(sql),
                &[
                    /* client_id */ &filter.client_id,
                    /* key */ &filter.key,
                    /* actions */ &actions,
                    /* user */ &filter.user,
                    /* since */ &at(&filter.since),
                    /* since, seconds ago */ &ago(&filter.since),
                    /* until */ &at(&filter.until),
                    /* until, seconds ago */ &ago(&filter.until),
                    /* after id */ &after,
                    /* limit */ &i64::from(limit),
                ],
            )
            .await?;
        answer.rows.iter().map(event).collect()
    }
}

fn event(row: &Row) -> Result<Event> {
    let id: i64 = row.get("id");
    let json = |column: &str| {
        let text: Option<&str> = row.get(column);
        let read = text
            .map(|text| RawValue::from_string(text.to_owned()))
            .transpose();
        read.map_err(|error| Error::Inconsistent {
            what: format!("event {id}: the column {column} does not hold JSON: {error}"),
        })
    };
    Ok(Event {
        id,
        at: row.get("at"),
        client_id: row.get("client_id"),
        key: row.get("key"),
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
