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
            collect(text, &mut Vec::new(), table.get_ref(), &mut keys);
        }
        Self { path, found, keys }
    }

    pub(super) fn source(&self, key: &str) -> Option<String> {
        let written = self.keys.get(key)?;
        Some(format!("{}, line {}", self.path.display(), written.line))
    }
}

fn collect<'a>(
    text: &str,
    path: &mut Vec<&'a str>,
    table: &'a DeTable<'_>,
    keys: &mut BTreeMap<String, Written>,
) {
    for (name, value) in table {
        path.push(name.get_ref());
        if let DeValue::Table(inner) = value.get_ref() {
            collect(text, path, inner, keys);
        } else {
            let value = if is_secret(path) {
                HIDDEN.to_owned()
            } else {
                show(value.get_ref())
            };
            let line = super::file::line_at(text, name.span().start);
            keys.insert(path.join("."), Written { line, value });
        }
        path.pop();
    }
}

/// A URL may hold a secret; so may a plain header and its prefix, while `file`, `credential` and `env` only say
/// where it is.
fn is_secret(path: &[&str]) -> bool {
    match path {
        ["providers", _, "headers", _, "file" | "credential" | "env"]
        | ["providers", _, "secret", "file" | "credential" | "env"] => false,
        ["providers", _, "headers" | "secret", ..]
        | ["providers", _, "url" | "proxy"]
        | ["database", "url"] => true,
        _ => false,
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
        if let Some(source) = &self.url_source {
            list.add(
                "database.url",
                format!("{HIDDEN} (its parts are below)"),
                Some(source.as_str()),
            );
        }
        self.file_values(&mut list);
        list.list
    }

    /// What only the file sets.
    fn file_values(&self, list: &mut Values<'_>) {
        let config = &self.config;
        let statements = format!("{:?}", config.database.statements).to_lowercase();
        list.add("database.statements", statements, None);
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
        list.add("audit.approval", config.audit.approval.as_str().to_owned(), None);
        let mask = list.written("output.mask");
        list.add(
            "output.mask",
            mask.unwrap_or_else(|| "nothing besides the built-in rules".to_owned()),
            None,
        );
        let given = self.flags.log_format.then_some("flag");
        list.add("log.format", self.log_format.as_str().to_owned(), given);
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
    }
}

struct Values<'a> {
    origin: Option<&'a Origin>,
    list: Vec<Effective>,
}

impl Values<'_> {
    /// What the file says.
    fn written(&self, name: &str) -> Option<String> {
        let written = self.origin?.keys.get(name)?;
        Some(written.value.clone()).filter(|value| !value.is_empty())
    }

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
