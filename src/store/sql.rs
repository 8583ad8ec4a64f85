//! Statement texts: fixed constants in which only the schema is filled in, once, when the store is opened.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::Statement;
use super::key_row::BodyTexts;

/// A statement as it stands in the code. The text's first line is the comment `-- idemctl:NAME`, so that the
/// server's logs and `pg_stat_activity` name it.
///
/// `{keys}`, `{events}`, `{jobs}` and `{migrations}` stand for the four tables, `{has_body}`, `{body_bytes}` and
/// `{body_sha256}` for what may be said of a stored body.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    pub(crate) types: &'static [Type],
}

/// The names of our tables in one schema, quoted.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    pub(crate) schema: String,
    keys: String,
    events: String,
    jobs: String,
    migrations: String,
    /// Whether the role may read stored bodies.
    bodies: bool,
}

impl Tables {
    pub(crate) fn new(schema: &str) -> Self {
        let quoted = quote_ident(schema);
        Self {
            schema: schema.to_owned(),
            keys: format!("{quoted}.idempotency"),
            events: format!("{quoted}.idempotency_event"),
            jobs: format!("{quoted}.idempotency_job"),
            migrations: format!("{quoted}.idempotency_migration"),
            bodies: true,
        }
    }

    /// With statements for a role that may (or may not) read stored bodies.
    pub(crate) fn with_bodies(self, bodies: bool) -> Self {
        Self { bodies, ..self }
    }

    /// Fills the names into a template.
    pub(crate) fn fill(&self, template: &str) -> String {
        let bodies = BodyTexts::new(self.bodies);
        template
            .replace("{has_body}", bodies.has_body)
            .replace("{body_bytes}", bodies.body_bytes)
            .replace("{body_sha256}", bodies.body_sha256)
            .replace("{keys}", &self.keys)
            .replace("{events}", &self.events)
            .replace("{jobs}", &self.jobs)
            .replace("{migrations}", &self.migrations)
            .replace("{schema}", &quote_ident(&self.schema))
    }

    pub(crate) fn statement(&self, sql: &Sql) -> Statement {
        Statement {
            name: sql.name,
            text: Arc::from(self.fill(sql.text)),
            types: sql.types,
        }
    }
}

/// An identifier in double quotes.
pub(crate) fn quote_ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
