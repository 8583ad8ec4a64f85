//! Findings, one after the other.

use std::io::Write;

use idemctl::ops::doctor::{Check, Severity};
use serde::Serialize;

use super::{Item, Printer, printable, stdout};
use crate::cli::Format;
use crate::exit::Result;

/// One check: its own JSON object, and a few lines for people.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct CheckView(Check);

impl Item for CheckView {
    const COLUMNS: &'static [&'static str] = &["name", "severity", "found", "expected", "mend", "fix"];

    fn cells(&self) -> Vec<String> {
        let Check {
            name,
            severity,
            found,
            expected,
            mend,
            fix,
        } = &self.0;
        vec![
            (*name).to_owned(),
            severity.as_str().to_owned(),
            found.clone(),
            expected.clone(),
            mend.clone().unwrap_or_default(),
            fix.map(|_| "yes".to_owned()).unwrap_or_default(),
        ]
    }

    fn id(&self) -> Option<(&str, &str)> {
        None
    }
}

/// All of them, or those that are not as expected. A table would be wider than any terminal, so people get a line for
/// each, and more for what is wrong.
pub(crate) fn print(printer: Printer, checks: &[Check], problems: bool) -> Result<()> {
    let shown = checks
        .iter()
        .filter(|check| !problems || check.severity != Severity::Ok);
    if printer.format() != Format::Table {
        let mut list = printer.list();
        list.page(&shown.cloned().map(CheckView).collect::<Vec<_>>())?;
        return list.end();
    }
    let mut out = stdout(Format::Table);
    let width = shown.clone().map(|check| check.name.len()).max().unwrap_or(0);
    for check in shown {
        writeln!(
            out,
            "{:<7}  {:<width$}  {}",
            check.severity.as_str(),
            check.name,
            printable(&check.found)
        )?;
        if check.severity >= Severity::Warning {
            writeln!(
                out,
                "{:9}{:width$}  expected: {}",
                "",
                "",
                printable(&check.expected)
            )?;
            if let Some(mend) = &check.mend {
                writeln!(out, "{:9}{:width$}  mend: {}", "", "", printable(mend))?;
            }
        }
    }
    let count = |severity| checks.iter().filter(|check| check.severity == severity).count();
    writeln!(
        out,
        "{} errors, {} warnings, {} unknown, {} ok",
        count(Severity::Error),
        count(Severity::Warning),
        count(Severity::Unknown),
        count(Severity::Ok)
    )?;
    out.flush()?;
    Ok(())
}
