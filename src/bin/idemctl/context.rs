//! What every command gets: settings, output, and the way to the database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idemctl::connect::{Canceller, Connection};
use idemctl::ops::actor::Actor;
use idemctl::provider::{Provider, ProviderConfig, ProviderStatus, StatusQuery, Surroundings, Verdict};
use idemctl::record::Record;
use idemctl::store::Store;

use crate::exit::{CliError, Result};
use crate::render::Printer;
use crate::settings::Settings;

/// Built once, before the command runs.
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) printer: Printer,
    /// Stops what the latest connection is doing.
    running: Mutex<Option<Canceller>>,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        let printer = Printer::new(settings.output, settings.quiet);
        Self {
            settings,
            printer,
            running: Mutex::default(),
        }
    }

    /// A connection with the settings in force.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let settings = self.settings.connection()?;
        let connection = Connection::open(&settings).await?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.canceller());
        Ok(connection)
    }

    /// Asks the server to stop the statement under way, so that it does not work on for nobody.
    pub(crate) async fn cancel(&self) {
        let canceller = self
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(canceller) = canceller
            && let Err(error) = canceller.cancel().await
        {
            tracing::warn!(%error, "the server could not be asked to stop the statement");
        }
    }

    /// A connection, and the table on it, of the shape that this version needs.
    pub(crate) async fn open(&self) -> Result<(Connection, Store)> {
        let connection = self.connect().await?;
        let store = Store::open(&connection, self.settings.schema.as_deref()).await?;
        Ok((connection, store))
    }

    /// Who acts, for the event log.
    ///
    /// Refuses when the configuration requires a reason and none was given.
    pub(crate) fn actor(&self, reason: Option<&str>) -> Result<Actor> {
        if reason.is_none_or(|reason| reason.trim().is_empty()) && self.settings.config.audit.require_reason {
            return Err(
                CliError::usage("the configuration requires a reason for every change")
                    .hint("add --reason \"why\""),
            );
        }
        let os_user = nix::unistd::User::from_uid(nix::unistd::getuid())
            .ok()
            .flatten()
            .map(|user| user.name);
        let host = nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok());
        Ok(Actor {
            os_user,
            host,
            reason: reason.map(str::to_owned),
        })
    }

    /// The provider of that name; without a name the only one that is configured.
    pub(crate) fn provider(&self, name: Option<&str>) -> Result<Arc<dyn Provider>> {
        self.provider_if_any(name)?.ok_or_else(|| {
            CliError::usage("no provider is configured")
                .hint("add [providers.NAME] to the configuration file (see the README)")
        })
    }

    /// The same, where it is no error that none is configured.
    pub(crate) fn provider_if_any(&self, name: Option<&str>) -> Result<Option<Arc<dyn Provider>>> {
        let providers = &self.settings.config.providers;
        let (name, config) = match name {
            Some(name) => {
                let config = providers.get(name).ok_or_else(|| {
                    CliError::usage(format!("no provider {name:?} is configured"))
                        .hint(format!("configured: {}", names(providers)))
                })?;
                (name, config)
            }
            None => match providers.len() {
                0 => return Ok(None),
                1 => match providers.first_key_value() {
                    Some((name, config)) => (name.as_str(), config),
                    None => return Ok(None),
                },
                _ => {
                    return Err(CliError::usage("several providers are configured")
                        .hint(format!("name one with --provider: {}", names(providers))));
                }
            },
        };
        let environment = self.settings.environment().clone();
        let surroundings = Surroundings {
            env: Arc::new(move |name| environment.get(name).map(str::to_owned)),
            proxy: idemctl::provider::Proxies::default(),
        };
        Ok(Some(idemctl::provider::build(name, config, &surroundings)?))
    }

    /// Asks about a row: the provider that it names, else the one that the operator names, else the only one
    /// that is configured. `None` where no provider is configured at all and the row names none.
    ///
    /// A provider that the row names and nobody configured, and a choice of several, are errors: money may hang
    /// on it. A miss of a provider that the row does not name proves nothing: another one may have been charged.
    pub(crate) async fn ask_about(
        &self,
        record: &Record,
        named: Option<&str>,
    ) -> Result<Option<ProviderStatus>> {
        let name = record.provider.as_deref().or(named);
        let Some(provider) = self.provider_if_any(name)? else {
            return Ok(None);
        };
        let mut status = provider.status(&query(record)).await;
        if name.is_none() && status.verdict == Verdict::NotCharged && status.payment.is_none() {
            status.verdict = Verdict::Unknown;
            status.reason = Some(
                "no payment was found, but the row does not say that this provider was used; name it with --provider"
                    .to_owned(),
            );
        }
        Ok(Some(status))
    }
}

/// The last attempt may have reached the provider until its lease ended; while the lease is alive, until now.
fn query(record: &Record) -> StatusQuery {
    let query =
        StatusQuery::new(record.order_id()).attempts(u32::try_from(record.attempt).unwrap_or(u32::MAX));
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0)).ok();
    let query = match record.lease_remaining_seconds.and_then(|rest| seconds(-rest)) {
        Some(age) => query.attempted_at_age(age),
        None => query,
    };
    match record.age_seconds.and_then(seconds) {
        Some(age) => query.first_attempted_at_age(age),
        None => query,
    }
}

fn names(providers: &BTreeMap<String, ProviderConfig>) -> String {
    if providers.is_empty() {
        return "none".to_owned();
    }
    providers
        .keys()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
