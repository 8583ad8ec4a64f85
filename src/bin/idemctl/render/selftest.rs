//! What a self test found, for engineers and for whoever asks them.

use std::fmt::Write as _;
use std::io::{self, Write};

use idemctl::ops::selftest::{Check, Fact, Report, Verdict};
use serde::Serialize;

use super::{Document, printable};

/// `selftest -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct SelftestView {
    verdict: &'static str,
    passed: usize,
    failed: usize,
    not_checked: usize,
    interrupted: bool,
    database: String,
    server_version: String,
    schema: String,
    pooled: bool,
    clients: usize,
    elapsed_seconds: f64,
    facts: Vec<Fact>,
    checks: Vec<Check>,
}

impl From<&Report> for SelftestView {
    fn from(report: &Report) -> Self {
        let Report {
            schema,
            database,
            server_version,
            pooled,
            clients,
            facts,
            checks,
            elapsed,
            interrupted,
        } = report;
        let failed = report.count(Verdict::Failed);
        let not_checked = report.count(Verdict::NotChecked);
        Self {
            verdict: match (failed, not_checked) {
                (0, 0) => "passed",
                (0, _) => "incomplete",
                _ => "failed",
            },
            passed: report.count(Verdict::Passed),
            failed,
            not_checked,
            interrupted: *interrupted,
            database: database.clone(),
            server_version: server_version.clone(),
            schema: schema.clone(),
            pooled: *pooled,
            clients: *clients,
            elapsed_seconds: (elapsed.as_secs_f64() * 1e3).round() / 1e3,
            facts: facts.clone(),
            checks: checks.clone(),
        }
    }
}

impl SelftestView {
    /// `PASSED 20 of 21 checks, 1 not checked: ...`.
    fn headline(&self) -> String {
        let names = |verdict| {
            let checks = self.checks.iter().filter(move |check| check.verdict == verdict);
            checks.map(|check| check.name).collect::<Vec<_>>().join(", ")
        };
        let all = self.checks.len();
        let mut line = if self.failed > 0 {
            format!(
                "FAILED {} of {all} checks: {}",
                self.failed,
                names(Verdict::Failed)
            )
        } else {
            format!("PASSED {} of {all} checks", self.passed)
        };
        if self.not_checked > 0 {
            // Writing into a string cannot fail.
            let _ = write!(
                line,
                ", {} not checked: {}",
                self.not_checked,
                names(Verdict::NotChecked)
            );
        }
        line
    }

    /// What all checks that ended so mean, each sentence once. Where one check of a kind has failed, the sentence of
    /// those that passed would read as if nothing had.
    fn meanings(&self, verdict: Verdict) -> Vec<&str> {
        let kind = |check: &Check| check.name.split('.').next().unwrap_or_default().to_owned();
        let failed: Vec<String> = self
            .checks
            .iter()
            .filter(|check| check.verdict == Verdict::Failed)
            .map(kind)
            .collect();
        let mut told: Vec<&str> = Vec::new();
        for check in self.checks.iter().filter(|check| check.verdict == verdict) {
            let spoilt = verdict == Verdict::Passed && failed.contains(&kind(check));
            if !spoilt && !told.contains(&check.meaning.as_str()) {
                told.push(&check.meaning);
            }
        }
        told
    }
}

impl Document for SelftestView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        for Fact { name, found } in &self.facts {
            writeln!(out, "{name:<11}  {}", printable(found))?;
        }
        writeln!(out)?;
        let width = self
            .checks
            .iter()
            .map(|check| check.name.len())
            .max()
            .unwrap_or(0);
        for check in &self.checks {
            let word = match check.verdict {
                Verdict::Passed => "passed",
                Verdict::Failed => "FAILED",
                Verdict::NotChecked => "not checked",
            };
            writeln!(
                out,
                "{word:<11}  {:<width$}  {}",
                check.name,
                printable(&check.found)
            )?;
            if check.verdict != Verdict::Passed {
                writeln!(out, "{:11}  {:width$}  done: {}", "", "", printable(&check.done))?;
                writeln!(out, "{:11}  {:width$}  expected: {}", "", "", check.expected)?;
            }
        }
        let way = if self.pooled {
            "through what stands between (a pooler?)"
        } else {
            "reached directly"
        };
        writeln!(
            out,
            "\n{}\nIn {:.1} s, on the database {} (PostgreSQL {}), {way}:",
            self.headline(),
            self.elapsed_seconds,
            printable(&self.database),
            printable(&self.server_version)
        )?;
        // Bad news first.
        for (verdict, mark) in [(Verdict::Failed, '!'), (Verdict::Passed, '-')] {
            for meaning in self.meanings(verdict) {
                writeln!(out, "  {mark} {}", printable(meaning))?;
            }
        }
        if self.not_checked > 0 {
            writeln!(out, "What was not checked is not known to hold.")?;
        }
        Ok(())
    }

    fn csv(&self) -> Option<Vec<Vec<String>>> {
        let head = ["name", "verdict", "done", "expected", "found", "meaning"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for check in &self.checks {
            rows.push(vec![
                check.name.to_owned(),
                check.verdict.as_str().to_owned(),
                check.done.clone(),
                check.expected.to_owned(),
                check.found.clone(),
                check.meaning.clone(),
            ]);
        }
        Some(rows)
    }
}
