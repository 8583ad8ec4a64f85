//! Where and how to connect: the values in force, and where each came from.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::environment::Environment;
use super::merge::Source;
use super::secret::Secret;
use crate::error::{Error, Result};

/// How long a step may take; enforced on the server and, a little later, on our side too, so that a peer that
/// vanished without a packet cannot hold a command for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Getting a usable connection from one address: socket, TLS, log-in and first look. With several hosts
    /// each has this long, as in libpq (`connect_timeout`).
    pub connect: Duration,
    /// One statement.
    pub statement: Duration,
    /// Waiting for one lock.
    pub lock: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            statement: Duration::from_secs(30),
            lock: Duration::from_secs(5),
        }
    }
}

impl Timeouts {
    /// Zero would mean "for ever" to the server and "at once" to us.
    pub(crate) fn check(self) -> Result<()> {
        for (name, value) in [
            ("connect", self.connect),
            ("statement", self.statement),
            ("lock", self.lock),
        ] {
            if value < Duration::from_millis(1) {
                return Err(Error::Settings {
                    what: format!("the {name} timeout must be 1 ms or more"),
                });
            }
        }
        Ok(())
    }
}

/// How statements reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatementMode {
    /// Prepared where the connection is proven to be direct, else unnamed.
    #[default]
    Auto,
    /// Prepared once per connection. Behind a pooler in transaction mode only if it tracks them.
    Prepared,
    /// Sent whole each time; passes through any pooler.
    Unnamed,
}

/// `sslmode` (manual, "SSL Mode Descriptions").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SslMode {
    /// Never TLS.
    Disable,
    /// TLS only if the server refuses a connection without.
    Allow,
    /// TLS if it can be had, else without.
    Prefer,
    /// TLS; the certificate is checked only if a root certificate file exists.
    Require,
    /// TLS; the certificate's signer is checked.
    VerifyCa,
    /// TLS; signer and host name are checked.
    VerifyFull,
}

/// `target_session_attrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Any,
    ReadWrite,
    ReadOnly,
    Primary,
    Standby,
    PreferStandby,
}

/// One host of the list.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Name, socket directory (`/...`, `@...`), or nothing if only the address is known.
    pub(crate) host: Option<String>,
    pub(crate) address: Option<std::net::IpAddr>,
    pub(crate) port: u16,
    pub(crate) password: Option<Secret>,
}

impl Endpoint {
    pub(crate) fn socket_directory(&self) -> Option<&str> {
        let host = self.host.as_deref().filter(|host| host.starts_with(['/', '@']))?;
        self.address.is_none().then_some(host)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.host, self.address) {
            (Some(host), _) if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            (Some(host), _) => write!(f, "{host}:{}", self.port),
            (None, Some(address)) => std::net::SocketAddr::new(address, self.port).fmt(f),
            (None, None) => write!(f, ":{}", self.port),
        }
    }
}

/// Which certificates are trusted.
#[derive(Debug, Clone)]
pub(crate) enum Roots {
    /// Those in this file; `required` unless it is only the default place.
    File { path: PathBuf, required: bool },
    /// The system's.
    System,
    /// No file is known.
    None,
}

#[derive(Debug, Clone)]
pub(crate) struct Tls {
    pub(crate) mode: SslMode,
    pub(crate) direct: bool,
    pub(crate) roots: Roots,
    pub(crate) revoked: Option<PathBuf>,
    /// Certificate and key; an absent file counts only if it was asked for.
    pub(crate) client: Option<(PathBuf, PathBuf)>,
    pub(crate) server_name: bool,
    /// 12 for TLSv1.2, 13 for TLSv1.3.
    pub(crate) least_version: u8,
    pub(crate) most_version: u8,
}

impl Tls {
    /// Whether there are certificates against which `require` checks the server's.
    pub(crate) fn checks_signer(&self) -> bool {
        match &self.roots {
            Roots::File { path, required } => *required || path.exists(),
            Roots::System => true,
            Roots::None => false,
        }
    }
}

/// Socket options.
#[derive(Debug, Clone)]
pub(crate) struct Tcp {
    pub(crate) keepalives: bool,
    pub(crate) idle: Duration,
    pub(crate) interval: Duration,
    pub(crate) count: u32,
    pub(crate) user_timeout: Duration,
}

/// One effective setting, for showing it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// libpq's name of the parameter.
    pub name: &'static str,
    /// Its value; `***` for a secret.
    pub value: String,
    /// Where it came from.
    pub source: Source,
}

/// Where and how to connect. Neither `Debug` nor `Display` shows a password.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Time limits. `connect` is libpq's `connect_timeout` where that was given.
    pub timeouts: Timeouts,
    /// How statements reach the server.
    pub statements: StatementMode,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) shuffle: bool,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) options: Option<String>,
    pub(crate) application_name: String,
    pub(crate) channel_binding: tokio_postgres::config::ChannelBinding,
    pub(crate) target: Target,
    pub(crate) tls: Tls,
    pub(crate) tcp: Tcp,
    pub(crate) notes: Vec<String>,
    pub(crate) entries: Vec<Entry>,
}

impl Settings {
    /// Works out the settings as libpq does: connection string, else service file, else environment, else
    /// default. Reads the service and password files that these name, and looks which local socket exists.
    ///
    /// `dsn`: a URI or `key=value` text; `None` leaves all to the environment. Returns [`Error::Settings`]
    /// for what cannot be read, is unknown, or cannot be honoured. Differences to libpq: `connect_timeout=0`
    /// means the default of 10 s rather than no limit, and `application_name` is `idemctl` by default.
    pub fn resolve(dsn: Option<&str>, environment: &Environment) -> Result<Self> {
        super::resolve::resolve(dsn, environment)
    }

    /// The settings of a connection string alone, with an empty environment.
    pub fn from_dsn(dsn: &str) -> Result<Self> {
        Self::resolve(Some(dsn), &Environment::default())
    }

    /// The effective values, each with where it came from; secrets are redacted.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What was left aside on the way, such as a password file that others can read.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}

impl fmt::Display for Settings {
    /// Which database is meant: `postgresql://user@host:port,host:port/database`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgresql://{}@", self.user.escape_debug())?;
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", endpoint.to_string().escape_debug())?;
        }
        write!(f, "/{}", self.database.escape_debug())
    }
}
