//! What the demo needs and nobody else: rows that look as if they had been there for a while.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::{Executor, Sql, Store, one_row};
use crate::error::Result;
use crate::key::KeyId;

const DEMO_SHIFT: Sql = Sql {
    name: "demo_shift",
    text: "-- idemctl:demo_shift
update {keys}
   set created_at = created_at - make_interval(secs => $3),
       locked_until = locked_until - make_interval(secs => $3),
       completed_at = completed_at - make_interval(secs => $3)
 where client_id = $1 and key = $2",
    types: &[Type::TEXT, Type::TEXT, Type::FLOAT8],
};

pub(crate) const STATEMENTS: &[Sql] = &[DEMO_SHIFT];

impl Store {
    /// Moves everything that happened to a row into the past; `false` if there is no such row.
    #[doc(hidden)]
    pub async fn shift_for_demo(&self, executor: &impl Executor, id: &KeyId, by: Duration) -> Result<bool> {
        let statement = self.statement(&DEMO_SHIFT);
        let answer = executor
            .run(
                statement,
                &[
                    /* client_id */ &id.client_id(),
                    /* key */ &id.key(),
                    /* by */ &by.as_secs_f64(),
                ],
            )
            .await?;
        one_row(answer.affected, statement)
    }
}
