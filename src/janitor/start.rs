//! Getting ready: the database can be reached and the table is as expected.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Config, Job, Link, turn};
use crate::error::{Error, Result};
use crate::stop::Stop;

/// Shortest and longest pause before the database is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

/// Waits until the jobs would be able to work: a connection was made, the table found on it, and the row of each job
/// that is configured can be read and, where there is none, made.
///
/// While the database is away or read-only it is tried again, with growing pauses and with the newest configuration; `trouble`
/// is told each cause and when the next try comes. Returns `false` when a stop came first, and an error for what
/// no waiting mends: a configuration that is refused, and a table that is not as this version needs it.
pub async fn when_able(
    config: &mut watch::Receiver<Arc<Config>>,
    stop: &Stop,
    trouble: &(impl Fn(&Error, Duration) + Sync),
) -> Result<bool> {
    let mut pause = BACKOFF.0;
    while !stop.is_soft() {
        let now = Arc::clone(&config.borrow_and_update());
        now.check()?;
        let link = match Link::open(&now, stop).await {
            Ok(link) => Ok(link),
            Err(Error::Interrupted) => return Ok(false),
            Err(cause @ (Error::Schema { .. } | Error::Settings { .. } | Error::Invalid { .. })) => {
                return Err(cause);
            }
            Err(cause) => Err(cause),
        };
        let able = match link {
            Ok(link) => {
                let able = tokio::select! {
                    able = look(&link, &now) => able,
                    () = stop.soft() => return Ok(false),
                };
                link.conn.close().await;
                able
            }
            Err(cause) => Err(cause),
        };
        let Err(cause) = able else { return Ok(true) };
        let wait = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        trouble(&cause, wait);
        pause = (pause * 2).min(BACKOFF.1);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.soft() => {}
            // The reason may be a wrong address that was put right just now. (Nobody left to change it: go on.)
            Ok(()) = config.changed() => pause = BACKOFF.0,
        }
    }
    Ok(false)
}

/// What is missing here (a grant, or the jobs' table before `idemctl migrate`) may come while we wait.
async fn look(link: &Link, config: &Config) -> Result<()> {
    for job in Job::ALL {
        if config.schedule(job).is_some() {
            turn::look(&link.conn, &link.store, job)
                .await
                .map_err(turn::explain)?;
        }
    }
    Ok(())
}
