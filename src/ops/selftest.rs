//! Does the protocol hold on this very database, through this very pooler?
//!
//! Everything happens in a scratch schema that the real migrations make and that is dropped at the end. Claims,
//! takeovers and replays are those of the library, each client on a connection of its own and without what another
//! client remembers; only the passing of hours is made up, in the scratch rows.
//!
//! A check that cannot be made is [`Verdict::NotChecked`], never [`Verdict::Passed`].

mod check;
mod env;
mod fencing;
mod identity;
mod kill;
mod purge;
mod quiet;
mod race;
mod replay;
mod surroundings;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::connect::{Connection, Settings};
use crate::error::{Error, Result};
use crate::ops::scratch;
use crate::stop::Stop;
use crate::store::scratch as sql;

pub use check::{Check, Verdict};
pub use kill::{Errand, hold};
pub use surroundings::Fact;

use env::Env;

/// Fewest and most clients at once.
pub const CLIENTS: (usize, usize) = (2, 500);
/// Fewest and most keys that are raced for.
pub const ROUNDS: (u32, u32) = (1, 10_000);

/// What to try.
#[derive(Debug, Clone)]
pub struct Request {
    /// Clients at once, each with a connection of its own: [`CLIENTS`].
    pub clients: usize,
    /// Keys that all clients race for, one after the other: [`ROUNDS`].
    pub rounds: u32,
    /// No further race begins after this time.
    pub race_time: Duration,
    /// Name of the scratch schema, which must not exist; a random one if absent.
    pub scratch: Option<String>,
    /// The program to be killed while it holds a lease; without one that is not checked.
    pub holder: Option<Holder>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            clients: 16,
            rounds: 50,
            race_time: Duration::from_secs(4),
            scratch: None,
            holder: None,
        }
    }
}

/// A program that calls [`hold`] on the same database. Its last two arguments are those of [`Errand::new`].
#[derive(Debug, Clone)]
pub struct Holder {
    /// The program.
    pub program: PathBuf,
    /// What stands before these two.
    pub args: Vec<OsString>,
    /// What its environment has besides ours.
    pub env: Vec<(OsString, OsString)>,
}

impl Request {
    /// [`Error::Invalid`] names what makes no sense.
    pub fn check(&self) -> Result<()> {
        let invalid = |field, reason| Err(Error::Invalid { field, reason });
        let (least, most) = CLIENTS;
        if !(least..=most).contains(&self.clients) {
            return invalid(
                "clients",
                format!("is {}; {least} to {most} are allowed", self.clients),
            );
        }
        let (least, most) = ROUNDS;
        if !(least..=most).contains(&self.rounds) {
            return invalid(
                "rounds",
                format!("is {}; {least} to {most} are allowed", self.rounds),
            );
        }
        self.scratch.as_deref().map_or(Ok(()), scratch::check_name)
    }
}

/// What a run has to say while it goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The scratch schema is there, and from now on is dropped whatever happens but `kill -9`.
    Made {
        /// Its name.
        schema: &'a str,
        /// The database that it is in.
        database: &'a str,
        /// What earlier runs left behind.
        warnings: &'a [String],
    },
    /// A check is over.
    Checked(&'a Check),
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The scratch schema that there was.
    pub schema: String,
    /// The database.
    pub database: String,
    /// Version text of the server.
    pub server_version: String,
    /// Whether somebody stands between us and the server, as far as can be told.
    pub pooled: bool,
    /// Clients at once.
    pub clients: usize,
    /// What was found out about the connection; nothing of it is judged.
    pub facts: Vec<Fact>,
    /// Every check.
    pub checks: Vec<Check>,
    /// How long it took.
    pub elapsed: Duration,
    /// It was asked to stop before the last check.
    pub interrupted: bool,
}

impl Report {
    /// How many checks ended so.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.checks
            .iter()
            .filter(|check| check.verdict == verdict)
            .count()
    }
}

/// Runs all checks.
///
/// `stop`: soft or hard ends it at once; the scratch schema is dropped, and what was not checked says so. Returns
/// [`Error::Invalid`] for a request that makes no sense, [`Error::Schema`] where what the migrations made is not what
/// the library needs, the database's own error with SQLSTATE 42P06 where the scratch schema exists already, 42501
/// without the privilege CREATE on the database, and the connection's error when it breaks. After an error the schema
/// is dropped too; where that could not be done, the error says so and how to do it by hand.
pub async fn run(
    settings: &Settings,
    request: &Request,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &Stop,
) -> Result<Report> {
    request.check()?;
    let started = Instant::now();
    let mut admin = tokio::select! {
        admin = Connection::open(settings) => admin?,
        () = stop.soft() => return Err(Error::Interrupted),
    };
    surroundings::room(&admin, request.clients).await?;
    let warnings = scratch::leftovers(&admin).await?;
    let name = request
        .scratch
        .clone()
        .unwrap_or_else(|| scratch::random_name("selftest"));
    let made = sql::create(&mut admin, &name).await?;
    progress(Progress::Made {
        schema: &name,
        database: &admin.facts().database,
        warnings: &warnings,
    });
    let mut report = Report {
        schema: name,
        database: admin.facts().database.clone(),
        server_version: admin.facts().server_version.clone(),
        pooled: surroundings::pooled(&admin),
        clients: request.clients,
        facts: Vec::new(),
        checks: Vec::new(),
        elapsed: Duration::ZERO,
        interrupted: false,
    };
    let result = look(settings, request, &mut report, progress, stop).await;
    scratch::settle(result, admin, settings, &made).await?;
    report.elapsed = started.elapsed();
    Ok(report)
}

/// The groups of checks, in the order in which they are made.
#[derive(Debug, Clone, Copy)]
enum Group {
    Race,
    Identity,
    Replay,
    Quiet,
    Fencing,
    Kill,
    Purge,
}

impl Group {
    const ALL: [Self; 7] = [
        Self::Race,
        Self::Identity,
        Self::Replay,
        Self::Quiet,
        Self::Fencing,
        Self::Kill,
        Self::Purge,
    ];

    /// Every check of the group, before its result: so none is missing from the report, whatever happens.
    fn checks(self) -> Vec<Check> {
        match self {
            Self::Race => race::checks(),
            Self::Identity => identity::checks(),
            Self::Replay => replay::checks(),
            Self::Quiet => quiet::checks(),
            Self::Fencing => fencing::checks(),
            Self::Kill => kill::checks(),
            Self::Purge => purge::checks(),
        }
    }

    async fn run(self, env: &mut Env, request: &Request, checks: &mut [Check]) -> Result<()> {
        match self {
            Self::Race => race::run(env, request, checks).await,
            Self::Identity => identity::run(env, checks).await,
            Self::Replay => replay::run(env, checks).await,
            Self::Quiet => quiet::run(env, checks).await,
            Self::Fencing => fencing::run(env, checks).await,
            Self::Kill => kill::run(env, request.holder.as_ref(), checks).await,
            Self::Purge => purge::run(env, checks).await,
        }
    }
}

async fn look(
    settings: &Settings,
    request: &Request,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress<'_>),
    stop: &Stop,
) -> Result<()> {
    let begun = async {
        let mut env = Env::make(settings, &report.schema, request.clients).await?;
        let facts = surroundings::facts(settings, &mut env).await?;
        Ok::<_, Error>((env, facts))
    };
    let (mut env, facts) = tokio::select! {
        begun = begun => begun?,
        () = stop.soft() => return Err(Error::Interrupted),
    };
    report.facts = facts;
    for group in Group::ALL {
        let mut checks = group.checks();
        let ended = tokio::select! {
            biased;
            () = stop.soft() => {
                report.interrupted = true;
                Ok(())
            }
            ended = group.run(&mut env, request, &mut checks) => ended,
        };
        let why = match ended {
            Ok(()) if report.interrupted => "interrupted".to_owned(),
            Ok(()) => "it did not come to that".to_owned(),
            // Nothing more can be found out without a connection.
            Err(error) if error.needs_reconnect() || matches!(error, Error::Deadline { .. }) => {
                return Err(error);
            }
            Err(error) => {
                check::fail_next(&mut checks, &error);
                format!("an earlier step of it failed: {error}")
            }
        };
        for check in &mut checks {
            check.or_not_checked(&why);
            progress(Progress::Checked(check));
        }
        report.checks.append(&mut checks);
    }
    env.close().await;
    Ok(())
}
