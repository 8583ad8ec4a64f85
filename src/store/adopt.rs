//! What a table of another shape looks like, and the SQL that copies it into the table of the protocol.

mod cut_over;
mod rehearse;
mod rows;
mod script;
mod value;

use tokio_postgres::types::Type;

use super::{Answer, Executor, Sql, Statement, Tables, quote_ident};
use crate::error::{Error, Result};

pub(crate) use rehearse::{claim_view, copy_definition, one_of, read_view, sample};
pub(crate) use rows::{Counts, Word, count, words};
pub(crate) use script::Copy;
pub(crate) use value::{Value, Word as StatusWord};

/// What the table of the protocol is called until the copy is complete.
pub(crate) const FILLED: &str = "idempotency_adopting";

/// A table as the catalogue has it.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) oid: u32,
    pub(crate) schema: String,
    pub(crate) name: String,
    /// `pg_class.relkind`.
    pub(crate) kind: String,
    /// Rows as the planner estimates them; negative where it never looked.
    pub(crate) estimated_rows: f64,
    pub(crate) bytes: i64,
    pub(crate) readable: bool,
    /// Row-level security applies to us: we may not see all rows.
    pub(crate) hidden_rows: bool,
    /// Whether rows of it lie in other tables, or rows of others in it: inheritance, or a partition of another table.
    pub(crate) shares_rows: bool,
    /// Unique indexes over expressions, which may take keys for one that differ as texts.
    pub(crate) expression_keys: Vec<String>,
    /// Which of `idempotency` and [`FILLED`] the target schema has already.
    pub(crate) taken: Vec<String>,
}

impl Table {
    /// Schema and name, quoted.
    pub(crate) fn quoted(&self) -> String {
        format!("{}.{}", quote_ident(&self.schema), quote_ident(&self.name))
    }
}

/// One of its columns.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// As `format_type` has it, without length or precision; a domain's is that of its base.
    pub(crate) base: String,
    /// As a person would write it.
    pub(crate) shown: String,
    pub(crate) not_null: bool,
    /// What it gets where nobody gave a value.
    pub(crate) filled: Filled,
    /// Whether its collation takes different texts for equal, such as `A` and `a`.
    pub(crate) blurred: bool,
    /// The words of an enum.
    pub(crate) labels: Vec<String>,
}

/// What the server gives a column by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Filled {
    /// Nothing, or null.
    Null,
    /// A default.
    Default,
    /// What it computes from other columns; nobody can give it another value.
    Generated,
}

const ADOPT_TABLE: Sql = Sql {
    name: "adopt_table",
    text: "-- idemctl:adopt_table
select c.oid, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind,
       c.reltuples::float8 as estimated_rows,
       case when c.relkind = 'r' then pg_total_relation_size(c.oid) else 0 end as bytes,
       has_table_privilege(c.oid, 'select') and has_schema_privilege(n.oid, 'usage') as readable,
       row_security_active(c.oid) as hidden_rows,
       exists (select from pg_inherits h
                where h.inhrelid = c.oid or (h.inhparent = c.oid and c.relkind = 'r')) as shares_rows,
       array(select o.relname::text from pg_index i join pg_class o on o.oid = i.indexrelid
              where i.indrelid = c.oid and i.indisunique and i.indexprs is not null) as expression_keys,
       array(select o.relname::text from pg_class o join pg_namespace s on s.oid = o.relnamespace
              where s.nspname = coalesce($2 /* target schema */, n.nspname)
                and o.relname in ('idempotency', 'idempotency_adopting')) as taken
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where c.oid = to_regclass($1 /* name */)",
    types: &[Type::TEXT, Type::TEXT],
};

const ADOPT_COLUMNS: Sql = Sql {
    name: "adopt_columns",
    text: "-- idemctl:adopt_columns
select a.attname::text as name,
       format_type(case when t.typtype = 'd' then t.typbasetype else a.atttypid end, null) as base,
       format_type(a.atttypid, a.atttypmod) as shown,
       a.attnotnull or (t.typtype = 'd' and t.typnotnull) as not_null,
       a.attgenerated <> '' as generated,
       t.typdefault is not null
         or exists (select from pg_attrdef d where d.adrelid = a.attrelid and d.adnum = a.attnum
                       and pg_get_expr(d.adbin, d.adrelid) !~* '^null(::|$)') as defaulted,
       coalesce((select not l.collisdeterministic from pg_collation l where l.oid = a.attcollation), false) as blurred,
       array(select e.enumlabel::text from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder) as labels
  from pg_attribute a
  join pg_type t on t.oid = a.atttypid
 where a.attrelid = $1 /* table */ and a.attnum > 0 and not a.attisdropped
 order by a.attnum",
    types: &[Type::OID],
};

/// Nothing but an immediate and full index over plain columns keeps a second claim out.
const ADOPT_KEYS: Sql = Sql {
    name: "adopt_keys",
    text: "-- idemctl:adopt_keys
select array(select a.attname::text
               from unnest(i.indkey::int2[]) with ordinality as k(attnum, position)
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
              where k.position <= i.indnkeyatts
              order by k.position) as columns
  from pg_index i
 where i.indrelid = $1 /* table */ and i.indisunique and i.indisvalid and i.indimmediate
   and i.indpred is null and i.indexprs is null
 order by i.indisprimary desc, i.indexrelid",
    types: &[Type::OID],
};

/// Before the first look at rows: whatever comes, the server itself refuses to write.
const ADOPT_READ_ONLY: Sql = Sql {
    name: "adopt_read_only",
    text: "-- idemctl:adopt_read_only
select set_config('transaction_read_only', 'on', true)",
    types: &[],
};

const ADOPT_ZONE: Sql = Sql {
    name: "adopt_zone",
    text: "-- idemctl:adopt_zone
select exists (select from pg_timezone_names z where z.name = $1 /* name */) as known",
    types: &[Type::TEXT],
};

pub(crate) const STATEMENTS: &[Sql] = &[
    ADOPT_TABLE,
    ADOPT_COLUMNS,
    ADOPT_KEYS,
    ADOPT_READ_ONLY,
    ADOPT_ZONE,
];

/// `None` where there is no such table. `name`: as in SQL, with quotes where a name needs them; `target`: the schema
/// for our table, that of theirs if absent.
pub(crate) async fn table(
    executor: &impl Executor,
    name: &str,
    target: Option<&str>,
) -> Result<Option<Table>> {
    let statement = Tables::new("").statement(&ADOPT_TABLE);
    let answer = executor
        .run(&statement, &[/* name */ &name, /* target schema */ &target])
        .await?;
    Ok(answer.rows.first().map(|row| Table {
        oid: row.get("oid"),
        schema: row.get("schema"),
        name: row.get("name"),
        kind: row.get("kind"),
        estimated_rows: row.get("estimated_rows"),
        bytes: row.get("bytes"),
        readable: row.get("readable"),
        hidden_rows: row.get("hidden_rows"),
        shares_rows: row.get("shares_rows"),
        expression_keys: row.get("expression_keys"),
        taken: row.get("taken"),
    }))
}

/// Its columns, in their order.
pub(crate) async fn columns(executor: &impl Executor, table: u32) -> Result<Vec<Column>> {
    let statement = Tables::new("").statement(&ADOPT_COLUMNS);
    let answer = executor.run(&statement, &[/* table */ &table]).await?;
    Ok(answer
        .rows
        .iter()
        .map(|row| Column {
            name: row.get("name"),
            base: row.get("base"),
            shown: row.get("shown"),
            not_null: row.get("not_null"),
            filled: match (row.get("generated"), row.get("defaulted")) {
                (true, _) => Filled::Generated,
                (false, true) => Filled::Default,
                (false, false) => Filled::Null,
            },
            blurred: row.get("blurred"),
            labels: row.get("labels"),
        })
        .collect())
}

/// The columns of each unique key.
pub(crate) async fn keys(executor: &impl Executor, table: u32) -> Result<Vec<Vec<String>>> {
    let statement = Tables::new("").statement(&ADOPT_KEYS);
    let answer = executor.run(&statement, &[/* table */ &table]).await?;
    Ok(answer.rows.iter().map(|row| row.get("columns")).collect())
}

/// Lets the open transaction write nothing.
pub(crate) async fn read_only(executor: &impl Executor) -> Result<()> {
    executor
        .run(&Tables::new("").statement(&ADOPT_READ_ONLY), &[])
        .await?;
    Ok(())
}

/// Whether the server knows a time zone of this name.
pub(crate) async fn is_zone(executor: &impl Executor, name: &str) -> Result<bool> {
    let statement = Tables::new("").statement(&ADOPT_ZONE);
    let answer = executor.run(&statement, &[/* name */ &name]).await?;
    Ok(one_row(&answer)?.get("known"))
}

/// Runs a text that was made for this table: names and words are quoted in it.
async fn run_made(executor: &impl Executor, name: &'static str, text: String) -> Result<Answer> {
    let statement = Statement {
        name,
        text: format!("-- idemctl:{name}\n{text}").into(),
        types: &[],
    };
    executor.run(&statement, &[]).await
}

/// Runs one statement of a script.
pub(crate) async fn step(executor: &impl Executor, text: &str) -> Result<()> {
    run_made(executor, "adopt_step", text.to_owned()).await?;
    Ok(())
}

fn one_row(answer: &Answer) -> Result<&tokio_postgres::Row> {
    answer.rows.first().ok_or_else(|| Error::Inconsistent {
        what: "the server gave no row where a count was asked for; is it PostgreSQL?".to_owned(),
    })
}

/// A text as SQL has it, whatever `standard_conforming_strings` says.
fn quote_literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        format!("E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}
