//! `r`: the very command, with its own question, on the ordinary screen.

use idemctl::key::KeyId;
use tokio::process::Command;

use crate::cli::{Color, GlobalArgs};
use crate::exit::{CliError, Exit, Result};
use crate::settings::show_duration;

/// `idemctl reconcile CLIENT KEY` with the options that this process was given.
pub(super) fn reconcile(global: &GlobalArgs, id: &KeyId, reason: Option<&str>) -> Result<Command> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::new(Exit::Other, format!("couldn't find this program: {error}")))?;
    let mut command = Command::new(program);
    command.arg("reconcile");
    let GlobalArgs {
        database_url,
        config,
        schema,
        connect_timeout,
        statement_timeout,
        lock_timeout,
        output: _,
        color,
        log_format: _,
        verbose: _,
        quiet: _,
    } = global;
    // Not as an argument: it may hold a password.
    if let Some(url) = database_url {
        command.env("IDEMCTL_DATABASE_URL", url);
    }
    if let Some(config) = config {
        command.arg("--config").arg(config);
    }
    if let Some(schema) = schema {
        command.arg("--schema").arg(schema);
    }
    let timeouts = [
        ("--connect-timeout", connect_timeout),
        ("--statement-timeout", statement_timeout),
        ("--lock-timeout", lock_timeout),
    ];
    for (name, value) in timeouts {
        if let Some(value) = value {
            command.args([name, &show_duration(*value)]);
        }
    }
    match color {
        Color::Auto => {}
        Color::Always => drop(command.arg("--color=always")),
        Color::Never => drop(command.arg("--color=never")),
    }
    if let Some(reason) = reason {
        command.arg(format!("--reason={reason}"));
    }
    command.args(["--", id.client_id(), id.key()]);
    Ok(command)
}
