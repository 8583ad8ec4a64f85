//! The process's clock, for schedules only.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};

/// Tells the time of day. It decides when a job *starts*; which rows are due is the database's decision.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// The operating system's clock.
    pub fn system() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "a crontab line means this host's clock, as cron's does, and no row is judged by it"
        )]
        Self(Arc::new(Utc::now))
    }

    /// Any other clock, for tests.
    pub fn new(now: impl Fn() -> DateTime<Utc> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time of day.
    pub fn now(&self) -> DateTime<Utc> {
        (self.0)()
    }
}
