//! The migration as a person reads it.

use super::Report;
use crate::store::adopt::Copy;

/// What has to be known before it is run.
pub(super) fn warnings(report: &Report, copy: &Copy) -> Vec<String> {
    let (theirs, ours) = (
        format!("{}.{}", report.schema, report.table),
        format!("{}.idempotency", report.target_schema),
    );
    let mut warnings = vec![
        format!(
            "a service that uses {theirs} and one that uses {ours} do not see each other's claims, and both may charge: stop the \
             old ones before the cut-over, and start the new ones after it. The cut-over renames {theirs} to {}, so that an \
             old one fails instead",
            copy.retired()
        ),
        format!(
            "the batches copy while services go on; the cut-over holds ACCESS EXCLUSIVE on {theirs} while it reads the whole \
             table twice"
        ),
        "the provider's keys that the old services sent are not known here: a takeover of an unfinished key sends another \
         one, and a provider may charge again. Settle unfinished keys first (`idemctl list --state expired` after the \
         migration), or go on sending the old key"
            .to_owned(),
    ];
    if let Some(rows) = &report.rows {
        if rows.in_progress > 0 {
            warnings.push(format!(
                "{} of the rows are unfinished, {} of them with a lease that is not over",
                rows.in_progress, rows.live
            ));
        }
        if rows.failed > 0 {
            warnings.push(format!(
                "{} of the rows are failed, which is final here: a repeat gets the stored error. If a failed request is to be \
                 done again, say so: --status WORD=in_progress",
                rows.failed
            ));
        }
        if !rows.all {
            warnings.push(format!(
                "only {} rows were looked at (--rows); the script itself stops at the first row that does not fit, and keeps \
                 nothing of the cut-over then",
                rows.looked_at
            ));
        }
    }
    warnings
}

/// For psql.
pub(super) fn migration(copy: &Copy, warnings: &[String]) -> String {
    let mut text = header("copies another table into the table of the protocol", copy);
    for warning in warnings {
        text.push_str(&comment(warning));
    }
    text.push_str(&comment(
        "Run it outside a transaction, in one session, stopping at the first error: psql --no-psqlrc -v ON_ERROR_STOP=1 -f \
         FILE. Afterwards: idemctl migrate. Back again, as long as no new service has run: drop the new table, and rename the \
         old one.",
    ));
    for statement in copy.statements() {
        text.push('\n');
        text.push_str(&statement);
        text.push_str(";\n");
    }
    text
}

/// For psql.
pub(super) fn view(copy: &Copy) -> String {
    let mut text = header("shows another table under the names of the protocol", copy);
    text.push_str(&comment(
        "For reading by SQL alone. Keys cannot be claimed through it: its columns are expressions, which PostgreSQL does not \
         let anybody write, and there is no lease token to fence with. idemctl does not open views either.",
    ));
    text.push('\n');
    text.push_str(&copy.view());
    text.push_str(";\n");
    text
}

fn header(what: &str, copy: &Copy) -> String {
    comment(&format!(
        "idemctl {}: {what}. From {}, to schema {}.",
        env!("CARGO_PKG_VERSION"),
        copy.table.quoted(),
        copy.schema
    ))
}

/// In lines that begin with two dashes, whatever a name may hold.
fn comment(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("-- {clean}\n")
}
