//! What every command gets: settings, output, and the way to the database.

use idemctl::connect::Connection;
use idemctl::ops::actor::Actor;
use idemctl::store::Store;

use crate::exit::{CliError, Result};
use crate::render::Printer;
use crate::settings::Settings;

/// Built once, before the command runs.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) printer: Printer,
}

impl Context {
    pub(crate) fn new(settings: Settings) -> Self {
        let printer = Printer::new(settings.output);
        Self { settings, printer }
    }

    /// A connection with the settings in force.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let settings = self.settings.connection()?;
        Connection::open(&settings).await.map_err(CliError::from)
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
}
