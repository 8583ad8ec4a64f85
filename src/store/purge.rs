//! Deleting what is past its retention. Every statement that deletes, counts or tries carries the same
//! condition, word for word.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Executor, Sql, Store};
use crate::error::{Error, Result};
use crate::time::Timestamp;

/// A terminal row whose retention is over: `$1` seconds for `done`, `$2` for `failed`.
///
/// The time counts from completion. Services that know only the old columns leave no `completed_at`; the later
/// of creation and lease end stands in for it. Rows in progress never meet the condition.
macro_rules! due {
    () => {
        "status in ('done', 'failed')
   and coalesce(completed_at, greatest(created_at, locked_until))
       < now() - case when status = 'done' then make_interval(secs => $1) else make_interval(secs => $2) end"
    };
}

pub(super) use due;

/// A half-open range of creation times: `$3` to `$4`.
macro_rules! in_range {
    () => {
        "created_at >= $3 and created_at < $4"
    };
}

/// Rows of one creation time `$3` after the key (`$4`, `$5`) up to and with (`$6`, `$7`).
macro_rules! in_pile {
    () => {
        "created_at = $3 and (client_id, key) > ($4, $5) and (client_id, key) <= ($6, $7)"
    };
}

const PURGE_CUTOFF: Sql = Sql {
    name: "purge_cutoff",
    text: "-- idemctl:purge_cutoff
select now() - make_interval(secs => least($1, $2)) as cutoff",
    types: &[Type::FLOAT8, Type::FLOAT8],
};

const PURGE_BOUNDARY: Sql = Sql {
    name: "purge_boundary",
    text: "-- idemctl:purge_boundary
select created_at
  from {keys}
 where created_at >= $1 and created_at < $2
 order by created_at
offset $3
 limit 1",
    types: &[Type::TIMESTAMPTZ, Type::TIMESTAMPTZ, Type::INT8],
};

const PURGE_PILE_END: Sql = Sql {
    name: "purge_pile_end",
    text: "-- idemctl:purge_pile_end
select client_id, key
  from (select client_id, key
          from {keys}
         where created_at = $1 and (client_id, key) > ($2, $3)
         order by client_id, key
         limit $4) next
 order by client_id desc, key desc
 limit 1",
    types: &[Type::TIMESTAMPTZ, Type::TEXT, Type::TEXT, Type::INT8],
};

const PURGE_RANGE: Sql = Sql {
    name: "purge_range",
    text: concat!(
        "-- idemctl:purge_range\ndelete from {keys} where ",
        in_range!(),
        "\n   and ",
        due!()
    ),
    types: &[Type::FLOAT8, Type::FLOAT8, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ],
};

const PURGE_COUNT_RANGE: Sql = Sql {
    name: "purge_count_range",
    text: concat!(
        "-- idemctl:purge_count_range\nselect count(*) as due from {keys} where ",
        in_range!(),
        "\n   and ",
        due!()
    ),
    types: PURGE_RANGE.types,
};

const PURGE_PILE: Sql = Sql {
    name: "purge_pile",
    text: concat!(
        "-- idemctl:purge_pile\ndelete from {keys} where ",
        in_pile!(),
        "\n   and ",
        due!()
    ),
    types: &[
        Type::FLOAT8,
        Type::FLOAT8,
        Type::TIMESTAMPTZ,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
        Type::TEXT,
    ],
};

const PURGE_COUNT_PILE: Sql = Sql {
    name: "purge_count_pile",
    text: concat!(
        "-- idemctl:purge_count_pile\nselect count(*) as due from {keys} where ",
        in_pile!(),
        "\n   and ",
        due!()
    ),
    types: PURGE_PILE.types,
};

const PURGE_BACKLOG: Sql = Sql {
    name: "purge_backlog",
    text: concat!(
        "-- idemctl:purge_backlog
select count(*) as due
  from (select 1 from {keys}
         where created_at >= $4 and created_at < now() - make_interval(secs => least($1, $2))
           and ",
        due!(),
        "
         limit $3) found"
    ),
    types: &[Type::FLOAT8, Type::FLOAT8, Type::INT8, Type::TIMESTAMPTZ],
};

const PURGE_OLDEST: Sql = Sql {
    name: "purge_oldest",
    text: "-- idemctl:purge_oldest
select min(created_at) as oldest from {keys}",
    types: &[],
};

const SHORT_LOCK_TIMEOUT: Sql = Sql {
    name: "short_lock_timeout",
    text: "-- idemctl:short_lock_timeout
set local lock_timeout = '1s'",
    types: &[],
};

pub(crate) const STATEMENTS: &[Sql] = &[
    PURGE_CUTOFF,
    PURGE_BOUNDARY,
    PURGE_PILE_END,
    PURGE_RANGE,
    PURGE_COUNT_RANGE,
    PURGE_PILE,
    PURGE_COUNT_PILE,
    PURGE_BACKLOG,
    PURGE_OLDEST,
    SHORT_LOCK_TIMEOUT,
];

/// How long terminal rows are kept, in seconds as `make_interval` takes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ttl {
    done: f64,
    failed: f64,
}

impl Ttl {
    pub(crate) fn new(done: Duration, failed: Duration) -> Self {
        Self {
            done: done.as_secs_f64(),
            failed: failed.as_secs_f64(),
        }
    }

    /// `done`, `failed`.
    pub(super) fn seconds(self) -> (f64, f64) {
        (self.done, self.failed)
    }
}

/// `(client_id, key)` as it stands in the table.
pub(crate) type Pair = (String, String);

/// A part of the table that one batch works on.
#[derive(Debug, Clone)]
pub(crate) enum Slice {
    /// Creation times from `from` up to, without, `to`.
    Range { from: Timestamp, to: Timestamp },
    /// Some of the rows of one creation time, in the order of their keys.
    Pile { at: Timestamp, after: Pair, upto: Pair },
}

impl Store {
    /// Nothing created at or after this time can be due.
    pub(crate) async fn purge_cutoff(&self, executor: &impl Executor, ttl: Ttl) -> Result<Timestamp> {
        let statement = self.statement(&PURGE_CUTOFF);
        let answer = executor
            .run(statement, &[/* done */ &ttl.done, /* failed */ &ttl.failed])
            .await?;
        answer
            .rows
            .first()
            .map(|row| row.get("cutoff"))
            .ok_or_else(|| no_row(statement.name))
    }

    /// Creation time of the row that follows the next `rows` rows; `None` when no more than that are left.
    pub(crate) async fn purge_boundary(
        &self,
        executor: &impl Executor,
        from: Timestamp,
        cutoff: Timestamp,
        rows: u32,
    ) -> Result<Option<Timestamp>> {
        let statement = self.statement(&PURGE_BOUNDARY);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [
            /* from */ &from,
            /* cutoff */ &cutoff,
            /* rows */ &i64::from(rows),
        ];
        let answer = executor.run(statement, &params).await?;
        Ok(answer.rows.first().map(|row| row.get("created_at")))
    }

    /// The last of the next `rows` keys of one creation time; `None` when there are no more.
    pub(crate) async fn purge_pile_end(
        &self,
        executor: &impl Executor,
        at: Timestamp,
        after: &Pair,
        rows: u32,
    ) -> Result<Option<Pair>> {
        let statement = self.statement(&PURGE_PILE_END);
        let answer = executor
            .run(
                statement,
                &[
                    /* at */ &at,
                    /* client_id */ &after.0,
                    /* key */ &after.1,
                    /* rows */ &i64::from(rows),
                ],
            )
            .await?;
        Ok(answer
            .rows
            .first()
            .map(|row| (row.get("client_id"), row.get("key"))))
    }

    /// Deletes what is due in a slice; returns how many rows went.
    pub(crate) async fn purge_slice(&self, tx: &impl Executor, ttl: Ttl, slice: &Slice) -> Result<u64> {
        let statement = match slice {
            Slice::Range { .. } => self.statement(&PURGE_RANGE),
            Slice::Pile { .. } => self.statement(&PURGE_PILE),
        };
        Ok(run_on_slice(tx, statement, ttl, slice).await?.affected)
    }

    /// Counts what is due in a slice, by the condition with which [`Self::purge_slice`] deletes.
    pub(crate) async fn purge_count(&self, executor: &impl Executor, ttl: Ttl, slice: &Slice) -> Result<u64> {
        let statement = match slice {
            Slice::Range { .. } => self.statement(&PURGE_COUNT_RANGE),
            Slice::Pile { .. } => self.statement(&PURGE_COUNT_PILE),
        };
        count(
            &run_on_slice(executor, statement, ttl, slice).await?,
            statement.name,
        )
    }

    /// How many rows created at `from` or later are due, counted up to `limit`.
    pub(crate) async fn purge_backlog(
        &self,
        executor: &impl Executor,
        ttl: Ttl,
        limit: i64,
        from: Timestamp,
    ) -> Result<u64> {
        let statement = self.statement(&PURGE_BACKLOG);
        let answer = executor
            .run(
                statement,
                &[
                    /* done */ &ttl.done,
                    /* failed */ &ttl.failed,
                    /* limit */ &limit,
                    /* from */ &from,
                ],
            )
            .await?;
        count(&answer, statement.name)
    }

    /// Creation time of the oldest row, of any status.
    pub(crate) async fn purge_oldest(&self, executor: &impl Executor) -> Result<Option<Timestamp>> {
        let answer = executor.run(self.statement(&PURGE_OLDEST), &[]).await?;
        Ok(answer.rows.first().and_then(|row| row.get("oldest")))
    }

    /// Lets the transaction's statements wait no longer than a second for a lock.
    pub(crate) async fn short_lock_timeout(&self, tx: &impl Executor) -> Result<()> {
        self.propagate_limits(tx).await?;
        tx.run(self.statement(&SHORT_LOCK_TIMEOUT), &[]).await.map(drop)
    }
}

async fn run_on_slice(
    executor: &impl Executor,
    statement: &super::Statement,
    ttl: Ttl,
    slice: &Slice,
) -> Result<super::Answer> {
    match slice {
        Slice::Range { from, to } => {
            executor
                .run(
                    statement,
                    &[
                        /* done */ &ttl.done,
                        /* failed */ &ttl.failed,
                        /* from */ from,
                        /* to */ to,
                    ],
                )
                .await
        }
        Slice::Pile { at, after, upto } => {
            executor
                .run(
                    statement,
                    &[
                        /* done */ &ttl.done,
                        /* failed */ &ttl.failed,
                        /* at */ at,
                        /* after client_id */ &after.0,
                        /* after key */ &after.1,
                        /* upto client_id */ &upto.0,
                        /* upto key */ &upto.1,
                    ],
                )
                .await
        }
    }
}

pub(super) fn count(answer: &super::Answer, statement: &str) -> Result<u64> {
    let row = answer.rows.first().ok_or_else(|| no_row(statement))?;
    // A count is never negative.
    Ok(u64::try_from(row.get::<_, i64>("due")).unwrap_or(0))
}

pub(super) fn no_row(statement: &str) -> Error {
    Error::Inconsistent {
        what: format!("{statement} returned no row; is this a PostgreSQL server?"),
    }
}
