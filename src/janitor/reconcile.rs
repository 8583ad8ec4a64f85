//! The policy `reconcile`: the same operation as the command's, bounded in each run.

use std::fmt;

use super::{Config, Link};
use crate::error::{Error, Result};
use crate::ops::reconcile::{Backoff, Database, Report, Request, Rows};
use crate::ops::{Failure, expired, stuck};
use crate::pulse::Pulse;
use crate::stop::Stop;

/// What a job remembers from run to run. It lives as long as the daemon.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Where the last run over the stuck rows left off.
    pub(super) cursor: Option<stuck::Cursor>,
    /// Rows that could not be ended, and when it is their turn again.
    pub(super) backoff: Backoff,
    /// The loop's signs of life.
    pub(super) pulse: Pulse,
}

/// What a run of the policy `reconcile` brought.
#[derive(Debug)]
pub struct Reconciled {
    /// How many rows were stuck before.
    pub stuck: expired::Report,
    /// The rows that were asked about.
    pub report: Report,
    /// Rows whose turn has not come again, since they could not be ended the last time.
    pub resting: usize,
    /// One message for each row that holds something unreadable.
    pub unreadable: Vec<String>,
}

impl fmt::Display for Reconciled {
    /// One line for a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; asked about {}", self.stuck, self.report)?;
        if self.resting > 0 {
            write!(f, ", {} not again yet", self.resting)?;
        }
        if !self.unreadable.is_empty() {
            write!(f, ", unreadable {}", self.unreadable.len())?;
        }
        Ok(())
    }
}

/// Looks at a page of stuck rows, behind the one that the last run looked at, and ends those that can be ended.
///
/// A lost connection ends it: the daemon connects again and goes on.
pub(super) async fn run(
    link: &mut Link,
    config: &Config,
    request: &expired::Request,
    memory: &mut Memory,
    stop: &Stop,
) -> Result<Reconciled, Failure<Report>> {
    let nothing = |cause: Error| Failure {
        report: Box::default(),
        cause,
    };
    let Link { conn, store } = link;
    let counted = expired::run(conn, store, request, stop)
        .await
        .map_err(|failure| nothing(failure.cause))?;
    let after = memory.cursor.take();
    let page = stuck::page(
        conn,
        store,
        request.older_than,
        None,
        after.as_ref(),
        request.limit,
    )
    .await
    .map_err(nothing)?;
    let found = page.rows.len();
    let due: Vec<_> = page
        .rows
        .into_iter()
        .filter(|row| memory.backoff.is_due(row))
        .collect();
    let resting = found - due.len();
    let mut work = Request::new(Rows::Seen(due), !request.dry_run, request.actor.clone());
    work.rps = config.rps;
    let mut db = Database {
        conn,
        store,
        reconnect: None,
    };
    let pulse = memory.pulse.clone();
    let report =
        crate::ops::reconcile::run(&mut db, &config.providers, work, stop, &mut |_| pulse.beat()).await;
    match &report {
        Ok(report) => {
            memory.backoff.note(report);
            memory.cursor = page.next;
        }
        Err(failure) => memory.backoff.note(&failure.report),
    }
    Ok(Reconciled {
        stuck: counted,
        report: report?,
        resting,
        unreadable: page.unreadable,
    })
}
