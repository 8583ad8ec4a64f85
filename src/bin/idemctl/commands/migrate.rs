//! `idemctl migrate`: create the tables, or adopt those that are there.

use std::io::{self, Write};

use idemctl::ops::migrate::{
    self, CitusStatus, IndexStatus, MAX_PARTITIONS, MIN_PARTITIONS, MigrationState, MigrationStatus, Options,
    Report, Status,
};
use serde::Serialize;

use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::{Document, printable};

/// Create the tables, or bring existing ones up to date; safe when run by many at once
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: Option<MigrateCommand>,
    /// Only say what would be run on this database
    #[arg(long)]
    dry_run: bool,
    /// Only print the SQL, to be run by hand
    #[arg(long, conflicts_with = "dry_run")]
    show_sql: bool,
    /// Make the table in N partitions by a hash of the client; only where there is no table yet
    #[arg(long, value_name = "N", conflicts_with = "roles",
          value_parser = clap::value_parser!(u32).range(i64::from(MIN_PARTITIONS)..=i64::from(MAX_PARTITIONS)))]
    partitions: Option<u32>,
    /// Have Citus distribute the table by the client; only on a coordinator, and while there are no rows
    #[arg(long, conflicts_with_all = ["roles", "partitions"])]
    citus: bool,
    /// Only print the SQL of group roles and their privileges, for a DBA
    #[arg(long, conflicts_with_all = ["dry_run", "show_sql"])]
    roles: bool,
    /// What the roles' names begin with, before `_app`, `_viewer`, `_operator` and `_janitor`
    #[arg(long, value_name = "PREFIX", default_value = "idemctl", requires = "roles")]
    role_prefix: String,
}

#[derive(Debug, clap::Subcommand)]
enum MigrateCommand {
    /// Show what was applied; exit code 9 unless the tables are up to date
    Status,
}

pub(crate) async fn run(context: &Context, args: MigrateArgs) -> Result<Exit> {
    let MigrateArgs {
        command,
        dry_run,
        show_sql,
        partitions,
        citus,
        roles,
        role_prefix,
    } = args;
    let schema = context.settings.schema.as_deref();
    let options = Options {
        dry_run,
        partitions,
        citus,
        ..Options::default()
    };
    match command {
        Some(MigrateCommand::Status) => status(context, schema).await,
        None if roles => print_roles(context, schema, &role_prefix).await,
        None if show_sql => show(context, schema, &options).await,
        None => migrate(context, schema, options).await,
    }
}

async fn migrate(context: &Context, schema: Option<&str>, mut options: Options) -> Result<Exit> {
    let settings = context.settings.connection()?;
    options.lock_timeout = options.lock_timeout.min(settings.timeouts.lock);
    let report = migrate::run(&settings, schema, &options).await?;
    context.printer.document(&ReportView(report))?;
    Ok(Exit::Done)
}

async fn show(context: &Context, schema: Option<&str>, options: &Options) -> Result<Exit> {
    let plan = migrate::plan(&context.connect().await?, schema, options).await?;
    if plan.is_empty() {
        context.printer.note(&format!(
            "schema {} is up to date; there is nothing to run",
            plan.schema
        ));
    }
    crate::render::raw(&plan.to_sql())?;
    Ok(Exit::Done)
}

/// Needs no connection where the schema is named.
async fn print_roles(context: &Context, schema: Option<&str>, prefix: &str) -> Result<Exit> {
    let script = if let Some(schema) = schema {
        migrate::roles::script(schema, prefix)?
    } else {
        let schema = migrate::roles::table_schema(&context.connect().await?).await?;
        migrate::roles::script(&schema, prefix)?
    };
    crate::render::raw(&script)?;
    Ok(Exit::Done)
}

async fn status(context: &Context, schema: Option<&str>) -> Result<Exit> {
    let status = migrate::status(&context.connect().await?, schema).await?;
    let verdict = verdict(&status);
    context.printer.document(&StatusView(status))?;
    match verdict {
        None => Ok(Exit::Done),
        Some(error) => Err(error),
    }
}

/// Why the exit code is not 0, if it is not.
fn verdict(status: &Status) -> Option<CliError> {
    if status.is_current() {
        return None;
    }
    Some(match &status.problem {
        Some(problem) => CliError::new(Exit::Schema, problem.clone()),
        None => CliError::new(
            Exit::Schema,
            format!("schema {} is not up to date", status.schema),
        )
        .hint("run `idemctl migrate`; `--dry-run` shows what it would do"),
    })
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct ReportView(Report);

impl Document for ReportView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Report {
            schema,
            dry_run,
            steps,
        } = &self.0;
        let schema = printable(schema);
        if steps.is_empty() {
            return writeln!(out, "schema {schema} is up to date");
        }
        let (heading, verb) = if *dry_run {
            ("would be run on", "would run")
        } else {
            ("now up to date:", "ran")
        };
        writeln!(out, "{heading} schema {schema}")?;
        for step in steps {
            let online = if step.online {
                ", while readers and writers go on"
            } else {
                ""
            };
            writeln!(
                out,
                "  {verb} {} ({} statements{online})",
                step.file,
                step.statements.len()
            )?;
            if *dry_run {
                for line in step.statements.iter().flat_map(|statement| statement.lines()) {
                    writeln!(out, "      {}", printable(line))?;
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug, Serialize)]
#[serde(transparent)]
struct StatusView(Status);

impl Document for StatusView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Status {
            schema,
            migrations,
            indexes,
            citus,
            problem: _,
        } = &self.0;
        writeln!(out, "schema {}", printable(schema))?;
        for MigrationStatus {
            version,
            name,
            state,
            applied_at,
            app_version,
        } in migrations
        {
            let state = match state {
                MigrationState::Applied => "applied",
                MigrationState::Pending => "pending",
                MigrationState::Changed => "changed",
                MigrationState::Unknown => "unknown",
            };
            write!(out, "  {version:>4}  {state:<8}  {}", printable(name))?;
            if let Some(at) = applied_at {
                write!(out, "  {at}")?;
            }
            if let Some(by) = app_version {
                write!(out, "  by idemctl {}", printable(by))?;
            }
            writeln!(out)?;
        }
        for IndexStatus {
            name,
            served_by,
            valid,
        } in indexes
        {
            match served_by {
                Some(own) if own != name => writeln!(out, "  index {name}: served by {}", printable(own))?,
                _ => writeln!(
                    out,
                    "  index {name}: {}",
                    if *valid { "valid" } else { "missing or invalid" }
                )?,
            }
        }
        citus.as_ref().map_or(Ok(()), |citus| write_citus(citus, out))
    }
}

fn write_citus(citus: &CitusStatus, out: &mut dyn Write) -> io::Result<()> {
    let CitusStatus {
        version,
        workers,
        shards,
        distributed_by,
        events_joined,
    } = citus;
    write!(out, "  citus {}: ", printable(version))?;
    match distributed_by {
        Some(column) => writeln!(
            out,
            "distributed by {} over {shards} shards, {workers} workers",
            printable(column)
        )?,
        None if *shards > 0 => writeln!(out, "held by Citus, not distributed by a column")?,
        None => writeln!(out, "the table is not distributed")?,
    }
    if !events_joined {
        writeln!(
            out,
            "  citus_events: pending; a change and its event are committed apart"
        )?;
    }
    Ok(())
}
