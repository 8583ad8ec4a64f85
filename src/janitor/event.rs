//! What the daemon's loop tells.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::{Done, Job};
use crate::error::Error;
use crate::time::Timestamp;

/// What the loop tells whoever runs it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A job will run at this time (plus jitter).
    Scheduled {
        /// Which job.
        job: Job,
        /// When.
        at: DateTime<Utc>,
    },
    /// The job's row was read: it could begin.
    Looked {
        /// Which job.
        job: Job,
        /// Whether the last run that was begun is this process's; `None`: there was none.
        ours: Option<bool>,
    },
    /// Somebody else runs the job; told once for each of their runs.
    Held {
        /// Which job.
        job: Job,
        /// Who: host, process id and a nonce, as it stands in the database; perhaps with control characters.
        by: &'a str,
        /// Until when, unless they renew it; by the database's clock.
        until: Timestamp,
    },
    /// The job was lost to somebody else in mid-run: it stopped after the batch under way.
    Lost {
        /// Which job.
        job: Job,
        /// How.
        how: &'a str,
    },
    /// A job starts.
    Started {
        /// Which job.
        job: Job,
    },
    /// A job's run is over.
    Finished {
        /// How it went.
        done: &'a Done,
    },
    /// A job could not be looked at, or taken when it was due: no connection, not the table that is needed, a lock.
    NotRun {
        /// Which job.
        job: Job,
        /// Why.
        cause: &'a Error,
        /// When it is tried again.
        again_in: Duration,
    },
}

impl Event<'_> {
    /// Which job it is about.
    pub fn job(&self) -> Job {
        match self {
            Self::Scheduled { job, .. }
            | Self::Looked { job, .. }
            | Self::Held { job, .. }
            | Self::Lost { job, .. }
            | Self::Started { job }
            | Self::NotRun { job, .. } => *job,
            Self::Finished { done } => done.job(),
        }
    }
}
