//! What every command gets: settings, output, and the way to the database.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use idemctl::connect::{Canceller, Connection};
use idemctl::ops::actor::Actor;
use idemctl::ops::ask::Providers;
use idemctl::provider::{Provider, ProviderStatus, Surroundings};
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
    providers: OnceLock<Providers>,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        let printer = Printer::new(settings.output, settings.quiet);
        Self {
            settings,
            printer,
            running: Mutex::default(),
            providers: OnceLock::new(),
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
        if reason.is_some_and(|reason| !reason.chars().any(char::is_alphanumeric)) {
            return Err(CliError::usage("the reason is blank; nothing was changed")
                .hint("give --reason \"why\", in words"));
        }
        if reason.is_none() && self.settings.config.audit.require_reason {
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

    /// The configured providers; each adapter is made when it is first needed.
    pub(crate) fn providers(&self) -> &Providers {
        self.providers.get_or_init(|| self.make_providers())
    }

    /// The same, for somebody who keeps them.
    pub(crate) fn make_providers(&self) -> Providers {
        let environment = self.settings.environment().clone();
        let env: idemctl::provider::EnvLookup =
            Arc::new(move |name| environment.get(name).map(str::to_owned));
        let surroundings = Surroundings {
            proxy: idemctl::provider::Proxies::from_env(&env),
            env,
        };
        Providers::new(self.settings.config.providers.clone(), surroundings)
    }

    /// The provider of that name; without a name the only one that is configured.
    pub(crate) fn provider(&self, name: Option<&str>) -> Result<Arc<dyn Provider>> {
        self.providers().choose(name)?.ok_or_else(|| {
            CliError::usage("no provider is configured")
                .hint("add [providers.NAME] to the configuration file (see the README)")
        })
    }

    /// The same, where it is no error that none is configured.
    pub(crate) fn provider_if_any(&self, name: Option<&str>) -> Result<Option<Arc<dyn Provider>>> {
        Ok(self.providers().choose(name)?)
    }

    /// Asks about a row; `None` where no provider is configured at all and the row names none.
    pub(crate) async fn ask_about(
        &self,
        record: &Record,
        named: Option<&str>,
    ) -> Result<Option<ProviderStatus>> {
        match self.providers().for_row(record, named)? {
            Some(chosen) => Ok(Some(chosen.about(record).await)),
            None => Ok(None),
        }
    }
}
