//! `idemctl`: the operator's command line over the library of the same name.
//!
//! One way through: `cli` (arguments) -> `settings` (flag, environment, file, default) -> `commands` (one file
//! each, one library operation each) -> `render` (the only writer of stdout) -> `exit` (the only exit codes).

mod cli;
mod commands;
mod context;
mod daemon;
mod exit;
mod lifecycle;
mod log;
mod own;
mod render;
mod safety;
mod settings;
mod top;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;

use crate::exit::Exit;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let exit = catch_unwind(AssertUnwindSafe(|| start(cli))).unwrap_or_else(|_| {
        exit::complain("error: this is a bug in idemctl; please report it with the lines above");
        Exit::Bug
    });
    exit.into()
}

/// Help and version on stdout, mistakes on stderr.
fn usage(error: &clap::Error) -> Exit {
    let exit = if error.use_stderr() {
        Exit::Usage
    } else {
        Exit::Done
    };
    match error.print() {
        Err(error) if exit == Exit::Done => exit::CliError::from(error).report(),
        // That stderr cannot be written to does not change what was wrong.
        _ => exit,
    }
}

/// Runs the command on its own runtime and reports what it could not do.
fn start(cli: cli::Cli) -> Exit {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            exit::complain(&format!(
                "error: couldn't start the asynchronous runtime: {error}"
            ));
            return Exit::Other;
        }
    };
    let exit = match runtime.block_on(cli.run()) {
        Ok(exit) => exit,
        Err(error) => error.report(),
    };
    // A resolver or file call that still runs must not keep the process here.
    runtime.shutdown_background();
    exit
}
