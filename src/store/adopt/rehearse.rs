//! A copy of their table's definition, and of some of its rows, in a scratch schema.

use super::{Column, Copy, Filled, Table, run_made};
use crate::error::Result;
use crate::key::KeyId;
use crate::store::{Executor, quote_ident};

/// Makes an empty table like theirs, with its defaults, constraints and indexes. Foreign keys and triggers do not
/// come along.
pub(crate) async fn copy_definition(executor: &impl Executor, from: &Table, to: &Table) -> Result<()> {
    let text = format!(
        "create table {} (like {} including all)",
        to.quoted(),
        from.quoted()
    );
    run_made(executor, "adopt_copy_definition", text).await?;
    Ok(())
}

/// Rows in which a sample is looked for.
const LOOKED_AT: u32 = 100_000;

/// Fills it with some of the first rows that are met, unfinished ones among them; how many there were.
pub(crate) async fn sample(
    executor: &impl Executor,
    from: &Table,
    to: &Copy,
    columns: &[Column],
) -> Result<u64> {
    let names: Vec<String> = columns
        .iter()
        .filter(|column| column.filled != Filled::Generated)
        .map(|column| quote_ident(&column.name))
        .collect();
    let names = names.join(", ");
    let status = to.value("status");
    let mut rows = 0;
    for (condition, most) in [("=", 100), ("<>", 900)] {
        let text = format!(
            "insert into {} ({names}) overriding system value
select {names} from (select * from {} limit {LOOKED_AT}) s where ({status}) {condition} 'in_progress' limit {most}",
            to.table.quoted(),
            from.quoted()
        );
        rows += run_made(executor, "adopt_sample", text).await?.affected;
    }
    Ok(rows)
}

/// One copied key of this status, with its fingerprint.
pub(crate) async fn one_of(
    executor: &impl Executor,
    schema: &str,
    status: &str,
) -> Result<Option<(KeyId, String)>> {
    let text = format!(
        "select client_id, key, fingerprint from {}.idempotency where status = '{status}' order by client_id, key limit 1",
        quote_ident(schema)
    );
    let answer = run_made(executor, "adopt_one_of", text).await?;
    Ok(answer.rows.first().map(|row| {
        let id = KeyId::from_row(row.get("client_id"), row.get("key"));
        (id, row.get("fingerprint"))
    }))
}

/// Reads the view once.
pub(crate) fn read_view(schema: &str) -> String {
    format!("select * from {}.idempotency_read limit 1", quote_ident(schema))
}

/// What a claim would send, to the view.
pub(crate) fn claim_view(schema: &str) -> String {
    format!(
        "insert into {}.idempotency_read (client_id, key, fingerprint, status) values ('idemctl-rehearsal', 'view', '', \
         'in_progress') on conflict (client_id, key) do nothing",
        quote_ident(schema)
    )
}
