//! What the rows themselves say.

use serde::Serialize;

use super::Report;
use super::remark::Remark;
use crate::error::Error;
use crate::store::adopt::Counts;

/// What was counted in the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowsReport {
    /// Rows that were looked at.
    pub looked_at: i64,
    /// Whether that was all of them.
    pub all: bool,
    /// In progress, as the script would convert them.
    pub in_progress: i64,
    /// Of these, with a lease that is not over.
    pub live: i64,
    /// Done.
    pub done: i64,
    /// Failed.
    pub failed: i64,
}

/// Data exceptions (class 22), whose messages quote what stands in a row.
pub(super) fn class_of_values(error: &Error) -> bool {
    error.sqlstate().is_some_and(|code| code.starts_with("22"))
}

/// What the rows themselves say against it.
pub(super) fn judge(report: &mut Report, counts: &Counts, limit: u64) {
    let Counts {
        rows,
        done_without_code,
        in_progress,
        live,
        done,
        failed,
        ..
    } = *counts;
    report.rows = Some(RowsReport {
        looked_at: rows,
        all: u64::try_from(rows).is_ok_and(|rows| rows < limit),
        in_progress,
        live,
        done,
        failed,
    });
    let coded = report
        .columns
        .iter()
        .any(|column| column.ours == "status_code" && column.theirs.is_some());
    if coded && done_without_code > 0 {
        report.warnings.push(Remark::new(format!(
            "{done_without_code} of the rows are done and have no status code: a repeat gets 200, whatever was sent at first"
        )));
    }
    for (count, what) in spoilt(counts) {
        if count > 0 {
            let text = format!("{count} rows have {what}; mend or delete them first");
            report.problems.push(Remark::new(text));
        }
    }
}

/// How many rows have what no row may have.
fn spoilt(counts: &Counts) -> [(i64, &'static str); 10] {
    [
        (
            counts.no_client,
            "no client: nobody can ask for them, and a repeat would find nothing",
        ),
        (counts.no_key, "no key: nobody can ask for them"),
        (
            counts.unnameable,
            "a client or key that no request can name (empty, over 255 characters, or with control characters)",
        ),
        (
            counts.no_status,
            "no state: an answer that is empty, or signs of an end that contradict each other (with a column for the state, \
             a word without a meaning)",
        ),
        (
            counts.no_fingerprint,
            "no fingerprint: whether a repeat is the same request cannot be told",
        ),
        (
            counts.no_created_at,
            "no time of creation: their retention would never end",
        ),
        (counts.no_locked_until, "no end of the lease"),
        (
            counts.odd_codes,
            "a status code that is no HTTP status (100 to 599)",
        ),
        (
            counts.odd_headers,
            "headers that are neither an object of strings nor an array of [name, value]: they could not be replayed",
        ),
        (
            counts.ended_in_progress,
            "a state that means in progress, and a status code or a time of completion: whether they are done cannot be told, \
             and to do them again could charge again",
        ),
    ]
}
