//! What the table looks like: which schema, which columns, which type of response.

use tokio_postgres::types::Type;

use super::{Executor, Sql, Tables};
use crate::error::{Error, Result};

/// Columns that services in any language already have.
pub(crate) const OLD_COLUMNS: [(&str, &[&str]); 8] = [
    ("client_id", TEXT),
    ("key", TEXT),
    ("fingerprint", TEXT),
    ("status", TEXT),
    ("locked_until", &["timestamp with time zone"]),
    ("status_code", &["integer", "smallint", "bigint"]),
    ("response", &["json", "jsonb"]),
    ("created_at", &["timestamp with time zone"]),
];

/// Columns that our migrations add.
pub(crate) const NEW_COLUMNS: [(&str, &[&str]); 10] = [
    ("attempt", &["integer"]),
    ("lease_token", &["uuid"]),
    ("owner", TEXT),
    ("operation", TEXT),
    ("provider", TEXT),
    ("order_id", TEXT),
    ("completed_at", &["timestamp with time zone"]),
    ("response_headers", &["jsonb"]),
    ("response_body", &["bytea"]),
    ("last_error", TEXT),
];

/// Columns that every insert names, or that get a default when they are adopted.
const ALWAYS_GIVEN: [&str; 6] = [
    "client_id",
    "key",
    "fingerprint",
    "status",
    "locked_until",
    "created_at",
];

const TEXT: &[&str] = &["text", "character varying", "character"];

/// The column `response` of this table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseType {
    /// Keeps the text byte for byte.
    Json,
    /// Rewrites what it stores, so exact bytes go to `response_body` beside it.
    Jsonb,
}

/// The table as it was found.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of the catalogue")]
pub(crate) struct Shape {
    pub(crate) schema: String,
    /// Name and type of each column; empty when there is no table.
    pub(crate) columns: Vec<(String, String)>,
    /// Whether `(client_id, key)` is unique by a constraint or a valid full index.
    pub(crate) unique_key: bool,
    pub(crate) utf8: bool,
    /// Whether the database has Citus, which may or may not hold the table.
    #[cfg(feature = "operate")]
    pub(crate) citus: bool,
    /// Whether Citus hands the table's rows on to nodes.
    distributed: bool,
    /// The session's style of dates.
    date_style: String,
    /// Whether our role may read the columns that hold bodies.
    pub(crate) bodies: bool,
    /// Columns that are not null and get no value by themselves.
    pub(crate) required: Vec<String>,
    /// Columns that may be null and must not: a row without them has no state.
    pub(crate) nullable: Vec<String>,
    /// Unique indexes over the old columns that stand in the way of a second client with the same key.
    pub(crate) narrow_unique: Vec<String>,
}

const LOOK: Sql = Sql {
    name: "look",
    text: "-- idemctl:look
with place as (
    select coalesce(
        $1,
        (select n.nspname::text
           from unnest(current_schemas(false)) with ordinality as path(name, position)
           join pg_namespace n on n.nspname = path.name
           join pg_class c on c.relnamespace = n.oid and c.relname = 'idempotency' and c.relkind in ('r', 'p')
          order by path.position
          limit 1),
        'public') as schema
)
select place.schema,
       current_setting('server_encoding') = 'UTF8' as utf8,
       exists (select from pg_extension where extname = 'citus') as citus,
       coalesce(case when exists (select from pg_extension where extname = 'citus') then
           (xpath('//held/text()', query_to_xml(format(
               'select exists (select from pg_dist_partition where logicalrelid = %s) as held', coalesce(c.oid, 0)),
               true, false, '')))[1]::text = 'true' end, false) as distributed,
       current_setting('DateStyle') as date_style,
       coalesce((select bool_and(has_column_privilege(c.oid, a.attnum, 'select')) from pg_attribute a
                  where a.attrelid = c.oid and a.attname in ('response', 'response_body')), true) as bodies,
       exists (select from pg_index i
                where i.indrelid = c.oid and i.indisunique and i.indisvalid and i.indimmediate
                  and i.indpred is null and i.indnkeyatts = 2
                  and (select array_agg(a.attname::text order by a.attname)
                         from pg_attribute a
                        where a.attrelid = c.oid and a.attnum = any(i.indkey)
                          and array_position(i.indkey::int2[], a.attnum) < 2) = array['client_id', 'key']
              ) as unique_key,
       (select array_agg(a.attname::text order by a.attnum) from pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as names,
       (select array_agg(regexp_replace(format_type(a.atttypid, a.atttypmod), '\\(.*\\)', '') order by a.attnum)
          from pg_attribute a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as types,
       array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
                and a.attnotnull and not a.atthasdef and a.attidentity = ''
              order by a.attnum) as required,
       array(select a.attname::text from pg_attribute a
              where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and not a.attnotnull
                and a.attname in ('client_id', 'key', 'fingerprint', 'status', 'locked_until', 'created_at')
              order by a.attnum) as nullable,
       array(select x.relname::text
               from pg_index i
               join pg_class x on x.oid = i.indexrelid
              where i.indrelid = c.oid and i.indisunique
                and (select bool_and(a.attname in ('client_id', 'key', 'fingerprint', 'status', 'locked_until',
                                                   'status_code', 'created_at'))
                            and count(*) filter (where a.attname in ('client_id', 'key')) < 2
                       from pg_attribute a
                      where a.attrelid = c.oid and a.attnum = any(i.indkey))
              order by x.relname) as narrow_unique
  from place
  left join pg_namespace n on n.nspname = place.schema
  left join pg_class c on c.relnamespace = n.oid and c.relname = 'idempotency' and c.relkind in ('r', 'p')",
    types: &[Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[LOOK];

/// Looks at the table; says nothing about whether it will do.
pub(crate) async fn look(executor: &impl Executor, schema: Option<&str>) -> Result<Shape> {
    // The catalogue is asked before a schema is known, so the names are not filled in here.
    let statement = Tables::new("").statement(&LOOK);
    let answer = executor.run(&statement, &[/* schema */ &schema]).await?;
    let row = answer.rows.first().ok_or_else(|| Error::Inconsistent {
        what: "the catalogue query returned no row; is this a PostgreSQL server?".to_owned(),
    })?;
    let names: Option<Vec<String>> = row.get("names");
    let types: Option<Vec<String>> = row.get("types");
    Ok(Shape {
        schema: row.get("schema"),
        columns: names
            .unwrap_or_default()
            .into_iter()
            .zip(types.unwrap_or_default())
            .collect(),
        unique_key: row.get("unique_key"),
        utf8: row.get("utf8"),
        #[cfg(feature = "operate")]
        citus: row.get("citus"),
        distributed: row.get("distributed"),
        date_style: row.get("date_style"),
        bodies: row.get("bodies"),
        required: row.get("required"),
        nullable: row.get("nullable"),
        narrow_unique: row.get("narrow_unique"),
    })
}

impl Shape {
    pub(crate) fn exists(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Whether the table can be worked on by this version.
    pub(crate) fn require_current(&self) -> Result<()> {
        let problem = if self.exists() {
            self.problem(true)
        } else {
            Some("there is none".to_owned())
        };
        match problem {
            None => Ok(()),
            Some(problem) => Err(Error::Schema {
                what: format!("table {}.idempotency: {problem}", self.schema),
            }),
        }
    }

    /// Whether times reach the rows as they were meant. Citus works `now()` out on the coordinator and sends it on as
    /// text in the session's style: a node reads `05/11/2026` as another day, and takes no offence.
    pub(crate) fn require_plain_dates(&self) -> Result<()> {
        if !self.distributed || self.date_style.starts_with("ISO") {
            return Ok(());
        }
        Err(Error::Settings {
            what: format!(
                "DateStyle is {:?}, in which Citus would hand times on to nodes that read them in another style; set it \
                 to ISO for this role, database or connection (`alter role ... set datestyle = 'ISO, MDY'`)",
                self.date_style
            ),
        })
    }

    /// What a claim must not meet, though a reader may: rows without a state, and an index that gives a second
    /// client an error instead of an answer.
    fn danger(&self) -> Option<String> {
        if let Some(column) = self.nullable.first() {
            return Some(format!("column {column} may be null; make it `not null` first"));
        }
        if let Some(index) = self.narrow_unique.first() {
            return Some(format!(
                "the unique index {index} does not cover (client_id, key), so that a second client with the same key \
                 would get an error; drop it first"
            ));
        }
        None
    }

    /// Whether keys may be claimed in the table.
    pub(crate) fn require_claimable(&self) -> Result<()> {
        match self.danger() {
            None => Ok(()),
            Some(danger) => Err(Error::Schema {
                what: format!("table {}.idempotency: {danger}", self.schema),
            }),
        }
    }

    /// What keeps the table from being adopted (`current` false) or used (`current` true).
    pub(crate) fn problem(&self, current: bool) -> Option<String> {
        for (position, (name, types)) in OLD_COLUMNS.iter().chain(&NEW_COLUMNS).enumerate() {
            match self.columns.iter().find(|(column, _)| column == name) {
                None if position >= OLD_COLUMNS.len() && !current => {}
                None => return Some(format!("column {name} is missing")),
                Some((_, found)) if !types.contains(&found.as_str()) => {
                    return Some(format!("column {name} is {found}, not {}", types.join(" or ")));
                }
                Some(_) => {}
            }
        }
        if let Some(name) = self
            .required
            .iter()
            .find(|name| !ALWAYS_GIVEN.contains(&name.as_str()))
        {
            return Some(format!(
                "column {name} is not null and has no default, and nothing would fill it"
            ));
        }
        if !current && let Some(danger) = self.danger() {
            return Some(danger);
        }
        (!self.unique_key).then(|| "no primary key or immediate unique index on (client_id, key)".to_owned())
    }

    pub(crate) fn response_type(&self) -> ResponseType {
        let jsonb = self
            .columns
            .iter()
            .any(|(name, ty)| name == "response" && ty == "jsonb");
        if jsonb {
            ResponseType::Jsonb
        } else {
            ResponseType::Json
        }
    }
}
