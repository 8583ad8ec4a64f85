//! `idemctl doctor`: is everything as it should be, and how to mend what is not.

mod timer;

use idemctl::ops::doctor::{self, Check, Purpose, Request, Severity, fix};

use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::safety::{ChangeArgs, Confirmed, confirm, require_answerable};

/// Check connection, schema, privileges, configuration and upkeep, and say how to mend what is wrong
///
/// Exit code: 0 also with warnings (not with --strict), 7 when the database is unreachable, 9 for the schema, 4 for
/// any other error.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one for each flag; they do not depend on each other"
)]
pub(crate) struct DoctorArgs {
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
    /// What this database role is for: every privilege of that purpose must be there
    #[arg(long, value_enum, value_name = "PURPOSE")]
    role: Option<Role>,
    /// Show only what is not as expected
    #[arg(long)]
    problems: bool,
    /// Repair what can be repaired safely (indexes, planner's statistics), after asking
    #[arg(long)]
    fix: bool,
    /// Do not ask; needed without a terminal
    #[arg(long, short = 'y', requires = "fix")]
    yes: bool,
    /// Show what --fix would do, and change nothing
    #[arg(long, short = 'n', requires = "fix")]
    dry_run: bool,
}

/// A purpose on the command line: the roles of `migrate --roles`, and the tables' owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    /// Services
    App,
    /// People who look
    Viewer,
    /// People who release, reconcile, resolve and purge
    Operator,
    /// The daemon or the timer
    Janitor,
    /// Whoever migrates
    Owner,
}

impl Role {
    fn purpose(self) -> Purpose {
        match self {
            Self::App => Purpose::App,
            Self::Viewer => Purpose::Viewer,
            Self::Operator => Purpose::Operator,
            Self::Janitor => Purpose::Janitor,
            Self::Owner => Purpose::Owner,
        }
    }
}

pub(crate) async fn run(context: &Context, args: &DoctorArgs) -> Result<Exit> {
    let change = ChangeArgs {
        yes: args.yes,
        dry_run: args.dry_run,
        reason: None,
    };
    if args.fix {
        require_answerable(&change)?;
    }
    let mut checks = look(context, args).await?;
    if args.fix
        && let Some(confirmed) = gate(context, &change, &checks)?
    {
        repair(context, &checks, confirmed).await?;
        checks = look(context, args).await?;
    }
    crate::render::doctor::print(context.printer, &checks, args.problems)?;
    verdict(&checks, args.strict)
}

/// Every check, of the library and of this machine.
async fn look(context: &Context, args: &DoctorArgs) -> Result<Vec<Check>> {
    let settings = context.settings.connection()?;
    let config = &context.settings.config;
    let request = Request {
        settings: &settings,
        schema: context.settings.schema.as_deref(),
        lease: config.lease.default.0,
        retention: config.retention.for_purge(),
        providers: context.providers(),
        purpose: args.role.map(Role::purpose),
    };
    let mut checks = vec![configuration(context)];
    checks.extend(doctor::run(&request).await?);
    let purged = checks
        .iter()
        .any(|check| check.name == "janitor" && check.severity == Severity::Ok);
    checks.push(timer::check(purged).await);
    Ok(checks)
}

fn configuration(context: &Context) -> Check {
    let check = Check::of("configuration", "values that fit each other");
    match context.settings.misfit() {
        Some(misfit) => check.error(
            misfit.message(),
            "idemctl config --check names the line; every other command refuses this file",
        ),
        None => check.ok("it can be used"),
    }
}

/// Asks about the repairs; `None` where there are none, or nothing shall be changed.
fn gate(context: &Context, change: &ChangeArgs, checks: &[Check]) -> Result<Option<Confirmed>> {
    let repairs = fix::possible(checks);
    if repairs.is_empty() {
        context
            .printer
            .note("nothing that was found can be repaired by --fix; `mend` says what to do");
        return Ok(None);
    }
    for repair in &repairs {
        context
            .printer
            .note(&format!("--fix would {}", repair.describe()));
    }
    if change.dry_run {
        return Ok(None);
    }
    confirm(change, "do that now?").map(Some)
}

async fn repair(context: &Context, checks: &[Check], _confirmed: Confirmed) -> Result<()> {
    let settings = context.settings.connection()?;
    for repair in fix::possible(checks) {
        let done = fix::run(&settings, context.settings.schema.as_deref(), repair).await?;
        context.printer.note(&done);
    }
    Ok(())
}

/// The code is that of the worst.
fn verdict(checks: &[Check], strict: bool) -> Result<Exit> {
    let least = if strict {
        Severity::Warning
    } else {
        Severity::Error
    };
    let bad: Vec<&Check> = checks.iter().filter(|check| check.severity >= least).collect();
    if bad.is_empty() {
        return Ok(Exit::Done);
    }
    let names: Vec<&str> = bad.iter().map(|check| check.name).collect();
    let has = |names: &[&str]| {
        bad.iter()
            .any(|check| check.severity == Severity::Error && names.contains(&check.name))
    };
    let exit = if has(&["connection"]) {
        Exit::Database
    } else if has(&["schema", "columns", "indexes"]) {
        Exit::Schema
    } else {
        Exit::Refused
    };
    Err(
        CliError::new(exit, format!("not as expected: {}", names.join(", ")))
            .hint("`mend` of each says what to do; --fix repairs indexes and statistics"),
    )
}
