//! Finding an event again by the run that wrote it.

use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Executor, Sql, Store};
use crate::error::Result;
use crate::key::KeyId;

const EVENT_OF_RUN: Sql = Sql {
    name: "event_of_run",
    text: "-- idemctl:event_of_run
select 1
  from {events} e
 where e.client_id = $1 and e.key = $2 and e.details ->> 'run' = $3
 limit 1",
    types: &[Type::TEXT, Type::TEXT, Type::TEXT],
};

const NOW: Sql = Sql {
    name: "now",
    text: "-- idemctl:now\nselect now() as now",
    types: &[],
};

pub(crate) const STATEMENTS: &[Sql] = &[EVENT_OF_RUN, NOW];

impl Store {
    /// Whether this run has written an event about this key. A commit whose answer was lost is found so.
    pub(crate) async fn event_of_run(&self, executor: &impl Executor, id: &KeyId, run: Uuid) -> Result<bool> {
        let run = run.to_string();
        let answer = executor
            .run(
                self.statement(&EVENT_OF_RUN),
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* run */ &run,
                ],
            )
            .await?;
        Ok(!answer.rows.is_empty())
    }

    /// The database's time.
    ///
    /// Returns the error of the database where it cannot be asked.
    pub async fn now(&self, executor: &impl Executor) -> Result<crate::time::Timestamp> {
        let statement = self.statement(&NOW);
        let answer = executor.run(statement, &[]).await?;
        let row = answer
            .rows
            .first()
            .ok_or_else(|| super::purge::no_row(statement.name))?;
        Ok(row.get("now"))
    }
}
