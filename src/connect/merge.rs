//! Puts the sources together: connection string, then service file, then environment, then defaults.
//!
//! That is libpq's order: a service's values beat the environment's (manual, "The Connection Service File").

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;

use super::environment::Environment;
use super::params::{self, PARAMS, Param};
use super::{keyvalue, service, uri};
use crate::error::{Error, Result};

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The connection string.
    ConnectionString,
    /// A section of a service file.
    ServiceFile(PathBuf),
    /// An environment variable.
    Variable(&'static str),
    /// A password file.
    PassFile(PathBuf),
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConnectionString => f.write_str("connection string"),
            Self::ServiceFile(path) => write!(f, "service file {}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::PassFile(path) => write!(f, "password file {}", path.display()),
            Self::Default => f.write_str("default"),
        }
    }
}

/// A value that somebody gave.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) value: String,
    pub(crate) source: Source,
}

/// Every value that was given, by parameter; the strongest source only.
#[derive(Default)]
pub(crate) struct Merged(HashMap<&'static str, Given>);

impl Merged {
    pub(crate) fn new(dsn: Option<&str>, environment: &Environment) -> Result<Self> {
        let mut merged = Self::default();
        let mut own = Self::default();
        for (name, value) in dsn.map(split).transpose()?.unwrap_or_default() {
            // The last of two equal names counts within one connection string.
            own.set(&name, value, &Source::ConnectionString, true)?;
        }
        merged.0.extend(own.0);
        merged.add_service(environment)?;
        for param in PARAMS {
            if let Some((variable, value)) = param.variable.and_then(|v| Some((v, environment.get(v)?))) {
                merged.set(param.name, value.to_owned(), &Source::Variable(variable), false)?;
            }
        }
        Ok(merged)
    }

    /// What was given; an empty value counts as a wish for the default.
    pub(crate) fn get(&self, name: &'static str) -> Option<&Given> {
        debug_assert!(params::find(name).is_some(), "{name} is not in the list");
        self.0.get(name).filter(|given| !given.value.is_empty())
    }

    pub(crate) fn value(&self, name: &'static str) -> Option<&str> {
        self.get(name).map(|given| given.value.as_str())
    }

    /// An error about the value of a parameter; shows it unless it is secret.
    pub(crate) fn wrong(&self, name: &'static str, allowed: &str) -> Error {
        match self.get(name) {
            Some(Given { value, source }) if params::find(name).is_some_and(|p| !p.is_secret()) => {
                settings(format!(
                    "{name}=\"{}\" (from {source}) is not {allowed}",
                    value.escape_debug()
                ))
            }
            _ => settings(format!("{name} is not {allowed}")),
        }
    }

    fn set(&mut self, name: &str, value: String, source: &Source, replace: bool) -> Result<()> {
        let param = find(name, source)?;
        param
            .check(&value)
            .map_err(|what| settings(format!("{what} (from {source})")))?;
        if value.contains('\0') {
            return Err(settings(format!("{name} (from {source}) has a NUL character")));
        }
        if replace || !self.0.contains_key(param.name) {
            self.0.insert(
                param.name,
                Given {
                    value,
                    source: source.clone(),
                },
            );
        }
        Ok(())
    }

    fn add_service(&mut self, environment: &Environment) -> Result<()> {
        let named = self
            .value("service")
            .or_else(|| environment.get("PGSERVICE"))
            .map(str::to_owned);
        let Some(name) = named.filter(|name| !name.is_empty()) else {
            return Ok(());
        };
        let file = self
            .value("servicefile")
            .or_else(|| environment.get("PGSERVICEFILE"))
            .map(str::to_owned);
        let (path, pairs) = service::find(&name, file.as_deref(), environment).map_err(settings)?;
        let source = Source::ServiceFile(path);
        for (name, value) in pairs {
            self.set(&name, value, &source, false)?;
        }
        Ok(())
    }
}

fn find(name: &str, source: &Source) -> Result<&'static Param> {
    params::find(name).ok_or_else(|| {
        // What does not look like a name may be a torn-off part of a password.
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let shown = if plain {
            format!("parameter \"{name}\"")
        } else {
            "a parameter name".to_owned()
        };
        settings(format!("{shown} in the {source} is not known to libpq"))
    })
}

fn split(dsn: &str) -> Result<Vec<(String, String)>> {
    let pairs = match uri::strip_scheme(dsn) {
        Some(rest) => uri::parse(rest),
        None if dsn.contains("://") => {
            Err("the connection string's scheme is not postgres:// or postgresql://".into())
        }
        None if !dsn.contains('=') && !dsn.trim().is_empty() => Err(
            "the connection string is neither a URI (postgres://...) nor key=value; for a database's name \
                 alone write dbname=NAME"
                .into(),
        ),
        None => keyvalue::parse(dsn),
    };
    pairs.map_err(settings)
}

pub(crate) fn settings(what: impl Into<String>) -> Error {
    Error::Settings { what: what.into() }
}
