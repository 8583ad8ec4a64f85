//! The migration and the view as a person reads them, and what to type for a remedy.

use idemctl::ops::adopt::{COPY, Remark, Remedy, Report};

/// A remark, and what to type.
pub(crate) fn line(remark: &Remark) -> String {
    match remark.remedy.as_ref().map(typed) {
        Some(typed) => format!("{}: {typed}", remark.text),
        None => remark.text.clone(),
    }
}

fn typed(remedy: &Remedy) -> String {
    match remedy {
        Remedy::Name(ours) => format!("give --map COLUMN={ours}"),
        Remedy::NameClient => {
            "if all keys have one sender, give --client-constant NAME, else --map COLUMN=client_id".to_owned()
        }
        Remedy::LeaveOut(column) => format!("give --map {}=-", column.as_deref().unwrap_or("COLUMN")),
        Remedy::Explain(word) => {
            format!("say what it means, --status '{word}=in_progress' (or done, failed)")
        }
        Remedy::DoAgain => {
            "if a failed request is to be done again, say so, --status WORD=in_progress".to_owned()
        }
        Remedy::OtherSchema => "give --schema NAME".to_owned(),
        Remedy::Settle => "`idemctl list --state expired` after the migration shows them".to_owned(),
        Remedy::MoreRows => "--rows N looks at more".to_owned(),
    }
}

/// For psql.
pub(crate) fn migration(report: &Report) -> Option<String> {
    let sql = report.script.as_ref()?;
    let mut text = header("copies another table into the table of the protocol", report);
    for warning in &report.warnings {
        text.push_str(&comment(&line(warning)));
    }
    text.push_str(&comment(
        "Run it outside a transaction, in one session, stopping at the first error: psql --no-psqlrc -v ON_ERROR_STOP=1 -f \
         FILE. Afterwards: idemctl migrate.",
    ));
    text.push_str(&comment(&format!(
        "If it stops, nothing of theirs was changed, and no key can be claimed in the half copy. At a lock that it could not \
         have: run it again from `begin` on. Else mend what it names, drop the copy (drop table {}.{COPY}), and begin again \
         with idemctl adopt; for a word without a meaning with --status WORD=in_progress (or done, failed).",
        report.target_schema
    )));
    text.push_str(&comment(
        "Back again, as long as no new service has run: drop the new table, rename the old one, and drop its constraint \
         idemctl_retired.",
    ));
    Some(text + "\n" + sql)
}

/// For psql.
pub(crate) fn view(report: &Report) -> Option<String> {
    let sql = report.view.as_ref()?;
    let mut text = header("shows another table under the names of the protocol", report);
    text.push_str(&comment(
        "For reading by SQL alone. Keys cannot be claimed through it: its columns are expressions, which PostgreSQL does not \
         let anybody write, and there is no lease token to fence with. idemctl does not open views either.",
    ));
    Some(text + "\n" + sql)
}

fn header(what: &str, report: &Report) -> String {
    comment(&format!(
        "idemctl {}: {what}. From {}.{}, to schema {}.",
        env!("CARGO_PKG_VERSION"),
        report.schema,
        report.table,
        report.target_schema
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
