//! What a purge did.

use std::io::{self, Write};

use idemctl::ops::purge::Report;
use serde::Serialize;

use super::Document;

/// `purge -o json` of the contract.
#[derive(Debug, Serialize)]
pub(crate) struct PurgeView {
    deleted: u64,
    batches: u64,
    elapsed_seconds: f64,
    stopped: &'static str,
    /// Null when it could not be counted.
    backlog: Option<u64>,
    backlog_capped: bool,
    /// All that were stepped over, and of these those that the table does not let go.
    skipped: u64,
    refused: u64,
    events_deleted: u64,
    /// Old events are there, and the database's role may not delete them.
    events_left: bool,
    oldest_kept: Option<String>,
    dry_run: bool,
}

impl From<&Report> for PurgeView {
    fn from(report: &Report) -> Self {
        let Report {
            deleted,
            batches,
            skipped,
            refused,
            // Only a failure has it, and says it on stderr.
            unknown: _,
            events_deleted,
            events_left,
            elapsed,
            stopped,
            backlog,
            oldest_kept,
            // For the gauges.
            cleared_before: _,
            dry_run,
        } = report;
        Self {
            deleted: *deleted,
            batches: *batches,
            elapsed_seconds: (elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
            stopped: stopped.as_str(),
            backlog: backlog.map(|backlog| backlog.rows),
            backlog_capped: backlog.is_some_and(|backlog| backlog.capped),
            skipped: *skipped,
            refused: *refused,
            events_deleted: *events_deleted,
            events_left: *events_left,
            oldest_kept: oldest_kept.map(|at| at.to_string()),
            dry_run: *dry_run,
        }
    }
}

impl Document for PurgeView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let verb = if self.dry_run { "would delete" } else { "deleted" };
        writeln!(
            out,
            "{verb}  {} rows in {} batches, {} events",
            self.deleted, self.batches, self.events_deleted
        )?;
        writeln!(out, "took     {:.1} s", self.elapsed_seconds)?;
        writeln!(out, "stopped  {}", self.stopped)?;
        if self.skipped > self.refused {
            writeln!(
                out,
                "skipped  {} rows that stayed locked",
                self.skipped - self.refused
            )?;
        }
        if self.refused > 0 {
            writeln!(out, "refused  {} rows that could not be deleted", self.refused)?;
        }
        if self.events_left {
            writeln!(
                out,
                "events   old ones were left: this database role may not delete them (the janitor's may)"
            )?;
        }
        match (self.backlog, self.backlog_capped) {
            (Some(rows), false) => writeln!(out, "backlog  {rows} rows are due"),
            (Some(rows), true) => writeln!(out, "backlog  more than {rows} rows are due"),
            (None, _) => writeln!(out, "backlog  not counted"),
        }
    }
}
