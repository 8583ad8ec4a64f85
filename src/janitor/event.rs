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
    /// A job could not run: no connection, or not the table that is needed.
    NotRun {
        /// Which job.
        job: Job,
        /// Why.
        cause: &'a Error,
        /// When it is tried again; `None`: at its next scheduled time.
        again_in: Option<Duration>,
    },
}
