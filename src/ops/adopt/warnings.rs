//! What has to be known before the script is run.

use super::Report;
use super::column::Fit;
use super::remark::{Remark, Remedy};
use crate::store::adopt::{Copy, StatusWord, Value};

/// In the order of their weight.
pub(super) fn warnings(report: &Report, copy: &Copy) -> Vec<Remark> {
    let (theirs, ours) = (
        format!("{}.{}", report.schema, report.table),
        format!("{}.idempotency", report.target_schema),
    );
    let mut warnings = vec![
        Remark::new(format!(
            "a service that uses {theirs} and one that uses {ours} do not see each other's claims, and both may charge: stop the \
             old ones before the cut-over, and start the new ones after it. The cut-over renames {theirs} to {} and lets \
             nobody write into it, so that an old one fails instead",
            copy.retired()
        )),
        Remark::new(format!(
            "the batches copy while services go on; the cut-over holds ACCESS EXCLUSIVE on {theirs} while it reads the whole \
             table five times, and makes {ours} what {theirs} is then"
        )),
        Remark::with(
            "the provider's keys that the old services sent are not known here: a takeover of an unfinished key sends another \
             one, and a provider may charge again. Settle unfinished keys first, or go on sending the old key",
            Remedy::Settle,
        ),
    ];
    warnings.extend(spelling(report));
    let Some(rows) = &report.rows else {
        return warnings;
    };
    if rows.in_progress > 0 {
        warnings.push(Remark::new(format!(
            "{} of the rows are unfinished, {} of them with a lease that is not over",
            rows.in_progress, rows.live
        )));
    }
    if rows.failed > 0 {
        warnings.push(Remark::with(
            format!(
                "{} of the rows are failed, which is final here: a repeat gets the stored error",
                rows.failed
            ),
            Remedy::DoAgain,
        ));
    } else if fails_unseen(copy) {
        warnings.push(Remark::with(
            "a row that is `failed` by the time of the copy is final here: a repeat gets the stored error",
            Remedy::DoAgain,
        ));
    }
    if !rows.all {
        warnings.push(Remark::with(
            format!(
                "only {} rows were looked at; the script itself stops at the first row that does not fit, and keeps nothing \
                 of the cut-over then",
                rows.looked_at
            ),
            Remedy::MoreRows,
        ));
    }
    warnings
}

/// Their table takes several spellings for one key, and ours takes a text for itself.
fn spelling(report: &Report) -> Option<Remark> {
    let converted: Vec<String> = report
        .columns
        .iter()
        .filter(|column| matches!(column.ours, "client_id" | "key") && column.fit == Fit::Converts)
        .filter_map(|column| Some(format!("{} ({})", column.theirs.as_ref()?, column.kind.as_ref()?)))
        .collect();
    (!converted.is_empty()).then(|| {
        Remark::new(format!(
            "the new services must spell {} as PostgreSQL prints it (a uuid in lower case with hyphens, a number without \
             leading zeros, no blanks at the end) before they reserve: another spelling of an old key is a new key here, and is \
             charged again",
            converted.join(" and ")
        ))
    })
}

/// Whether the script knows a word for a failure that no row had.
fn fails_unseen(copy: &Copy) -> bool {
    copy.values.iter().any(|(_, value)| match value {
        Value::Status(_, words, known) => {
            let named = |word: &StatusWord| word.theirs == "failed";
            !words.iter().any(named) && known.iter().any(named)
        }
        _ => false,
    })
}
