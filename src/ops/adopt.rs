//! A table of another shape: what fits ours, what can be converted, what cannot, and the SQL that copies it.
//!
//! [`run`] reads the catalogue and rows in a transaction that the server itself keeps read-only, and writes nothing.
//! [`rehearse()`] tries the SQL on a copy of the table's definition and a sample of its rows, in a scratch schema that is
//! dropped at the end. The migration itself is text for a person to read and to run.
//!
//! Where in doubt it refuses: a key that two requests might not meet in, a word for a state that may mean anything.

mod column;
mod fit;
mod names;
mod rehearsal;
mod remark;
mod rows;
mod status;
mod warnings;

use std::time::Duration;

use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::store::Executor;
use crate::store::adopt::{self as sql, Column, Copy, Table, Value};
use crate::store::shape::OLD_COLUMNS;

pub use column::{ColumnFit, Fit};
pub use rehearsal::{Step, rehearse};
pub use remark::{Remark, Remedy};
pub use rows::RowsReport;
pub use status::WordFit;

use fit::Said;
use names::Chosen;

/// Fewest and most rows that are looked at.
pub const ROWS: (u64, u64) = (1, 100_000_000);

/// What our table is called until all is copied: nobody can claim a key in a half of it.
pub const COPY: &str = sql::FILLED;

/// What to look at, and what is known of it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The table, as in SQL: with its schema if it is not in the search path, in quotes where its name needs them.
    pub table: String,
    /// Schema for our table; theirs if absent.
    pub schema: Option<String>,
    /// Their column, and ours; `-` leaves theirs out.
    pub map: Vec<(String, String)>,
    /// Their word for a state, and ours.
    pub status: Vec<(String, String)>,
    /// The client of every row, where they have no column for it.
    pub client_constant: Option<String>,
    /// How long a lock of theirs lasts: 1 second to 24 hours.
    pub lease: Duration,
    /// Of their times without a zone: a name of `pg_timezone_names`.
    pub time_zone: String,
    /// Most rows to look at: [`ROWS`].
    pub rows: u64,
}

impl Request {
    /// For this table, with nothing said about it.
    pub fn new(table: impl Into<String>) -> Self {
        Self {
            table: table.into(),
            schema: None,
            map: Vec::new(),
            status: Vec::new(),
            client_constant: None,
            lease: crate::protocol::DEFAULT_LEASE,
            time_zone: "UTC".to_owned(),
            rows: 100_000,
        }
    }

    /// [`Error::Invalid`] names what makes no sense.
    pub fn check(&self) -> Result<()> {
        let (least, most) = ROWS;
        if !(least..=most).contains(&self.rows) {
            return Err(Error::Invalid {
                field: "rows",
                reason: format!("is {}; {least} to {most} are allowed", self.rows),
            });
        }
        if let Some(client) = &self.client_constant {
            crate::key::check_name("client_constant", client)?;
        }
        crate::protocol::check_lease(self.lease)?;
        status::check(&self.status)
    }
}

/// What was found.
#[derive(Debug, Clone)]
pub struct Report {
    /// Schema of their table.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// Where ours would be made.
    pub target_schema: String,
    /// Rows as the planner estimates them; `None` where it never looked.
    pub estimated_rows: Option<f64>,
    /// Size on disk with its indexes; 0 for a partitioned table.
    pub bytes: i64,
    /// Each of our columns.
    pub columns: Vec<ColumnFit>,
    /// Columns of theirs that are used for nothing, and stay behind in their table.
    pub unused: Vec<String>,
    /// Their words for a state.
    pub words: Vec<WordFit>,
    /// What was counted; `None` where the columns do not fit, or the rows cannot be read.
    pub rows: Option<RowsReport>,
    /// Why it cannot be done; empty where a way was found.
    pub problems: Vec<Remark>,
    /// What has to be known before.
    pub warnings: Vec<Remark>,
    /// The statements of the migration, to be run outside a transaction, in one session, up to the first error; `None`
    /// where there is none.
    pub script: Option<String>,
    /// A view that shows their table under our names, for reading.
    pub view: Option<String>,
    /// For the rehearsal.
    plan: Option<(Copy, Vec<Column>)>,
}

/// Looks at the table; `None` where there is none of that name.
///
/// Nothing is written: the transaction is read-only. Returns [`Error::Invalid`] for a request that makes no sense (before
/// any row is read), for
/// a table that needs no such help (`idempotency` with our columns, which `migrate` takes as it is), and for what is no
/// table.
pub async fn run(conn: &mut Connection, request: &Request) -> Result<Option<Report>> {
    request.check()?;
    let tx = conn.begin().await?;
    sql::read_only(&tx).await?;
    if !sql::is_zone(&tx, &request.time_zone).await? {
        // An offset would be read with the sign of POSIX: +03:00 is west of Greenwich there.
        return Err(Error::Invalid {
            field: "time_zone",
            reason: format!(
                "{} is no name of pg_timezone_names, such as Europe/Paris, Etc/GMT-3 or UTC",
                request.time_zone
            ),
        });
    }
    let Some(table) = sql::table(&tx, &request.table, request.schema.as_deref()).await? else {
        return Ok(None);
    };
    let columns = sql::columns(&tx, table.oid).await?;
    ours_already(&table, &columns)?;
    let keys = sql::keys(&tx, table.oid).await?;
    let report = look(&tx, request, table, columns, &keys).await?;
    tx.rollback().await?;
    Ok(Some(report))
}

impl Report {
    fn before_rows(table: &Table, request: &Request, columns: Vec<ColumnFit>, words: Vec<WordFit>) -> Self {
        Self {
            target_schema: request.schema.clone().unwrap_or_else(|| table.schema.clone()),
            schema: table.schema.clone(),
            table: table.name.clone(),
            estimated_rows: (table.estimated_rows >= 0.0).then_some(table.estimated_rows),
            bytes: table.bytes,
            columns,
            unused: Vec::new(),
            words,
            rows: None,
            problems: Vec::new(),
            warnings: Vec::new(),
            script: None,
            view: None,
            plan: None,
        }
    }
}

fn ours_already(table: &Table, columns: &[Column]) -> Result<()> {
    let invalid = |reason: String| {
        Err(Error::Invalid {
            field: "table",
            reason,
        })
    };
    if !matches!(table.kind.as_str(), "r" | "p") {
        return invalid(format!("{}.{} is no table", table.schema, table.name));
    }
    let has = |name: &str| columns.iter().any(|column| column.name == name);
    if table.name == "idempotency" && OLD_COLUMNS.iter().all(|(name, _)| has(name)) {
        return invalid(format!(
            "{}.{} has our columns already: the migrations adopt it in place",
            table.schema, table.name
        ));
    }
    Ok(())
}

async fn look(
    executor: &impl Executor,
    request: &Request,
    table: Table,
    columns: Vec<Column>,
    keys: &[Vec<String>],
) -> Result<Report> {
    let chosen = Chosen::new(&columns, &request.map)?;
    let said = Said {
        client_constant: request.client_constant.as_deref(),
        lease: request.lease,
        time_zone: &request.time_zone,
    };
    let met = match chosen.column("status") {
        Some(column) if table.readable => sql::words(executor, &table, &column.name, request.rows).await?,
        _ => Vec::new(),
    };
    let status = status::judge(&chosen, &met, &request.status);
    let mut problems = of_table(&table, request);
    problems.extend(status.problems);
    let mut values: Vec<(&'static str, Value)> = Vec::new();
    let mut fits = Vec::new();
    for (column, value) in fit::judge(&chosen, &said) {
        if column.fit == Fit::Cannot {
            problems.push(Remark {
                text: format!("{}: {}", column.ours, column.how),
                remedy: fit::remedy(&column),
            });
        }
        fits.push(column);
        values.extend(value);
    }
    fits.insert(3.min(fits.len()), status.column);
    values.extend(status.value.map(|value| ("status", value)));
    let order = unique(&chosen, request.client_constant.is_some(), keys).unwrap_or_else(|problem| {
        problems.push(Remark::new(problem));
        Vec::new()
    });
    let mut report = Report::before_rows(&table, request, fits, status.words);
    report.unused = chosen.unused().iter().map(|column| column.name.clone()).collect();
    report.problems = problems;
    if !report.problems.is_empty() {
        return Ok(report);
    }
    let copy = Copy {
        schema: report.target_schema.clone(),
        table,
        values,
        order,
    };
    match sql::count(executor, &copy, request.rows).await {
        Ok(counts) => rows::judge(&mut report, &counts, request.rows),
        // The server's words would show the value.
        Err(error) if rows::class_of_values(&error) => report.problems.push(Remark::with(
            format!(
                "a row holds a value that cannot be converted as planned (SQLSTATE {}); mend the row, or leave the column out",
                error.sqlstate().unwrap_or_default()
            ),
            Remedy::LeaveOut(None),
        )),
        Err(error) => return Err(error),
    }
    if report.problems.is_empty() {
        report.warnings.extend(warnings::warnings(&report, &copy));
        report.script = Some(text(&copy.statements()));
        report.view = Some(text(&[copy.view()]));
        report.plan = Some((copy, columns));
    }
    Ok(report)
}

/// Statements one after the other.
fn text(statements: &[String]) -> String {
    let each = statements.iter().map(|statement| format!("{statement};\n"));
    each.collect::<Vec<_>>().join("\n")
}

fn of_table(table: &Table, request: &Request) -> Vec<Remark> {
    let mut problems = Vec::new();
    let target = request.schema.as_ref().unwrap_or(&table.schema);
    let has = |name: &str| table.taken.iter().any(|taken| taken == name);
    if has("idempotency") {
        problems.push(Remark::with(
            format!("{target}.idempotency is there already; rename it, or choose another schema"),
            Remedy::OtherSchema,
        ));
    }
    if has(COPY) {
        problems.push(Remark::new(format!(
            "{target}.{COPY} is there already, the copy of a script that did not come to its end; if none is running, drop it"
        )));
    }
    if !table.readable {
        problems.push(Remark::new(format!(
            "this role may not read {}.{}; grant select on it (and usage on its schema)",
            table.schema, table.name
        )));
    }
    if table.hidden_rows {
        problems.push(Remark::new(format!(
            "row-level security hides rows of {}.{} from this role, and what is not seen is not copied; use a role with \
             bypassrls",
            table.schema, table.name
        )));
    }
    if table.shares_rows {
        problems.push(Remark::new(format!(
            "{}.{} inherits or is inherited from, or is a partition: no key is unique over several tables; copy the rows into \
             one table first, or name the whole partitioned table",
            table.schema, table.name
        )));
    }
    for index in &table.expression_keys {
        problems.push(Remark::new(format!(
            "the unique index {index} is over an expression: it may take two texts for one key, which are two keys here, and a \
             repeat would be charged again; make the texts equal in the service, then drop it"
        )));
    }
    problems
}

/// Their unique key of client and key, in the order of its index.
fn unique(chosen: &Chosen<'_>, constant: bool, keys: &[Vec<String>]) -> Result<Vec<String>, String> {
    let Some(key) = chosen.column("key") else {
        // That is a problem of its own.
        return Ok(Vec::new());
    };
    let mut wanted = vec![key.name.as_str()];
    if !constant {
        let Some(client) = chosen.column("client_id") else {
            return Ok(Vec::new());
        };
        wanted.insert(0, client.name.as_str());
    }
    // A key that is unique by itself is unique with its client, too.
    let serves = |found: &&Vec<String>| {
        found.len() <= wanted.len()
            && found.contains(&key.name)
            && found.iter().all(|name| wanted.contains(&name.as_str()))
    };
    keys.iter().find(serves).cloned().ok_or_else(|| {
        format!(
            "nothing keeps ({}) unique (a primary key, or a valid, immediate and full unique index on these columns): two rows \
             may stand for one operation; make one first: create unique index concurrently ...",
            wanted.join(", ")
        )
    })
}
