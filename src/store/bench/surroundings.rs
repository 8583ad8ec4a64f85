//! Who else is at work on the server, and how much it writes.

use crate::error::{Error, Result};
use crate::store::{Executor, Sql, Tables};

/// Roles without `pg_read_all_stats` see of other roles' sessions only that they are there.
const BENCH_ACTIVITY: Sql = Sql {
    name: "bench_activity",
    text: "-- idemctl:bench_activity
select count(*) filter (where a.state <> 'idle') as busy,
       count(*) filter (where a.state is null) as hidden,
       current_setting('fsync') as fsync,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('max_connections')::int4 as max_connections
  from pg_stat_activity a
 where a.datid is not null and a.pid <> pg_backend_pid()
   and (a.backend_type is null or a.backend_type = 'client backend')",
    types: &[],
};

const BENCH_WAL: Sql = Sql {
    name: "bench_wal",
    text: "-- idemctl:bench_wal
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8 as written",
    types: &[],
};

pub(crate) const STATEMENTS: &[Sql] = &[BENCH_ACTIVITY, BENCH_WAL];

/// What the server does besides us, and how safely it commits.
#[derive(Debug, Clone)]
pub(crate) struct Activity {
    /// Sessions of others that run a statement or sit in a transaction.
    pub(crate) busy: i64,
    /// Sessions of others that we may not look at.
    pub(crate) hidden: i64,
    pub(crate) fsync: String,
    pub(crate) synchronous_commit: String,
    pub(crate) max_connections: i32,
}

/// Looks at the other sessions.
pub(crate) async fn activity(executor: &impl Executor) -> Result<Activity> {
    let statement = Tables::new("").statement(&BENCH_ACTIVITY);
    let answer = executor.run(&statement, &[]).await?;
    let row = answer.rows.first().ok_or_else(no_answer)?;
    Ok(Activity {
        busy: row.get("busy"),
        hidden: row.get("hidden"),
        fsync: row.get("fsync"),
        synchronous_commit: row.get("synchronous_commit"),
        max_connections: row.get("max_connections"),
    })
}

/// Bytes of WAL that the whole server has written so far.
pub(crate) async fn wal(executor: &impl Executor) -> Result<i64> {
    let statement = Tables::new("").statement(&BENCH_WAL);
    let answer = executor.run(&statement, &[]).await?;
    Ok(answer.rows.first().ok_or_else(no_answer)?.get("written"))
}

fn no_answer() -> Error {
    Error::Inconsistent {
        what: "the server gave no row about itself; is it PostgreSQL?".to_owned(),
    }
}
