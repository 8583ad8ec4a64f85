//! What the janitor would do and when, and what its jobs did.

use std::io::{self, Write};

use chrono::{DateTime, SecondsFormat, Utc};
use idemctl::janitor::turn::Held;
use idemctl::janitor::{Config, Done, Job};
use idemctl::ops::expired;
use serde::Serialize;

use super::purge::PurgeView;
use super::reconcile::ReconcileView;
use super::{Document, printable};
use crate::exit::{CliError, Exit, Result};

/// How many runs are shown of each job.
const RUNS: usize = 3;

/// `janitor --check`
#[derive(Debug, Serialize)]
pub(crate) struct CheckView {
    jobs: Vec<JobView>,
}

#[derive(Debug, Serialize)]
struct JobView {
    job: &'static str,
    schedule: String,
    timezone: String,
    /// RFC 3339, UTC.
    next: Vec<String>,
    #[serde(skip)]
    local: Vec<String>,
}

impl CheckView {
    pub(crate) fn new(config: &Config, now: DateTime<Utc>) -> Self {
        let jobs = Job::ALL.into_iter().filter_map(|job| {
            let schedule = config.schedule(job)?;
            let runs = schedule.upcoming(now, RUNS);
            Some(JobView {
                job: job.as_str(),
                schedule: schedule.to_string(),
                timezone: schedule.zone().name().to_owned(),
                next: runs
                    .iter()
                    .map(|run| run.to_utc().to_rfc3339_opts(SecondsFormat::Secs, true))
                    .collect(),
                local: runs
                    .iter()
                    .map(|run| run.format("%a %Y-%m-%d %H:%M:%S %:z").to_string())
                    .collect(),
            })
        });
        Self { jobs: jobs.collect() }
    }
}

impl Document for CheckView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        for JobView {
            job,
            schedule,
            timezone,
            local,
            ..
        } in &self.jobs
        {
            writeln!(out, "{job}: {} ({timezone})", printable(schedule))?;
            for run in local {
                writeln!(out, "  {run}")?;
            }
        }
        Ok(())
    }
}

/// `janitor --once`
#[derive(Debug, Serialize)]
pub(crate) struct OnceView {
    jobs: Vec<RunView>,
}

#[derive(Debug, Serialize)]
struct RunView {
    job: &'static str,
    ok: bool,
    summary: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    purge: Option<PurgeView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expired: Option<ExpiredView>,
    #[serde(skip_serializing_if = "Option::is_none", flatten)]
    reconcile: Option<ReconcileView>,
    #[serde(skip)]
    exit: Exit,
}

#[derive(Debug, Serialize)]
struct ExpiredView {
    policy: &'static str,
    stuck: u64,
    stuck_capped: bool,
    oldest_seconds: Option<f64>,
    first: Vec<IdView>,
    changed: usize,
    left_for_provider: usize,
    errors: Vec<ItemView>,
}

#[derive(Debug, Serialize)]
struct IdView {
    client_id: String,
    key: String,
}

#[derive(Debug, Serialize)]
struct ItemView {
    client_id: String,
    key: String,
    reason: String,
}

impl OnceView {
    pub(crate) fn new(done: Vec<Done>, held: &[Held]) -> Self {
        let held = held.iter().map(RunView::from);
        Self {
            jobs: done.into_iter().map(RunView::from).chain(held).collect(),
        }
    }

    /// The exit code, with a line for stderr unless all went well.
    pub(crate) fn outcome(&self) -> Result<Exit> {
        let Some(first) = self.jobs.iter().find(|run| run.exit != Exit::Done) else {
            return Ok(Exit::Done);
        };
        // One job of several went wrong, or all for the same reason.
        let same = self.jobs.iter().all(|run| run.exit == first.exit);
        let exit = if same { first.exit } else { Exit::Partial };
        Err(CliError::new(exit, format!("{}: {}", first.job, first.summary)))
    }
}

impl From<&Held> for RunView {
    /// Not run: that somebody else does is what was wanted.
    fn from(held: &Held) -> Self {
        Self {
            job: held.job.as_str(),
            ok: true,
            summary: format!("left to another: {held}"),
            purge: None,
            expired: None,
            reconcile: None,
            exit: Exit::Done,
        }
    }
}

impl From<Done> for RunView {
    fn from(done: Done) -> Self {
        let (job, summary) = (done.job().as_str(), done.to_string());
        let partial = if done.is_partial() {
            Exit::Partial
        } else {
            Exit::Done
        };
        let (mut purge, mut expired, mut reconcile) = (None, None, None);
        match &done {
            Done::Purge(Ok(report)) => purge = Some(PurgeView::from(report)),
            Done::Expired(Ok(report)) => expired = Some(ExpiredView::from(report)),
            Done::Reconcile(Ok(done)) => {
                let mut view = ExpiredView::from(&done.stuck);
                view.changed = done.report.changed();
                expired = Some(view);
                reconcile = Some(ReconcileView::new(
                    &done.report,
                    &done.unreadable,
                    done.stuck.dry_run,
                ));
            }
            Done::Purge(Err(_)) | Done::Expired(Err(_)) | Done::Reconcile(Err(_)) => {}
        }
        let exit = match done {
            Done::Purge(Err(failure)) => CliError::from(failure.cause).exit(),
            Done::Expired(Err(failure)) => CliError::from(failure.cause).exit(),
            Done::Reconcile(Err(failure)) => CliError::from(failure.cause).exit(),
            Done::Purge(Ok(_)) | Done::Expired(Ok(_)) | Done::Reconcile(Ok(_)) => partial,
        };
        Self {
            job,
            ok: exit == Exit::Done,
            summary,
            purge,
            expired,
            reconcile,
            exit,
        }
    }
}

impl From<&expired::Report> for ExpiredView {
    fn from(report: &expired::Report) -> Self {
        let errors = report.items.iter().filter_map(|item| {
            let reason = match &item.outcome {
                expired::Outcome::Error(reason) => reason.clone(),
                expired::Outcome::Unknown => "the commit was not answered; look at the key".to_owned(),
                _ => return None,
            };
            let (client_id, key) = (item.id.client_id().to_owned(), item.id.key().to_owned());
            Some(ItemView {
                client_id,
                key,
                reason,
            })
        });
        let first = report.first.iter().map(|id| IdView {
            client_id: id.client_id().to_owned(),
            key: id.key().to_owned(),
        });
        Self {
            policy: report.policy.as_str(),
            stuck: report.stuck,
            stuck_capped: report.capped,
            oldest_seconds: report.oldest_seconds,
            first: first.collect(),
            changed: report.changed(),
            left_for_provider: report.left_for_provider(),
            errors: errors.collect(),
        }
    }
}

impl Document for OnceView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        for run in &self.jobs {
            writeln!(out, "{}: {}", run.job, printable(&run.summary))?;
            if let Some(reconcile) = &run.reconcile {
                reconcile.lines(out, "  ")?;
                continue;
            }
            let Some(expired) = &run.expired else { continue };
            for IdView { client_id, key } in &expired.first {
                writeln!(out, "  stuck  {} {}", printable(client_id), printable(key))?;
            }
            for ItemView {
                client_id,
                key,
                reason,
            } in &expired.errors
            {
                writeln!(
                    out,
                    "  error  {} {}: {}",
                    printable(client_id),
                    printable(key),
                    printable(reason)
                )?;
            }
        }
        Ok(())
    }
}
