//! `[janitor]`: the daemon's jobs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use idemctl::connect;
use idemctl::janitor::schedule::{self, Schedule};
use idemctl::janitor::{self, Plan};
use idemctl::ops::actor::Actor;
use idemctl::ops::ask::Providers;
use idemctl::ops::reconcile::RPS_RANGE;
use idemctl::ops::{expired, purge};
use serde::Deserialize;

use super::file::{Retention, Span};
use crate::exit::{CliError, Result};

/// Less than the 30 s that Kubernetes waits, and than systemd's `TimeoutStopSec=` in our unit.
const DEFAULT_GRACE: Duration = Duration::from_secs(20);
const MAX_GRACE: Duration = Duration::from_mins(10);

/// The section.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Janitor {
    /// Whose clocks the schedules mean.
    timezone: String,
    /// Each run starts up to this much later, at random.
    jitter: Option<Span>,
    /// How long what is under way may go on after SIGTERM.
    grace: Option<Span>,
    /// Where to serve `/metrics`, `/healthz` and `/readyz`.
    #[serde(default, deserialize_with = "address")]
    listen: Option<SocketAddr>,
    /// Whether `listen` may be an address that other machines reach.
    listen_public: bool,
    pub(crate) purge: Purge,
    expired: Expired,
}

/// `[janitor.purge]`, whose limits hold for `idemctl purge` too.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Purge {
    schedule: String,
    batch_size: Option<u32>,
    max_rows: Option<u64>,
    max_duration: Option<Span>,
    pause: Option<Span>,
}

/// `[janitor.expired]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Expired {
    schedule: String,
    older_than: Option<Span>,
    limit: Option<u32>,
    /// Questions a second to each provider, for the policy `reconcile`.
    rps: Option<f64>,
    policy: PolicyName,
    accept_double_charge: bool,
}

/// `janitor.expired.policy`
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PolicyName {
    #[default]
    Report,
    Reconcile,
    Fail,
    Release,
}

impl Default for Janitor {
    fn default() -> Self {
        Self {
            timezone: "UTC".to_owned(),
            jitter: None,
            grace: None,
            listen: None,
            listen_public: false,
            purge: Purge::default(),
            expired: Expired::default(),
        }
    }
}

impl Default for Purge {
    fn default() -> Self {
        Self {
            schedule: "*/10 * * * *".to_owned(),
            batch_size: None,
            max_rows: None,
            max_duration: None,
            pause: None,
        }
    }
}

impl Default for Expired {
    fn default() -> Self {
        Self {
            schedule: "* * * * *".to_owned(),
            older_than: None,
            limit: None,
            rps: None,
            policy: PolicyName::default(),
            accept_double_charge: false,
        }
    }
}

impl Retention {
    /// As the purge takes it.
    pub(crate) fn for_purge(&self) -> purge::Retention {
        purge::Retention {
            done: self.done.0,
            failed: self.failed.0,
            events: Some(self.events.0),
        }
    }
}

impl Purge {
    /// The request of a purge with the configured limits.
    pub(crate) fn request(&self, retention: &Retention, actor: Actor) -> purge::Request {
        let mut request = purge::Request::new(retention.for_purge(), actor);
        request.batch_size = self.batch_size.unwrap_or(request.batch_size);
        request.max_rows = self.max_rows;
        request.max_duration = self.max_duration.map(|span| span.0);
        request.pause = self.pause.map_or(request.pause, |span| span.0);
        request
    }
}

impl Janitor {
    /// What is wrong, behind the name of the key; the same checks as [`Janitor::resolve`], for a message with a
    /// line.
    pub(super) fn check(&self, providers: bool) -> Result<(), (String, String)> {
        let wrong = |key: &str, error: idemctl::error::Error| (key.to_owned(), error.to_string());
        let zone = schedule::zone(&self.timezone).map_err(|error| wrong("janitor.timezone", error))?;
        for (key, line) in [
            ("janitor.purge.schedule", &self.purge.schedule),
            ("janitor.expired.schedule", &self.expired.schedule),
        ] {
            Schedule::parse(line, zone).map_err(|error| wrong(key, error))?;
        }
        if let Some(address) = self.listen
            && !self.listen_public
            && !address.ip().to_canonical().is_loopback()
        {
            let problem = format!(
                "is {address}, which other machines may reach, and nobody has to log in there; use a loopback \
                 address (127.0.0.1:{}), or add `listen_public = true`",
                address.port()
            );
            return Err(("janitor.listen".to_owned(), problem));
        }
        if self.grace() > MAX_GRACE {
            let problem = format!(
                "is {}; at most 10 minutes are allowed",
                super::show_duration(self.grace())
            );
            return Err(("janitor.grace".to_owned(), problem));
        }
        if let Some(rps) = self.expired.rps
            && !RPS_RANGE.contains(&rps)
        {
            let (least, most) = (RPS_RANGE.start(), RPS_RANGE.end());
            let problem = format!("is {rps}; {least} to {most} are allowed");
            return Err(("janitor.expired.rps".to_owned(), problem));
        }
        if let Some(limit) = self.expired.limit
            && !(1..=expired::MAX_LIMIT).contains(&limit)
        {
            let problem = format!("is {limit}; 1 to {} rows are allowed", expired::MAX_LIMIT);
            return Err(("janitor.expired.limit".to_owned(), problem));
        }
        let accept_double_charge = self.expired.accept_double_charge;
        let policy = match self.expired.policy {
            PolicyName::Release => Some(expired::Policy::Release { accept_double_charge }),
            PolicyName::Reconcile => Some(expired::Policy::Reconcile),
            PolicyName::Report | PolicyName::Fail => None,
        };
        if let Some(policy) = policy {
            policy.check(providers).map_err(|error| match error {
                // It names the key itself.
                idemctl::error::Error::Invalid { field, reason } => (field.to_owned(), reason),
                other => wrong("janitor.expired.policy", other),
            })?;
        }
        Ok(())
    }

    /// Every value in force, by its name in the file.
    pub(super) fn values(&self, retention: &Retention) -> Vec<(&'static str, String)> {
        let purge = self.purge.request(retention, Actor::default());
        let defaults = expired::Request::new(expired::Policy::Report, Actor::default());
        let older_than = self.expired.older_than.map_or(defaults.older_than, |span| span.0);
        let none = || "none".to_owned();
        vec![
            ("janitor.timezone", self.timezone.clone()),
            (
                "janitor.jitter",
                super::show_duration(self.jitter.map_or_else(Default::default, |span| span.0)),
            ),
            (
                "janitor.listen",
                self.listen.map_or_else(none, |address| address.to_string()),
            ),
            ("janitor.listen_public", self.listen_public.to_string()),
            ("janitor.grace", super::show_duration(self.grace())),
            ("janitor.purge.schedule", self.purge.schedule.clone()),
            ("janitor.purge.batch_size", purge.batch_size.to_string()),
            (
                "janitor.purge.max_rows",
                purge.max_rows.map_or_else(none, |rows| rows.to_string()),
            ),
            (
                "janitor.purge.max_duration",
                purge.max_duration.map_or_else(none, super::show_duration),
            ),
            ("janitor.purge.pause", super::show_duration(purge.pause)),
            ("janitor.expired.schedule", self.expired.schedule.clone()),
            ("janitor.expired.older_than", super::show_duration(older_than)),
            (
                "janitor.expired.limit",
                self.expired.limit.unwrap_or(defaults.limit).to_string(),
            ),
            (
                "janitor.expired.rps",
                self.expired.rps.map_or_else(none, |rps| rps.to_string()),
            ),
            (
                "janitor.expired.policy",
                format!("{:?}", self.expired.policy).to_lowercase(),
            ),
            (
                "janitor.expired.accept_double_charge",
                self.expired.accept_double_charge.to_string(),
            ),
        ]
    }

    /// Where to serve `/metrics`, `/healthz` and `/readyz`; `None`: nowhere.
    pub(crate) fn listen(&self) -> Option<SocketAddr> {
        self.listen
    }

    /// How long what is under way may go on after SIGTERM before it is given up and rolled back.
    pub(crate) fn grace(&self) -> Duration {
        self.grace.map_or(DEFAULT_GRACE, |span| span.0)
    }

    /// The daemon's configuration, checked.
    pub(crate) fn resolve(
        &self,
        retention: &Retention,
        connection: connect::Settings,
        schema: Option<String>,
        actor: &Actor,
        providers: Providers,
    ) -> Result<janitor::Config> {
        let zone = schedule::zone(&self.timezone).map_err(|error| place("janitor", error))?;
        let line = |section, text: &str| Schedule::parse(text, zone).map_err(|error| place(section, error));
        let policy = match (self.expired.policy, self.expired.accept_double_charge) {
            (PolicyName::Release, accept_double_charge) => expired::Policy::Release { accept_double_charge },
            (_, true) => {
                return Err(CliError::usage(
                    "[janitor.expired] accept_double_charge belongs to policy = \"release\" alone",
                ));
            }
            (PolicyName::Report, false) => expired::Policy::Report,
            (PolicyName::Reconcile, false) => expired::Policy::Reconcile,
            (PolicyName::Fail, false) => expired::Policy::Fail,
        };
        policy.check(!providers.is_empty())?;
        let reason = format!("policy {}", policy.as_str());
        let mut request = expired::Request::new(policy, actor.clone().with_reason(reason));
        request.older_than = self.expired.older_than.map_or(request.older_than, |span| span.0);
        request.limit = self.expired.limit.unwrap_or(request.limit);
        request.check().map_err(|error| place("janitor.expired", error))?;
        let purge = self
            .purge
            .request(retention, actor.clone().with_reason("retention"));
        purge.check().map_err(|error| place("janitor.purge", error))?;
        let config = janitor::Config {
            connection,
            schema,
            purge: Some(Plan {
                schedule: line("janitor.purge", &self.purge.schedule)?,
                request: purge,
            }),
            expired: Some(Plan {
                schedule: line("janitor.expired", &self.expired.schedule)?,
                request,
            }),
            providers: Arc::new(providers),
            rps: self.expired.rps,
            jitter: self.jitter.map_or_else(Default::default, |span| span.0),
        };
        config.check()?;
        Ok(config)
    }
}

/// Says in which section of the file the error is.
fn place(section: &str, error: idemctl::error::Error) -> CliError {
    CliError::from(error).context(&format!("[{section}]"))
}

/// The reader's own words for what is no address name neither the key nor what is wanted.
fn address<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| {
        serde::de::Error::custom(format!(
            "listen is {text:?}; give an IP address and a port, such as 127.0.0.1:9797"
        ))
    })
}
