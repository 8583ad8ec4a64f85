//! The configuration file: TOML, unknown keys refused, every error with its line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{Environment, in_file};
use crate::exit::{CliError, Result};

/// A duration of the file, such as `"24h"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) database: Database,
    pub(crate) retention: Retention,
    pub(crate) audit: Audit,
    pub(crate) janitor: super::janitor::Janitor,
}

/// `[database]`
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Database {
    pub(crate) url: Option<String>,
    pub(crate) url_file: Option<PathBuf>,
    pub(crate) schema: Option<String>,
    pub(crate) connect_timeout: Option<Span>,
    pub(crate) statement_timeout: Option<Span>,
    pub(crate) lock_timeout: Option<Span>,
}

impl std::fmt::Debug for Database {
    /// Without the URL, which may hold a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// `[retention]`: how long terminal rows and events are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Retention {
    pub(crate) done: Span,
    pub(crate) failed: Span,
    pub(crate) events: Span,
}

impl Default for Retention {
    fn default() -> Self {
        let day = Duration::from_hours(24);
        Self {
            done: Span(day),
            failed: Span(day),
            events: Span(day * 400),
        }
    }
}

/// `[audit]`: what every change has to say.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Audit {
    /// Whether a change without `--reason` is refused.
    pub(crate) require_reason: bool,
}

/// Reads the file that was named, or the first of the usual places that exists.
pub(super) fn load(flag: Option<&Path>, environment: &Environment) -> Result<(Option<PathBuf>, Config)> {
    let named = flag
        .map(Path::to_path_buf)
        .or_else(|| environment.get("IDEMCTL_CONFIG").map(PathBuf::from));
    let path = match named {
        Some(path) => Some(path),
        None => usual_places(environment).into_iter().find(|path| path.exists()),
    };
    match path {
        None => Ok((None, Config::default())),
        Some(path) => {
            let config = read(&path)?;
            Ok((Some(path), config))
        }
    }
}

fn usual_places(environment: &Environment) -> Vec<PathBuf> {
    let user = environment.get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| {
        environment
            .get("HOME")
            .map(|home| Path::new(home).join(".config"))
    });
    let user = user.map(|base| base.join("idemctl/config.toml"));
    user.into_iter()
        .chain([PathBuf::from("/etc/idemctl/config.toml")])
        .collect()
}

fn read(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| in_file(path, &format!("couldn't read the configuration: {error}")))?;
    toml::from_str(&text).map_err(|error| config_error(path, &text, &error))
}

/// The line number and the message; never the line itself, which may hold a secret.
fn config_error(path: &Path, text: &str, error: &toml::de::Error) -> CliError {
    let line = error.span().map_or(1, |span| {
        text[..span.start.min(text.len())].matches('\n').count() + 1
    });
    let message = error.message().trim_end().replace('\n', ", ");
    CliError::usage(format!("{}, line {line}: {message}", path.display()))
        .hint("nothing was done; `idemctl config --check` checks the file alone")
}
