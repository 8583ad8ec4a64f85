//! What Citus is told of our tables.

use crate::error::Result;
use crate::store::{Executor, Sql, Tables};

const HAS_ROWS: Sql = Sql {
    name: "migrate_has_rows",
    text: "-- idemctl:migrate_has_rows
select exists (select from {keys}) as filled",
    types: &[],
};

pub(crate) const STATEMENTS: &[Sql] = &[HAS_ROWS];

/// Whether the table of keys, which is there, has any row.
pub(crate) async fn has_rows(executor: &impl Executor, tables: &Tables) -> Result<bool> {
    let answer = executor.run(&tables.statement(&HAS_ROWS), &[]).await?;
    Ok(answer.rows.first().is_some_and(|row| row.get("filled")))
}

/// Distributes the table by the client, over as many shards as the setting `citus.shard_count` says, and beside other
/// tables that are distributed by a text. Under the lock nobody fills the table, whose rows would be copied and left
/// behind as well.
pub(crate) fn distribute_keys(tables: &Tables) -> Vec<String> {
    [
        "lock table {keys} in access exclusive mode",
        "do $$
begin
    if exists (select from {keys}) then
        raise exception 'the table has rows by now' using hint = 'idemctl migrate --citus says what to do';
    end if;
end
$$",
        "select create_distributed_table('{keys}', 'client_id')",
    ]
    .map(|statement| tables.fill(statement))
    .to_vec()
}

/// Makes the event log a table that Citus knows and keeps where it is. Nothing is copied.
pub(crate) fn join_events(tables: &Tables) -> Vec<String> {
    vec![tables.fill("select citus_add_local_table_to_metadata('{events}')")]
}
