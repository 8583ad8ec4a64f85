//! `idemctl selftest`: does the protocol hold on this database, through this pooler?

use std::time::Duration;

use idemctl::error::Error;
use idemctl::ops::selftest::{self, Errand, Holder, Progress, Report, Request, Verdict};

use crate::cli::GlobalArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use crate::own::Own;
use crate::render::selftest::SelftestView;
use crate::settings;

/// Race clients, kill one, check fencing and replay on this database, in a scratch schema that is dropped afterwards
///
/// Exit code: 0 when every check passed, 1 when one failed, 6 when one could not be made.
#[derive(Debug, clap::Args)]
pub(crate) struct SelftestArgs {
    /// Clients at once, each with a connection of its own
    #[arg(long, value_name = "N", default_value_t = 16)]
    clients: usize,
    /// Keys that all clients race for, one after the other
    #[arg(long, value_name = "N", default_value_t = 50)]
    rounds: u32,
    /// No further race begins after this time
    #[arg(long, value_name = "DURATION", default_value = "4s", value_parser = settings::duration)]
    race_time: Duration,
    /// Name of the scratch schema, which must not exist [default: a random one]
    #[arg(long, value_name = "NAME")]
    scratch: Option<String>,
    /// Claim the key of this try in this scratch schema and wait to be killed
    #[arg(long, num_args = 2, value_names = ["SCHEMA", "TRY"], hide = true)]
    hold: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: SelftestArgs, global: &GlobalArgs) -> Result<Exit> {
    let SelftestArgs {
        clients,
        rounds,
        race_time,
        scratch,
        hold,
    } = args;
    let settings = context.settings.connection()?;
    if let [schema, number] = hold.as_slice() {
        let errand = Errand::new(schema, number)?;
        let say = |line: &str| crate::render::raw(&format!("{line}\n"));
        return if selftest::hold(&settings, &errand, say, parent_gone()).await? {
            Ok(Exit::Done)
        } else {
            Err(no_scratch(schema))
        };
    }
    let lifecycle = Lifecycle::install(false)?;
    let request = Request {
        clients,
        rounds,
        race_time,
        scratch,
        holder: Some(holder(global)?),
    };
    request.check()?;
    let mut progress = |now: Progress<'_>| match now {
        Progress::Made {
            schema,
            database,
            warnings,
        } => {
            for warning in warnings {
                context.printer.note(warning);
            }
            context.printer.note(&format!(
                "made the scratch schema {schema} in the database {database}; nothing else is written to, and it is \
                 dropped at the end"
            ));
        }
        Progress::Checked(check) => {
            tracing::info!(verdict = check.verdict.as_str(), found = %check.found, "{}", check.name);
        }
        _ => {}
    };
    let result = Box::pin(selftest::run(&settings, &request, &mut progress, &lifecycle.stop)).await;
    let report = result.map_err(explain)?;
    context.printer.document(&SelftestView::from(&report))?;
    verdict(&report)
}

/// The same program, which connects in the same way.
fn holder(global: &GlobalArgs) -> Result<Holder> {
    let mut own = Own::new("selftest", global)?;
    own.arg("--hold");
    let Own { program, args, env } = own;
    Ok(Holder { program, args, env })
}

fn no_scratch(schema: &str) -> CliError {
    let what = format!("the schema {schema} is no scratch schema of a self test; nothing was written");
    CliError::new(Exit::Refused, what)
        .hint("`idemctl selftest` makes its own schema, and starts this by itself")
}

/// Ends when nobody holds the other end of our stdin any more.
async fn parent_gone() {
    // An error is an end, too.
    let _ = tokio::task::spawn_blocking(|| std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()))
        .await;
}

fn explain(error: Error) -> CliError {
    match error.sqlstate() {
        Some("42P06") => CliError::new(Exit::Refused, error.to_string()).hint(
            "selftest works only in a schema that it makes itself; nothing was changed. Choose another --scratch, or \
             leave it out for a random name",
        ),
        Some("42501") => CliError::new(Exit::Other, error.to_string()).hint(
            "selftest makes a schema of its own, for which the role needs CREATE on the database; nothing was changed",
        ),
        _ => CliError::from(error),
    }
}

fn verdict(report: &Report) -> Result<Exit> {
    let names = |verdict| {
        let checks = report.checks.iter().filter(move |check| check.verdict == verdict);
        checks.map(|check| check.name).collect::<Vec<_>>().join(", ")
    };
    if report.count(Verdict::Failed) > 0 {
        return Err(CliError::new(
            Exit::Other,
            format!("self test failed: {}", names(Verdict::Failed)),
        )
        .hint(
            "`found` says what happened. Look for triggers, rules and event triggers in this database, and for what stands \
             between you and it; do not move money on it before this passes",
        ));
    }
    if report.interrupted {
        return Err(CliError::new(
            Exit::Interrupted,
            "interrupted; the scratch schema is dropped, and what is shown was checked until then",
        ));
    }
    if report.count(Verdict::NotChecked) > 0 {
        return Err(CliError::new(
            Exit::Partial,
            format!("not everything was checked: {}", names(Verdict::NotChecked)),
        )
        .hint("`found` of each says why"));
    }
    Ok(Exit::Done)
}
