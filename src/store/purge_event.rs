//! Deleting events that are older than their retention, by ranges of their ids.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::purge::{count, no_row};
use super::{Executor, Sql, Store};
use crate::error::Result;

const PURGE_EVENT_END: Sql = Sql {
    name: "purge_event_end",
    text: "-- idemctl:purge_event_end
select max(id) as upto, coalesce(bool_or(at < now() - make_interval(secs => $1)), false) as any_due,
       (select has_table_privilege(c.oid, 'delete')
          from pg_class c
          join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = $4 and c.relname = 'idempotency_event') as may_delete
  from (select id, at from {events} where id > $2 order by id limit $3) next",
    types: &[Type::FLOAT8, Type::INT8, Type::INT8, Type::TEXT],
};

const PURGE_EVENTS: Sql = Sql {
    name: "purge_events",
    text: "-- idemctl:purge_events
delete from {events} where id > $2 and id <= $3 and at < now() - make_interval(secs => $1)",
    types: &[Type::FLOAT8, Type::INT8, Type::INT8],
};

const PURGE_COUNT_EVENTS: Sql = Sql {
    name: "purge_count_events",
    text: "-- idemctl:purge_count_events
select count(*) as due
  from {events} where id > $2 and id <= $3 and at < now() - make_interval(secs => $1)",
    types: PURGE_EVENTS.types,
};

/// The next events, in the order of their ids.
#[derive(Debug)]
pub(crate) struct NextEvents {
    /// The last of their ids.
    pub(crate) upto: i64,
    /// Whether any of them is due.
    pub(crate) any_due: bool,
    /// Whether our role may delete events.
    pub(crate) may_delete: bool,
}

pub(crate) const STATEMENTS: &[Sql] = &[PURGE_EVENT_END, PURGE_EVENTS, PURGE_COUNT_EVENTS];

impl Store {
    /// The next `rows` events; `None` when there are no more.
    pub(crate) async fn purge_event_end(
        &self,
        executor: &impl Executor,
        ttl: Duration,
        after: i64,
        rows: u32,
    ) -> Result<Option<NextEvents>> {
        let statement = self.statement(&PURGE_EVENT_END);
        let answer = executor
            .run(
                statement,
                &[
                    /* ttl */ &ttl.as_secs_f64(),
                    /* after */ &after,
                    /* rows */ &i64::from(rows),
                    /* schema */ &self.schema(),
                ],
            )
            .await?;
        let row = answer.rows.first().ok_or_else(|| no_row(statement.name))?;
        Ok(row.get::<_, Option<i64>>("upto").map(|upto| NextEvents {
            upto,
            any_due: row.get("any_due"),
            may_delete: row.get("may_delete"),
        }))
    }

    /// Deletes (or, with `dry_run`, counts) the due events with an id after `after` up to and with `upto`.
    pub(crate) async fn purge_events(
        &self,
        executor: &impl Executor,
        ttl: Duration,
        (after, upto): (i64, i64),
        dry_run: bool,
    ) -> Result<u64> {
        let statement = self.statement(if dry_run {
            &PURGE_COUNT_EVENTS
        } else {
            &PURGE_EVENTS
        });
        let answer = executor
            .run(
                statement,
                &[
                    /* ttl */ &ttl.as_secs_f64(),
                    /* after */ &after,
                    /* upto */ &upto,
                ],
            )
            .await?;
        if dry_run {
            count(&answer, statement.name)
        } else {
            Ok(answer.affected)
        }
    }
}
