//! `r`: the very command, with its own question, on the ordinary screen.

use idemctl::key::KeyId;
use tokio::process::Command;

use crate::cli::GlobalArgs;
use crate::exit::Result;
use crate::own::Own;

/// `idemctl reconcile CLIENT KEY` with the options that this process was given.
pub(super) fn reconcile(global: &GlobalArgs, id: &KeyId, reason: Option<&str>) -> Result<Command> {
    let mut own = Own::new("reconcile", global)?;
    if let Some(reason) = reason {
        own.arg(format!("--reason={reason}"));
    }
    for arg in ["--", id.client_id(), id.key()] {
        own.arg(arg);
    }
    let mut command = Command::new(own.program);
    command.args(own.args).envs(own.env);
    Ok(command)
}
