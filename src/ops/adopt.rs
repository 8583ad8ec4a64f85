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
mod script;
mod status;

use std::time::Duration;

use serde::Serialize;

use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::store::Executor;
use crate::store::adopt::{self as sql, Column, Copy, Counts, Table, Value};
use crate::store::shape::OLD_COLUMNS;

pub use column::{ColumnFit, Fit};
pub use rehearsal::{Step, rehearse};
pub use status::WordFit;

use fit::Said;
use names::Chosen;

/// Fewest and most rows that are looked at.
pub const ROWS: (u64, u64) = (1, 100_000_000);

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
    /// How long a lock of theirs lasts.
    pub lease: Duration,
    /// Of their times without a zone.
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
        status::check(&self.status)
    }
}

/// What was counted in the rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RowsReport {
    /// Rows that were looked at.
    pub looked_at: i64,
    /// Whether that was all of them.
    pub all: bool,
    /// In progress, as the script would convert them.
    pub in_progress: i64,
    /// Of these, with a lease that is not over.
    pub live: i64,
    /// Done.
    pub done: i64,
    /// Failed.
    pub failed: i64,
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
    pub problems: Vec<String>,
    /// What has to be known before.
    pub warnings: Vec<String>,
    /// The migration, for psql; `None` where there is none.
    pub script: Option<String>,
    /// A view that shows their table under our names, for reading.
    pub view: Option<String>,
    /// For the rehearsal.
    plan: Option<(Copy, Vec<Column>)>,
}

/// Looks at the table; `None` where there is none of that name.
///
/// Nothing is written: the transaction is read-only. Returns [`Error::Invalid`] for a request that makes no sense, for
/// a table that needs no such help (`idempotency` with our columns, which `migrate` takes as it is), and for what is no
/// table.
pub async fn run(conn: &mut Connection, request: &Request) -> Result<Option<Report>> {
    request.check()?;
    let tx = conn.begin().await?;
    sql::read_only(&tx).await?;
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
            "{}.{} has our columns already: `idemctl migrate` adopts it in place",
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
            problems.push(format!("{}: {}", column.ours, column.how));
        }
        fits.push(column);
        values.extend(value);
    }
    fits.insert(3.min(fits.len()), status.column);
    values.extend(status.value.map(|value| ("status", value)));
    let order = unique(&chosen, request.client_constant.is_some(), keys).unwrap_or_else(|problem| {
        problems.push(problem);
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
        Ok(counts) => judge_rows(&mut report, &counts, request.rows),
        // The server's words would show the value.
        Err(error) if class_of_values(&error) => report.problems.push(format!(
            "a row holds a value that cannot be converted as planned (SQLSTATE {}); leave the column out with --map COLUMN=-, \
             or mend the row",
            error.sqlstate().unwrap_or_default()
        )),
        Err(error) => return Err(error),
    }
    if report.problems.is_empty() {
        report.warnings = script::warnings(&report, &copy);
        report.script = Some(script::migration(&copy, &report.warnings));
        report.view = Some(script::view(&copy));
        report.plan = Some((copy, columns));
    }
    Ok(report)
}

fn of_table(table: &Table, request: &Request) -> Vec<String> {
    let mut problems = Vec::new();
    let target = request.schema.as_ref().unwrap_or(&table.schema);
    if table.taken {
        problems.push(format!(
            "{target}.idempotency is there already; rename it, or give another --schema"
        ));
    }
    if !table.readable {
        problems.push(format!(
            "this role may not read {}.{}; grant select on it (and usage on its schema)",
            table.schema, table.name
        ));
    }
    if table.hidden_rows {
        problems.push(format!(
            "row-level security hides rows of {}.{} from this role, and what is not seen is not copied; use a role with \
             bypassrls",
            table.schema, table.name
        ));
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

/// Data exceptions (class 22), whose messages quote what stands in a row.
fn class_of_values(error: &Error) -> bool {
    error.sqlstate().is_some_and(|code| code.starts_with("22"))
}

/// What the rows themselves say against it.
fn judge_rows(report: &mut Report, counts: &Counts, limit: u64) {
    let Counts {
        rows,
        no_client,
        no_key,
        unnameable,
        no_status,
        no_fingerprint,
        no_created_at,
        no_locked_until,
        odd_codes,
        in_progress,
        live,
        done,
        failed,
    } = *counts;
    report.rows = Some(RowsReport {
        looked_at: rows,
        all: u64::try_from(rows).is_ok_and(|rows| rows < limit),
        in_progress,
        live,
        done,
        failed,
    });
    for (count, what) in [
        (
            no_client,
            "no client: nobody can ask for them, and a repeat would find nothing",
        ),
        (no_key, "no key: nobody can ask for them"),
        (
            unnameable,
            "a client or key that no request can name (empty, over 255 characters, or with control characters)",
        ),
        (no_status, "no state"),
        (
            no_fingerprint,
            "no fingerprint: whether a repeat is the same request cannot be told",
        ),
        (
            no_created_at,
            "no time of creation: their retention would never end",
        ),
        (no_locked_until, "no end of the lease"),
        (odd_codes, "a status code that is no HTTP status (100 to 599)"),
    ] {
        if count > 0 {
            report
                .problems
                .push(format!("{count} rows have {what}; mend or delete them first"));
        }
    }
}
