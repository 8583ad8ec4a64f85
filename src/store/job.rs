//! The janitor's jobs: who runs each, until when that holds, and how the last run went.
//!
//! Every term is measured by the database's clock. Whoever wants a job reads its row and then writes with the token
//! that stood there: of many who read the same, one succeeds. The token stays when the run is over and is only
//! replaced by the next run's, so no old holder ever matches again.

use std::time::Duration;

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Executor, Sql, Statement, Store, one_row};
use crate::error::Result;
use crate::time::Timestamp;

const JOB_LOOK: Sql = Sql {
    name: "job_look",
    text: "-- idemctl:job_look
select j.holder, j.token, j.held_until, j.known_since, j.last_scheduled_at, j.last_started_at, j.last_finished_at,
       j.last_success_at, j.last_outcome, j.last_summary,
       current_setting('transaction_read_only')::boolean as read_only, now() as now
  from {jobs} j
 where j.job = $1",
    types: &[Type::TEXT],
};

const JOB_MAKE: Sql = Sql {
    name: "job_make",
    text: "-- idemctl:job_make
insert into {jobs} (job) values ($1) on conflict do nothing",
    types: &[Type::TEXT],
};

const JOB_TAKE: Sql = Sql {
    name: "job_take",
    text: "-- idemctl:job_take
update {jobs}
   set holder = $2, token = $3, held_until = now() + make_interval(secs => $4), last_started_at = now(),
       last_scheduled_at = coalesce($5, last_scheduled_at)
 where job = $1 and token is not distinct from $6
   and (held_until is null or held_until <= now() or held_until > now() + make_interval(secs => $7))",
    types: &[
        Type::TEXT,
        Type::TEXT,
        Type::UUID,
        Type::FLOAT8,
        Type::TIMESTAMPTZ,
        Type::UUID,
        Type::FLOAT8,
    ],
};

const JOB_RENEW: Sql = Sql {
    name: "job_renew",
    text: "-- idemctl:job_renew
update {jobs}
   set held_until = now() + make_interval(secs => $3)
 where job = $1 and token = $2 and held_until is not null",
    types: &[Type::TEXT, Type::UUID, Type::FLOAT8],
};

const JOB_FINISH: Sql = Sql {
    name: "job_finish",
    text: "-- idemctl:job_finish
update {jobs}
   set held_until = null, last_finished_at = now(), last_outcome = $3, last_summary = $4,
       last_success_at = case when $5 then now() else last_success_at end
 where job = $1 and token = $2 and held_until is not null",
    types: &[Type::TEXT, Type::UUID, Type::TEXT, Type::TEXT, Type::BOOL],
};

pub(crate) const STATEMENTS: &[Sql] = &[JOB_LOOK, JOB_MAKE, JOB_TAKE, JOB_RENEW, JOB_FINISH];

/// A job as it stands in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// Who runs it, or ran it last.
    pub holder: Option<String>,
    /// The token of that run.
    pub(crate) token: Option<Uuid>,
    /// Until when its holder has it; `None` when nobody does. A time that has passed: its holder did not finish.
    pub held_until: Option<Timestamp>,
    /// When a janitor first saw the job.
    pub known_since: Timestamp,
    /// The time of its schedule that was served last, by the clock of the host that served it.
    pub last_scheduled_at: Option<Timestamp>,
    /// When the last run started.
    pub last_started_at: Option<Timestamp>,
    /// When a run last came to its end, well or not.
    pub last_finished_at: Option<Timestamp>,
    /// When a run last came to its end without an error.
    pub last_success_at: Option<Timestamp>,
    /// How the last run that came to its end went: `ok`, `partial`, `failed`, `interrupted` or `handed_on`.
    pub last_outcome: Option<String>,
    /// The same in words.
    pub last_summary: Option<String>,
    /// Whether nothing can be written where this was read.
    pub(crate) read_only: bool,
    /// The database's time at which this was read.
    pub now: Timestamp,
}

/// What a run's holder says of itself when it takes the job.
#[derive(Debug)]
pub(crate) struct NewRun<'a> {
    pub(crate) holder: &'a str,
    pub(crate) token: Uuid,
    pub(crate) term: Duration,
    pub(crate) scheduled_at: Option<Timestamp>,
    /// The token that was seen: nobody else may have taken the job since.
    pub(crate) seen: Option<Uuid>,
    /// A term that ends further ahead than this counts as over.
    pub(crate) furthest: Duration,
}

/// How a run went, for the row.
#[derive(Debug)]
pub(crate) struct End<'a> {
    pub(crate) outcome: &'a str,
    pub(crate) summary: &'a str,
    pub(crate) success: bool,
}

/// Renews a term on whatever connection, while another one works.
#[derive(Debug, Clone)]
pub(crate) struct Renewal {
    statement: Statement,
    job: &'static str,
    token: Uuid,
    term: Duration,
}

impl Renewal {
    /// `false`: the run is not ours any more, and nothing was changed.
    pub(crate) async fn send(&self, executor: &impl Executor) -> Result<bool> {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [
            /* job */ &self.job,
            /* token */ &self.token,
            /* term */ &self.term.as_secs_f64(),
        ];
        let answer = executor.run(&self.statement, &params).await?;
        one_row(answer.affected, &self.statement)
    }
}

impl Store {
    /// The job's row; `None` when no janitor has seen the job yet.
    pub(crate) async fn job_look(&self, executor: &impl Executor, job: &str) -> Result<Option<JobRow>> {
        let answer = executor.run(self.statement(&JOB_LOOK), &[/* job */ &job]).await?;
        Ok(answer.rows.first().map(|row| JobRow {
            holder: row.get("holder"),
            token: row.get("token"),
            held_until: row.get("held_until"),
            known_since: row.get("known_since"),
            last_scheduled_at: row.get("last_scheduled_at"),
            last_started_at: row.get("last_started_at"),
            last_finished_at: row.get("last_finished_at"),
            last_success_at: row.get("last_success_at"),
            last_outcome: row.get("last_outcome"),
            last_summary: row.get("last_summary"),
            read_only: row.get("read_only"),
            now: row.get("now"),
        }))
    }

    /// Makes the job's row, unless somebody did.
    pub(crate) async fn job_make(&self, executor: &impl Executor, job: &str) -> Result<()> {
        let statement = self.statement(&JOB_MAKE);
        executor.run(statement, &[/* job */ &job]).await.map(drop)
    }

    /// Takes the job; `false`: somebody has it or took it since it was read, and nothing was changed.
    pub(crate) async fn job_take(
        &self,
        executor: &impl Executor,
        job: &str,
        run: &NewRun<'_>,
    ) -> Result<bool> {
        let statement = self.statement(&JOB_TAKE);
        let holder = self.encodable(run.holder);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 7] = [
            /* job */ &job,
            /* holder */ &holder,
            /* token */ &run.token,
            /* term */ &run.term.as_secs_f64(),
            /* scheduled_at */ &run.scheduled_at,
            /* seen */ &run.seen,
            /* furthest */ &run.furthest.as_secs_f64(),
        ];
        let answer = executor.run(statement, &params).await?;
        one_row(answer.affected, statement)
    }

    /// What renews the term of the run with this token.
    pub(crate) fn job_renewal(&self, job: &'static str, token: Uuid, term: Duration) -> Renewal {
        Renewal {
            statement: self.statement(&JOB_RENEW).clone(),
            job,
            token,
            term,
        }
    }

    /// Ends the run with this token; `false`: it is not ours any more, and nothing was changed.
    pub(crate) async fn job_finish(
        &self,
        executor: &impl Executor,
        job: &str,
        token: Uuid,
        end: &End<'_>,
    ) -> Result<bool> {
        let statement = self.statement(&JOB_FINISH);
        let summary = self.encodable(end.summary);
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] = [
            /* job */ &job,
            /* token */ &token,
            /* outcome */ &end.outcome,
            /* summary */ &summary,
            /* success */ &end.success,
        ];
        let answer = executor.run(statement, &params).await?;
        one_row(answer.affected, statement)
    }
}
