//! What a table of another shape would need.

pub(crate) mod script;

use std::io::{self, Write};

use idemctl::ops::adopt::{ColumnFit, Report, RowsReport, Step, WordFit};
use serde::Serialize;

use super::{Document, printable, table};

/// `adopt -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct AdoptView<'a> {
    schema: &'a str,
    table: &'a str,
    target_schema: &'a str,
    adoptable: bool,
    estimated_rows: Option<f64>,
    bytes: i64,
    columns: &'a [ColumnFit],
    unused: &'a [String],
    statuses: &'a [WordFit],
    rows: Option<&'a RowsReport>,
    problems: Vec<String>,
    warnings: Vec<String>,
    script: Option<String>,
    view: Option<String>,
    rehearsal: Option<&'a [Step]>,
}

impl<'a> AdoptView<'a> {
    pub(crate) fn new(report: &'a Report, rehearsal: Option<&'a [Step]>) -> Self {
        Self {
            schema: &report.schema,
            table: &report.table,
            target_schema: &report.target_schema,
            adoptable: report.problems.is_empty(),
            estimated_rows: report.estimated_rows,
            bytes: report.bytes,
            columns: &report.columns,
            unused: &report.unused,
            statuses: &report.words,
            rows: report.rows.as_ref(),
            problems: report.problems.iter().map(script::line).collect(),
            warnings: report.warnings.iter().map(script::line).collect(),
            script: script::migration(report),
            view: script::view(report),
            rehearsal,
        }
    }
}

fn words(list: &[&str]) -> Vec<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

fn or_dash(text: Option<&str>) -> String {
    text.map_or_else(|| "-".to_owned(), printable)
}

impl AdoptView<'_> {
    fn statuses(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.statuses.is_empty() {
            return Ok(());
        }
        let rows = self
            .statuses
            .iter()
            .map(|WordFit { theirs, rows, ours }| {
                vec![
                    or_dash(theirs.as_deref()),
                    ours.unwrap_or("?").to_owned(),
                    rows.to_string(),
                ]
            })
            .collect();
        table::plain(out, words(&["THEIR STATE", "OURS", "ROWS"]), rows)
    }

    fn rows(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(RowsReport {
            looked_at,
            all,
            in_progress,
            live,
            done,
            failed,
        }) = self.rows
        else {
            return writeln!(out, "\nThe rows were not looked at.");
        };
        let how = if *all { "all of them" } else { "not all of them" };
        writeln!(
            out,
            "\n{looked_at} rows looked at, {how}: {done} done, {failed} failed, {in_progress} in progress ({live} with a lease \
             that is not over)"
        )
    }

    fn rehearsal(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(steps) = self.rehearsal else {
            return Ok(());
        };
        writeln!(out, "\nRehearsal:")?;
        for Step { name, found, ok } in steps {
            let word = match ok {
                Some(true) => "ok",
                Some(false) => "FAILED",
                None => "-",
            };
            writeln!(out, "  {word:<6}  {name:<19}  {}", printable(found))?;
        }
        Ok(())
    }
}

impl Document for AdoptView<'_> {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{}.{} to {}.idempotency",
            printable(self.schema),
            printable(self.table),
            printable(self.target_schema)
        )?;
        let rows = self
            .columns
            .iter()
            .map(|column| {
                let ColumnFit {
                    ours,
                    theirs,
                    kind,
                    fit,
                    how,
                } = column;
                vec![
                    (*ours).to_owned(),
                    or_dash(theirs.as_deref()),
                    or_dash(kind.as_deref()),
                    fit.as_str().to_owned(),
                    printable(how),
                ]
            })
            .collect();
        table::plain(out, words(&["OURS", "THEIRS", "TYPE", "FIT", "HOW"]), rows)?;
        if !self.unused.is_empty() {
            let names: Vec<String> = self.unused.iter().map(|name| printable(name)).collect();
            writeln!(out, "\nNot used, and left behind: {}", names.join(", "))?;
        }
        self.statuses(out)?;
        self.rows(out)?;
        self.rehearsal(out)?;
        for (title, list) in [
            ("Cannot be done:", &self.problems),
            ("Before it is run:", &self.warnings),
        ] {
            if !list.is_empty() {
                writeln!(out, "\n{title}")?;
            }
            for line in list {
                writeln!(out, "  - {}", printable(line))?;
            }
        }
        if self.adoptable {
            writeln!(
                out,
                "\nIt can be done: --show-sql prints the migration, --rehearse tries it"
            )?;
        }
        Ok(())
    }

    fn csv(&self) -> Option<Vec<Vec<String>>> {
        let mut rows = vec![words(&["ours", "theirs", "type", "fit", "how"])];
        for column in self.columns {
            rows.push(vec![
                column.ours.to_owned(),
                column.theirs.clone().unwrap_or_default(),
                column.kind.clone().unwrap_or_default(),
                column.fit.as_str().to_owned(),
                column.how.clone(),
            ]);
        }
        Some(rows)
    }
}
