//! What `idemctl config` prints: every value in force, with where it came from, secrets redacted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

use super::{Settings, show_duration};

/// What stands in the place of a secret.
const HIDDEN: &str = "***";

/// One value and its source.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Effective {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) source: String,
}

/// The configuration file that was read, and what it sets.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) path: PathBuf,
    /// How the file was found.
    pub(super) found: &'static str,
    keys: BTreeMap<String, Written>,
}

/// A key of the file.
#[derive(Debug)]
struct Written {
    line: usize,
    /// For showing; hidden where it may be a secret.
    value: String,
}

impl Origin {
    /// `text`: the file's, which has been read without an error.
    pub(super) fn new(path: PathBuf, found: &'static str, text: &str) -> Self {
        let mut keys = BTreeMap::new();
        if let Ok(table) = DeTable::parse(text) {
            collect(text, "", table.get_ref(), &mut keys);
        }
        Self { path, found, keys }
    }

    fn source(&self, key: &str) -> Option<String> {
        let written = self.keys.get(key)?;
        Some(format!("{}, line {}", self.path.display(), written.line))
    }
}

fn collect(text: &str, above: &str, table: &DeTable<'_>, keys: &mut BTreeMap<String, Written>) {
    for (name, value) in table {
        let key = if above.is_empty() {
            name.get_ref().to_string()
        } else {
            format!("{above}.{}", name.get_ref())
        };
        match value.get_ref() {
            DeValue::Table(inner) => collect(text, &key, inner, keys),
            leaf => {
                let secret = ["url", "proxy"]
                    .iter()
                    .any(|name| key.ends_with(&format!(".{name}")));
                // A plain header, and its prefix, may be the secret; `file` and `env` only say where it is.
                let header = key.contains(".headers.") && !key.ends_with(".file") && !key.ends_with(".env");
                let value = if secret || header {
                    HIDDEN.to_owned()
                } else {
                    show(leaf)
                };
                let line = super::file::line_at(text, name.span().start);
                keys.insert(key, Written { line, value });
            }
        }
    }
}

fn show(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(yes) => yes.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| show(item.get_ref())).collect();
            items.join(", ")
        }
        DeValue::Table(_) => "{ ... }".to_owned(),
    }
}

impl Settings {
    /// Every value in force but the connection's.
    pub(super) fn own_values(&self) -> Vec<Effective> {
        let mut list = Values {
            origin: self.origin.as_ref(),
            list: Vec::new(),
        };
        match &self.origin {
            Some(origin) => list.add(
                "config file",
                origin.path.display().to_string(),
                Some(origin.found),
            ),
            None => list.add("config file", "none".to_owned(), None),
        }
        let flags = &self.flags;
        let flag = |given: bool| given.then_some("flag");
        let schema = self.schema.clone();
        list.add(
            "database.schema",
            schema.unwrap_or_else(|| "first of search_path that has the table".to_owned()),
            flag(flags.schema),
        );
        for (name, value, given) in [
            (
                "database.connect_timeout",
                self.timeouts.connect,
                flags.connect_timeout,
            ),
            (
                "database.statement_timeout",
                self.timeouts.statement,
                flags.statement_timeout,
            ),
            ("database.lock_timeout", self.timeouts.lock, flags.lock_timeout),
        ] {
            list.add(name, show_duration(value), flag(given));
        }
        let config = &self.config;
        let statements = format!("{:?}", config.database.statements).to_lowercase();
        list.add("database.statements", statements, None);
        if let Some(source) = &self.url_source {
            list.add(
                "database.url",
                format!("{HIDDEN} (its parts are below)"),
                Some(source.as_str()),
            );
        }
        for (name, span) in [
            ("lease.default", config.lease.default),
            ("retention.done", config.retention.done),
            ("retention.failed", config.retention.failed),
            ("retention.events", config.retention.events),
        ] {
            list.add(name, show_duration(span.0), None);
        }
        list.add(
            "audit.require_reason",
            config.audit.require_reason.to_string(),
            None,
        );
        for (name, value) in config.janitor.values(&config.retention) {
            list.add(name, value, None);
        }
        if let Some(origin) = &self.origin {
            for (key, written) in &origin.keys {
                if key.starts_with("providers.") {
                    list.add(key, written.value.clone(), None);
                }
            }
        }
        list.list
    }
}

struct Values<'a> {
    origin: Option<&'a Origin>,
    list: Vec<Effective>,
}

impl Values<'_> {
    /// `source`: where it came from, unless that is the file or the default.
    fn add(&mut self, name: &str, value: String, source: Option<&str>) {
        let from_file = || self.origin.and_then(|origin| origin.source(name));
        let source = source.map(str::to_owned).or_else(from_file);
        self.list.push(Effective {
            name: name.to_owned(),
            value,
            source: source.unwrap_or_else(|| "default".to_owned()),
        });
    }
}
