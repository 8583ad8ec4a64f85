//! The configuration file: TOML, unknown keys refused, every error with its line.

use std::collections::BTreeMap;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use idemctl::credential::{self, Credential};
use idemctl::mask::{Masker, Pointer};
use idemctl::ops::purge::TTL_RANGE;
use idemctl::protocol::{MAX_LEASE, MIN_LEASE};
use idemctl::provider::ProviderConfig;
use idemctl::provider::config::DEFAULT_TIMEOUT;
use serde::Deserialize;

use super::effective::Origin;
use super::{Environment, in_file, misread};
use crate::exit::{CliError, Result};
use crate::log::LogFormat;

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
    pub(crate) lease: Lease,
    pub(crate) output: Output,
    pub(crate) log: Log,
    pub(crate) janitor: super::janitor::Janitor,
    pub(crate) providers: BTreeMap<String, ProviderConfig>,
}

/// `[database]`
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Database {
    pub(crate) url: Option<String>,
    pub(crate) url_file: Option<PathBuf>,
    /// The name of one of systemd's credentials.
    pub(crate) url_credential: Option<Credential>,
    pub(crate) schema: Option<String>,
    pub(crate) connect_timeout: Option<Span>,
    pub(crate) statement_timeout: Option<Span>,
    pub(crate) lock_timeout: Option<Span>,
    pub(crate) statements: Statements,
}

/// `database.statements`: how statements reach the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Statements {
    /// Prepared where the connection is proven to be direct.
    #[default]
    Auto,
    /// Prepared: only behind poolers that track prepared statements.
    Prepared,
    /// Sent whole each time.
    Unnamed,
}

/// `[lease]`: what the services use, so that it can be checked against the providers' timeouts.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Lease {
    pub(crate) default: Span,
}

impl Default for Lease {
    fn default() -> Self {
        Self {
            default: Span(idemctl::protocol::DEFAULT_LEASE),
        }
    }
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
    /// How many persons `resolve` needs.
    pub(crate) approval: Approval,
}

/// `audit.approval`
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Approval {
    /// One.
    #[default]
    None,
    /// One asks, another one does it: another user of the database or of the operating system.
    TwoPerson,
    /// The same, and only another user of the database counts.
    TwoDatabaseUsers,
}

impl Approval {
    /// As the file has it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TwoPerson => "two-person",
            Self::TwoDatabaseUsers => "two-database-users",
        }
    }
}

/// `[log]`: what stderr looks like.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
}

/// `[output]`: how stored text is shown.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Output {
    /// `mask`: places of JSON bodies that are hidden besides what the built-in rules hide.
    #[serde(deserialize_with = "masker")]
    pub(crate) mask: Masker,
}

fn masker<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Masker, D::Error> {
    Vec::<Pointer>::deserialize(deserializer).map(Masker::new)
}

/// Where the file is and what it says, and what in it does not fit.
pub(super) type Loaded = (Option<Origin>, Config, Option<CliError>);

/// Reads the file that was named, or the first of the usual places that exists.
///
/// Values that do not fit each other come as an error beside the file, for whoever can go on all the same.
pub(super) fn load(flag: Option<&Path>, environment: &Environment) -> Result<Loaded> {
    let by_flag = flag.map(|path| (path.to_path_buf(), "flag"));
    let named = by_flag.or_else(|| Some((environment.get("IDEMCTL_CONFIG")?.into(), "IDEMCTL_CONFIG")));
    let usual = || {
        let mut places = usual_places(environment).into_iter();
        Some((places.find(|path| path.exists())?, "found in the usual place"))
    };
    match named.or_else(usual) {
        None => Ok((None, Config::default(), None)),
        Some((path, found)) => {
            let (text, config, misfit) = read(&path)?;
            Ok((Some(Origin::new(path, found, &text)), config, misfit))
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

fn read(path: &Path) -> Result<(String, Config, Option<CliError>)> {
    let text = read_limited(path, MAX_FILE_BYTES)
        .map_err(|error| in_file(path, &format!("couldn't read the configuration: {error}")))?;
    let config: Config = toml::from_str(&text).map_err(|error| misread::error(path, &text, &error))?;
    let misfit = config.check().err().map(|(key, problem)| {
        let line = line_of(&text, &key).map_or(String::new(), |line| format!(", line {line}"));
        CliError::usage(format!("{}{line}: {key} {problem}", path.display())).hint(NOTHING_DONE)
    });
    Ok((text, config, misfit))
}

/// Largest configuration file: 1 MiB.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// Largest file with a database URL: 64 KiB.
const MAX_URL_BYTES: u64 = 64 * 1024;

/// A file's text, or an error when there is more of it than a file of its kind can have (a device, a wrong path).
fn read_limited(path: &Path, most: u64) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(most + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(std::io::Error::other(format!("it is larger than {most} bytes")));
    }
    Ok(text)
}

pub(super) const NOTHING_DONE: &str = "nothing was done; `idemctl config --check` checks the file alone";

/// What is wrong, behind the name of the key.
type Wrong = (String, String);

impl Config {
    /// What serde cannot see: ranges, and values that must fit each other.
    fn check(&self) -> Result<(), Wrong> {
        let lease = self.lease.default.0;
        within(
            "lease.default",
            lease,
            MIN_LEASE..=MAX_LEASE,
            "1 second to 24 hours",
        )?;
        for (name, span) in [
            ("done", self.retention.done),
            ("failed", self.retention.failed),
            ("events", self.retention.events),
        ] {
            within(
                &format!("retention.{name}"),
                span.0,
                TTL_RANGE.0..=TTL_RANGE.1,
                "1 minute to 10 years",
            )?;
        }
        let longest = self.retention.done.0.max(self.retention.failed.0);
        if self.retention.events.0 < longest {
            let problem = format!(
                "is {}: the event log has to outlive the keys, which are kept for {}",
                super::show_duration(self.retention.events.0),
                super::show_duration(longest)
            );
            return Err(("retention.events".to_owned(), problem));
        }
        self.database.check()?;
        self.janitor.check(!self.providers.is_empty())?;
        for (name, provider) in &self.providers {
            let timeout = provider.timeout.unwrap_or(DEFAULT_TIMEOUT);
            if lease <= timeout {
                let problem = format!(
                    "is {}: the lease ({}) has to outlast it, or a retry runs beside the first request; \
                     lengthen lease.default, or shorten this",
                    super::show_duration(timeout),
                    super::show_duration(lease),
                );
                return Err((format!("providers.{name}.timeout"), problem));
            }
        }
        Ok(())
    }
}

impl Database {
    /// The URL stands in one place.
    fn check(&self) -> Result<(), Wrong> {
        let places = [
            ("database.url", self.url.is_some()),
            ("database.url_file", self.url_file.is_some()),
            ("database.url_credential", self.url_credential.is_some()),
        ];
        let mut given = places.into_iter().filter(|(_, given)| *given);
        if let (Some((first, _)), Some((second, _))) = (given.next(), given.next()) {
            return Err((
                second.to_owned(),
                format!("stands beside {first}; keep one of them"),
            ));
        }
        Ok(())
    }

    /// The URL that the file leads to, and the key that does.
    ///
    /// To be called when nothing that goes before the file names a database: what an operator may not read, such as
    /// the daemon's credential, does not matter to one who brings a URL.
    pub(super) fn read_url(
        &self,
        config: Option<&Path>,
        environment: &Environment,
    ) -> Result<Option<(String, &'static str)>> {
        let (key, text) = if let Some(url) = &self.url {
            return Ok(Some((url.clone(), "url")));
        } else if let Some(path) = &self.url_file {
            let text =
                read_limited(path, MAX_URL_BYTES).map_err(|error| format!("{}: {error}", path.display()));
            ("url_file", text)
        } else if let Some(name) = &self.url_credential {
            let text = name
                .path(environment.get(credential::DIRECTORY))
                .and_then(|path| read_limited(&path, MAX_URL_BYTES).map_err(|error| name.unreadable(&error)));
            (
                "url_credential",
                text.map_err(|problem| format!("the credential {name} {problem}")),
            )
        } else {
            return Ok(None);
        };
        let problem = match text.as_deref().map(str::trim) {
            Ok("") => "is empty",
            Ok(url) => return Ok(Some((url.to_owned(), key))),
            Err(problem) => problem,
        };
        let path = config.unwrap_or(Path::new("the configuration"));
        Err(in_file(path, &format!("database.{key}: {problem}")).hint(
            "or name the database with --database-url or IDEMCTL_DATABASE_URL, which go before the file",
        ))
    }
}

fn within(key: &str, value: Duration, range: RangeInclusive<Duration>, allowed: &str) -> Result<(), Wrong> {
    if range.contains(&value) {
        return Ok(());
    }
    Err((
        key.to_owned(),
        format!("is {}; {allowed} is allowed", super::show_duration(value)),
    ))
}

pub(super) fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

/// The line where a key such as `lease.default` has its value, or the nearest table above it.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let root = toml::de::DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut found = None;
    for part in key.split('.') {
        let Some((name, value)) = table.iter().find(|(name, _)| name.get_ref().as_ref() == part) else {
            break;
        };
        found = Some(name.span().start);
        match value.get_ref() {
            toml::de::DeValue::Table(inner) => table = inner,
            _ => break,
        }
    }
    found.map(|offset| line_at(text, offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_named_with_its_line() {
        let text = "[lease]\ndefault = \"5s\"\n[providers.acme]\nkind = \"http\"\nurl = \"https://a.example/{order_id}\"\ntimeout = \"10s\"\n";
        let config: Config = toml::from_str(text).unwrap();
        let (key, problem) = config.check().unwrap_err();
        assert_eq!(key, "providers.acme.timeout");
        assert!(problem.contains("outlast"), "{problem}");
        assert_eq!(line_of(text, &key), Some(6));
        assert_eq!(line_of(text, "lease.default"), Some(2));
        assert_eq!(line_of(text, "retention.done"), None);
    }
}
