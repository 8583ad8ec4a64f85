//! Flag, environment, file, default, in this order: the sole reader of the environment.

mod effective;
pub(crate) mod file;
pub(crate) mod janitor;
mod misread;

use std::path::PathBuf;
use std::time::Duration;

use idemctl::connect::{self, Timeouts};

use crate::cli::{Color, Format, GlobalArgs};
use crate::exit::{CliError, Result};
use crate::log::LogFormat;

pub(crate) use effective::Effective;
pub(crate) use file::Config;

/// The effective settings of this run. No `Debug`: URL and environment hold passwords.
pub(crate) struct Settings {
    pub(crate) schema: Option<String>,
    pub(crate) output: Format,
    /// No notes on stderr.
    pub(crate) quiet: bool,
    log_format: LogFormat,
    pub(crate) config: Config,
    origin: Option<effective::Origin>,
    flags: Flags,
    url_source: Option<String>,
    database_url: Option<String>,
    timeouts: Timeouts,
    /// Only if a flag or the file gives it.
    connect_timeout: Option<Duration>,
    environment: Environment,
    /// What in the file does not fit; only for whoever went on all the same.
    misfit: Option<CliError>,
}

/// Which values a flag gave.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each flag; they do not depend on each other"
)]
struct Flags {
    log_format: bool,
    schema: bool,
    connect_timeout: bool,
    statement_timeout: bool,
    lock_timeout: bool,
}

/// A snapshot of the process's environment, taken once. No `Debug`: it holds passwords.
#[derive(Clone, Default)]
pub(crate) struct Environment {
    variables: std::collections::BTreeMap<String, String>,
}

impl Environment {
    /// Variables that are not UTF-8 cannot be one of ours and are left out.
    pub(crate) fn of_process() -> Self {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Self { variables }
    }

    /// The names of the variables that begin with this text.
    pub(crate) fn names_beginning(&self, prefix: &str) -> impl Iterator<Item = &str> {
        self.variables
            .keys()
            .map(String::as_str)
            .filter(move |name| name.starts_with(prefix))
    }

    /// A variable that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

impl Settings {
    pub(crate) fn resolve(args: &GlobalArgs, environment: Environment) -> Result<Self> {
        let mut settings = Self::resolve_leniently(args, environment)?;
        match settings.misfit.take() {
            Some(misfit) => Err(misfit),
            None => Ok(settings),
        }
    }

    /// The same where values of the file that do not fit each other are no reason to end, for `doctor`.
    pub(crate) fn resolve_leniently(args: &GlobalArgs, environment: Environment) -> Result<Self> {
        let (origin, config, misfit) = file::load(args.config.as_deref(), &environment)?;
        let default = Timeouts::default();
        let database = &config.database;
        let connect_timeout = args
            .connect_timeout
            .or(database.connect_timeout.map(|span| span.0));
        let pick = |flag: Option<Duration>, file: Option<file::Span>, default: Duration| {
            flag.or(file.map(|span| span.0)).unwrap_or(default)
        };
        let timeouts = Timeouts {
            connect: connect_timeout.unwrap_or(default.connect),
            statement: pick(
                args.statement_timeout,
                database.statement_timeout,
                default.statement,
            ),
            lock: pick(args.lock_timeout, database.lock_timeout, default.lock),
        };
        let (database_url, url_source) = match database_url(args, &environment, &config, origin.as_ref()) {
            Ok(found) => found,
            // What does not fit is said first: it may be the reason.
            Err(error) => return Err(misfit.unwrap_or(error)),
        };
        Ok(Self {
            schema: args.schema.clone().or_else(|| config.database.schema.clone()),
            output: args.output,
            quiet: args.quiet,
            log_format: args.log_format.unwrap_or(config.log.format),
            flags: Flags {
                log_format: args.log_format.is_some(),
                schema: args.schema.is_some(),
                connect_timeout: args.connect_timeout.is_some(),
                statement_timeout: args.statement_timeout.is_some(),
                lock_timeout: args.lock_timeout.is_some(),
            },
            config,
            origin,
            url_source,
            database_url,
            timeouts,
            connect_timeout,
            environment,
            misfit,
        })
    }

    /// Settings of the connection, or what is wrong with them.
    pub(crate) fn connection(&self) -> Result<connect::Settings> {
        let surroundings = connect::Environment {
            variables: self.environment.variables.clone().into_iter().collect(),
            home: self.environment.get("HOME").map(PathBuf::from),
            user: os_user(),
        };
        let mut settings = connect::Settings::resolve(self.database_url.as_deref(), &surroundings)?;
        settings.statements = match self.config.database.statements {
            file::Statements::Auto => connect::StatementMode::Auto,
            file::Statements::Prepared => connect::StatementMode::Prepared,
            file::Statements::Unnamed => connect::StatementMode::Unnamed,
        };
        settings.timeouts.statement = self.timeouts.statement;
        settings.timeouts.lock = self.timeouts.lock;
        // Unless we were told, `connect_timeout` of the connection string or PGCONNECT_TIMEOUT stands.
        if let Some(connect) = self.connect_timeout {
            settings.timeouts.connect = connect;
        }
        Ok(settings)
    }

    /// Every value in force, with its source. The connection's settings are resolved for it, so that a wrong
    /// one is found here too.
    pub(crate) fn explain(&self) -> Result<Vec<Effective>> {
        let connection = self.connection()?;
        let mut effective = self.own_values();
        for entry in connection.entries() {
            let (value, source) = (entry.value.clone(), entry.source.to_string());
            if entry.name != "connect_timeout" {
                let name = entry.name.to_owned();
                effective.push(Effective { name, value, source });
                continue;
            }
            // One value with two names: ours, unless only libpq's was given.
            let ours = effective
                .iter_mut()
                .find(|ours| ours.name == "database.connect_timeout");
            if let (None, Some(ours)) = (self.connect_timeout, ours) {
                ours.value = show_duration(connection.timeouts.connect);
                ours.source = source;
            }
        }
        Ok(effective)
    }

    /// What in the configuration file does not fit.
    pub(crate) fn misfit(&self) -> Option<&CliError> {
        self.misfit.as_ref()
    }

    /// What stderr looks like.
    pub(crate) fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// Logs go to stderr only. A daemon has nothing else to say what it does with.
    pub(crate) fn start_logging(&self, args: &GlobalArgs, daemon: bool) {
        use tracing_subscriber::filter::LevelFilter;
        let level = match (args.quiet, args.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) if !daemon => LevelFilter::WARN,
            (false, 0 | 1) => LevelFilter::INFO,
            (false, 2) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        crate::log::settle(self.log_format, self.environment.get("JOURNAL_STREAM"));
        crate::log::start(level);
    }

    /// The environment, for what only a command needs to know of it.
    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }
}

/// The first that says where the database is, and which that is. Whoever says nothing leaves it to PG* variables.
fn database_url(
    args: &GlobalArgs,
    environment: &Environment,
    config: &Config,
    origin: Option<&effective::Origin>,
) -> Result<(Option<String>, Option<String>)> {
    let candidates = [
        ("flag", args.database_url.as_deref()),
        ("IDEMCTL_DATABASE_URL", environment.get("IDEMCTL_DATABASE_URL")),
        ("DATABASE_URL", environment.get("DATABASE_URL")),
    ];
    let named = candidates
        .into_iter()
        .find_map(|(source, url)| url.map(|url| (url.to_owned(), source.to_owned())));
    if let Some((url, source)) = named {
        return Ok((Some(url), Some(source)));
    }
    let path = origin.map(|origin| origin.path.as_path());
    let Some((url, key)) = config.database.read_url(path, environment)? else {
        return Ok((None, None));
    };
    let source = origin.and_then(|origin| origin.source(&format!("database.{key}")));
    Ok((Some(url), source))
}

/// The name of the user as whom we run, libpq's default for `user`.
fn os_user() -> Option<String> {
    nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten()
        .map(|user| user.name)
}

/// A duration of the command line.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    idemctl::duration::parse(text)
}

/// A duration as it would be typed.
pub(crate) fn show_duration(duration: Duration) -> String {
    idemctl::duration::format(duration)
}

/// `--color`; `auto` leaves `NO_COLOR`, `CLICOLOR_FORCE` and TERM to anstream.
pub(crate) fn apply_color(color: Color) {
    match color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
}

/// A usage error that names the file.
pub(super) fn in_file(path: &std::path::Path, what: &str) -> CliError {
    CliError::usage(format!("{}: {what}", path.display()))
}
