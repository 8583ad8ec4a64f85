//! The figures of a run, as people read them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::checker::{Violation, doubles};
use super::history::{Exchange, Heard, History};
use super::weather::Done;

/// How many lines of the services' log are shown when a promise was broken.
const LOG_LINES: usize = 30;

/// What happened in a run.
#[derive(Debug, Default)]
pub(super) struct Figures {
    name: &'static str,
    pub(super) seed: u64,
    /// Keys that were asked for, requests for them, requests that got no answer at all.
    pub(super) keys: usize,
    pub(super) requests: usize,
    pub(super) unanswered: usize,
    /// Answers by status; those that said that they were stored earlier.
    pub(super) statuses: BTreeMap<u16, usize>,
    pub(super) replays: usize,
    /// Times that the provider was told to charge.
    pub(super) calls: usize,
    /// Charges at the provider; keys that were charged twice.
    pub(super) charges: usize,
    pub(super) doubles: usize,
    /// Acquisitions of a key beyond its first, of rows that are there in the end.
    pub(super) takeovers: i64,
    /// Holders that found their lease gone when they wanted to settle, as far as they lived to say so.
    pub(super) lost: usize,
    median: Duration,
    slowest: Duration,
    pub(super) done: Done,
    pub(super) trouble: Duration,
    pub(super) settled: Duration,
    pub(super) reconciled: usize,
    pub(super) events: Vec<(String, i64)>,
    broken: usize,
    pub(super) log_end: String,
}

impl Figures {
    pub(super) fn new(
        name: &'static str,
        seed: u64,
        history: &History,
        violations: &[Violation],
        log: &str,
    ) -> Self {
        let mut figures = Self {
            name,
            seed,
            requests: history.exchanges.len(),
            calls: history.calls.len(),
            charges: history.ledger.len(),
            doubles: doubles(violations),
            broken: violations.len(),
            lost: log.matches(" is lost: ").count(),
            ..Self::default()
        };
        let mut keys: Vec<_> = history
            .exchanges
            .iter()
            .map(|exchange| &exchange.wish.id)
            .collect();
        keys.sort();
        keys.dedup();
        figures.keys = keys.len();
        for exchange in &history.exchanges {
            match &exchange.heard {
                Heard::Answer { status, replayed, .. } => {
                    *figures.statuses.entry(*status).or_default() += 1;
                    figures.replays += usize::from(*replayed);
                }
                Heard::Nothing(_) => figures.unanswered += 1,
            }
        }
        let acquired = |attempt: i32| i64::from(attempt) - 1;
        figures.takeovers = history.rows.iter().map(|row| acquired(row.attempt)).sum();
        let mut times: Vec<_> = history.exchanges.iter().map(Exchange::took).collect();
        times.sort();
        figures.median = times.get(times.len() / 2).copied().unwrap_or_default();
        figures.slowest = times.last().copied().unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        figures.log_end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        figures
    }

    pub(super) fn status(&self, status: u16) -> usize {
        self.statuses.get(&status).copied().unwrap_or_default()
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { done, .. } = self;
        writeln!(
            f,
            "chaos, {}: seed {}, {} s of trouble, settled {:.1} s later",
            self.name,
            self.seed,
            self.trouble.as_secs(),
            self.settled.as_secs_f64()
        )?;
        let statuses: Vec<_> = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{status}: {count}"))
            .collect();
        writeln!(
            f,
            "  {} keys, {} requests: {}; no answer: {}; replays: {}; median {:?}, slowest {:?}",
            self.keys,
            self.requests,
            statuses.join(", "),
            self.unanswered,
            self.replays,
            self.median,
            self.slowest
        )?;
        writeln!(
            f,
            "  services killed: {}, stopped: {}; PostgreSQL restarted: {} {:?}; connections cut: {}, held: {}; faults \
             of the provider: {}",
            done.kills,
            done.stops,
            done.restarts.len(),
            done.restarts,
            done.cuts,
            done.holds,
            done.faults
        )?;
        writeln!(
            f,
            "  takeovers: {}, leases found lost: {}; runs of reconcile: {}, its results: {:?}",
            self.takeovers, self.lost, self.reconciled, self.events
        )?;
        write!(
            f,
            "  calls of the provider: {}, charges: {}, keys charged twice: {}, broken promises: {}",
            self.calls, self.charges, self.doubles, self.broken
        )
    }
}
