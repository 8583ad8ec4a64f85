//! `idemctl adopt`: what a table of another shape would need, and the SQL for it.

use std::time::Duration;

use idemctl::error::Error;
use idemctl::ops::adopt::{self, Report, Request, Step};

use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use crate::render::adopt::{AdoptView, script};
use crate::settings;

/// Look at a table with other names: what fits, what can be converted, what cannot, and the SQL that copies it
///
/// Nothing is written, but for a scratch schema with --rehearse, which is dropped again. Exit code: 0 when a way was
/// found, 4 when not (every reason is listed), 3 when there is no such table, 6 when the rehearsal went wrong.
#[derive(Debug, clap::Args)]
pub(crate) struct AdoptArgs {
    /// The table, as in SQL: SCHEMA.TABLE, with double quotes where a name needs them
    table: String,
    #[arg(
        help = "What a column of theirs is for (repeatable): COLUMN=client_id, key, fingerprint, status, locked_until or locked_at, status_code, response ...; COLUMN=- leaves it out",
        long,
        value_name = "COLUMN=OURS",
        value_parser = pair
    )]
    map: Vec<(String, String)>,
    #[arg(
        help = "What a word of theirs for a state means (repeatable): WORD=in_progress, done or failed",
        long,
        value_name = "WORD=STATE",
        value_parser = pair
    )]
    status: Vec<(String, String)>,
    /// The client of every row, where the table has no column for it
    #[arg(long, value_name = "NAME")]
    client_constant: Option<String>,
    /// How long a lock lasts, 1s to 24h, where the table has its beginning alone, or none [default: the configured lease]
    #[arg(long, value_name = "DURATION", value_parser = settings::duration)]
    lease: Option<Duration>,
    #[arg(
        help = "Of times without a time zone: a name of pg_timezone_names, such as Europe/Paris; no offset",
        long,
        value_name = "ZONE",
        default_value = "UTC"
    )]
    time_zone: String,
    /// Most rows to look at
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    rows: u64,
    /// Only print the migration, for psql
    #[arg(long)]
    show_sql: bool,
    /// Only print a view under our names, for reading by SQL; keys cannot be claimed through it
    #[arg(long, conflicts_with = "show_sql")]
    view: bool,
    /// Try the migration on the table's definition and 1,000 of its rows, in a scratch schema that is dropped again
    #[arg(long)]
    rehearse: bool,
}

/// At the last `=`, since the left side is a name of theirs.
fn pair(text: &str) -> Result<(String, String), String> {
    match text.rsplit_once('=') {
        Some((theirs, ours)) if !theirs.is_empty() && !ours.is_empty() => {
            Ok((theirs.to_owned(), ours.to_owned()))
        }
        _ => Err("give theirs=ours".to_owned()),
    }
}

pub(crate) async fn run(context: &Context, args: AdoptArgs) -> Result<Exit> {
    let AdoptArgs {
        table,
        map,
        status,
        client_constant,
        lease,
        time_zone,
        rows,
        show_sql,
        view,
        rehearse,
    } = args;
    let lifecycle = Lifecycle::install(false)?;
    let request = Request {
        schema: context.settings.schema.clone(),
        map,
        status,
        client_constant,
        lease: lease.unwrap_or(context.settings.config.lease.default.0),
        time_zone,
        rows,
        ..Request::new(table)
    };
    let report = lifecycle.unless_stopped(context, look(context, &request)).await?;
    let steps = if rehearse && report.problems.is_empty() {
        context.printer.note(
            "rehearsing in a scratch schema of this database, with up to 1,000 rows of the table; it is dropped at the end",
        );
        let settings = context.settings.connection()?;
        Some(
            Box::pin(adopt::rehearse(
                &settings,
                &report,
                &mut |warning| context.printer.note(warning),
                &lifecycle.stop,
            ))
            .await
            .map_err(explain)?,
        )
    } else {
        None
    };
    let verdict = verdict(&report, steps.as_deref());
    let wanted = match (show_sql, view) {
        (true, _) => Some(script::migration(&report)),
        (false, true) => Some(script::view(&report)),
        (false, false) => None,
    };
    if let Some(sql) = wanted {
        // What cannot be done, or went wrong in the trial, is not handed to a pipe into psql.
        let exit = verdict?;
        crate::render::raw(sql.as_deref().unwrap_or_default())?;
        return Ok(exit);
    }
    context
        .printer
        .document(&AdoptView::new(&report, steps.as_deref()))?;
    verdict
}

async fn look(context: &Context, request: &Request) -> Result<Report> {
    let mut conn = context.connect().await?;
    let report = adopt::run(&mut conn, request).await.map_err(explain)?;
    report.ok_or_else(|| {
        CliError::new(
            Exit::NotFound,
            format!("there is no table {} in this database", request.table),
        )
        .hint(
            "write it as in SQL: SCHEMA.TABLE, with double quotes around a name that has capitals or blanks",
        )
    })
}

fn explain(error: Error) -> CliError {
    match &error {
        Error::Invalid { field: "table", .. } => CliError::new(Exit::Refused, error.to_string()).hint(
            "give a table of another shape; one with our columns is taken as it is by `idemctl migrate`",
        ),
        Error::Database(_) if error.sqlstate() == Some("42501") => CliError::new(
            Exit::Other,
            error.to_string(),
        )
        .hint(
            "looking needs SELECT on the table, --rehearse also CREATE on the database; nothing was changed",
        ),
        _ => CliError::from(error),
    }
}

fn verdict(report: &Report, steps: Option<&[Step]>) -> Result<Exit> {
    if !report.problems.is_empty() {
        let problems: Vec<String> = report.problems.iter().map(script::line).collect();
        return Err(CliError::new(
            Exit::Refused,
            format!(
                "{}.{} cannot be adopted so: {}",
                report.schema,
                report.table,
                problems.join("; ")
            ),
        )
        .hint("nothing was changed; --map, --status and --client-constant say what a name alone does not"));
    }
    let wrong: Vec<&str> = steps
        .unwrap_or_default()
        .iter()
        .filter(|step| step.ok == Some(false))
        .map(|step| step.name)
        .collect();
    if wrong.is_empty() {
        return Ok(Exit::Done);
    }
    Err(CliError::new(
        Exit::Partial,
        format!("the rehearsal went wrong: {}", wrong.join(", ")),
    )
    .hint("`found` of the step says why; the table itself was not touched"))
}
