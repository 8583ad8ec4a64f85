//! What the rows of a table of another shape hold, in numbers: no value of theirs is brought here but their words for
//! a state.

use super::script::{CONTROL, Copy};
use super::{Table, one_row, run_made};
use crate::error::Result;
use crate::store::{Executor, quote_ident};

/// A word that stands in their column for the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    /// `None` for null.
    pub(crate) word: Option<String>,
    pub(crate) rows: i64,
}

/// Most words that a column for a state may have.
const MOST_WORDS: u32 = 50;

/// The words in this column, in the first rows that are met.
pub(crate) async fn words(
    executor: &impl Executor,
    table: &Table,
    column: &str,
    limit: u64,
) -> Result<Vec<Word>> {
    let column = quote_ident(column);
    let text = format!(
        "select left(s.{column}::text, 100) as word, count(*) as rows
  from (select {column} from {} limit {limit}) s
 group by 1 order by 2 desc, 1 limit {MOST_WORDS}",
        table.quoted()
    );
    let answer = run_made(executor, "adopt_words", text).await?;
    Ok(answer
        .rows
        .iter()
        .map(|row| Word {
            word: row.get("word"),
            rows: row.get("rows"),
        })
        .collect())
}

/// How many rows would be what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) rows: i64,
    pub(crate) no_client: i64,
    pub(crate) no_key: i64,
    pub(crate) unnameable: i64,
    pub(crate) no_status: i64,
    pub(crate) no_fingerprint: i64,
    pub(crate) no_created_at: i64,
    pub(crate) no_locked_until: i64,
    pub(crate) odd_codes: i64,
    pub(crate) done_without_code: i64,
    pub(crate) odd_headers: i64,
    /// In progress, with signs of an end.
    pub(crate) ended_in_progress: i64,
    pub(crate) in_progress: i64,
    pub(crate) live: i64,
    pub(crate) done: i64,
    pub(crate) failed: i64,
}

/// Reads the first rows that are met, as the script would convert them.
pub(crate) async fn count(executor: &impl Executor, copy: &Copy, limit: u64) -> Result<Counts> {
    let text = format!(
        "select count(*) as rows,
       count(*) filter (where r.client_id is null) as no_client,
       count(*) filter (where r.key is null) as no_key,
       count(*) filter (where length(r.client_id) not between 1 and 255 or length(r.key) not between 1 and 255
                           or r.client_id ~ {CONTROL} or r.key ~ {CONTROL}) as unnameable,
       count(*) filter (where r.status is null) as no_status,
       count(*) filter (where r.fingerprint is null) as no_fingerprint,
       count(*) filter (where r.created_at is null) as no_created_at,
       count(*) filter (where r.locked_until is null) as no_locked_until,
       count(*) filter (where r.status <> 'in_progress' and r.status_code not between 100 and 599) as odd_codes,
       count(*) filter (where r.status = 'done' and r.status_code is null) as done_without_code,
       count(*) filter (where {}) as odd_headers,
       ({}) as ended_in_progress,
       count(*) filter (where r.status = 'in_progress') as in_progress,
       count(*) filter (where r.status = 'in_progress' and r.locked_until > now()) as live,
       count(*) filter (where r.status = 'done') as done,
       count(*) filter (where r.status = 'failed') as failed
  from ({}) r",
        copy.odd_headers(),
        copy.ended_in_progress(limit),
        copy.rows(Some(limit))
    );
    let answer = run_made(executor, "adopt_count", text).await?;
    let row = one_row(&answer)?;
    Ok(Counts {
        rows: row.get("rows"),
        no_client: row.get("no_client"),
        no_key: row.get("no_key"),
        unnameable: row.get("unnameable"),
        no_status: row.get("no_status"),
        no_fingerprint: row.get("no_fingerprint"),
        no_created_at: row.get("no_created_at"),
        no_locked_until: row.get("no_locked_until"),
        odd_codes: row.get("odd_codes"),
        done_without_code: row.get("done_without_code"),
        odd_headers: row.get("odd_headers"),
        ended_in_progress: row.get("ended_in_progress"),
        in_progress: row.get("in_progress"),
        live: row.get("live"),
        done: row.get("done"),
        failed: row.get("failed"),
    })
}
