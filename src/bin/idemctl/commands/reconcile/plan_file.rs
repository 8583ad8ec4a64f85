//! The plan's file: written whole or not at all, never over another one, readable by its owner alone.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use idemctl::ops::reconcile::{MAX_PLAN_BYTES, Plan};

use crate::exit::{CliError, Exit, Result};

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses before anybody is asked what could not be written afterwards.
pub(super) fn check_new(path: &Path) -> Result<()> {
    if !is_dash(path) && path.symlink_metadata().is_ok() {
        return Err(CliError::usage(format!(
            "{} is there already; a plan is never overwritten",
            path.display()
        ))
        .hint("name another file, or remove that one"));
    }
    Ok(())
}

pub(super) fn write(path: &Path, plan: &Plan) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::new(
            Exit::Other,
            format!(
                "couldn't write the plan {}: {error}; no key was changed",
                path.display()
            ),
        )
    };
    let mut text = serde_json::to_string_pretty(plan).map_err(|error| failed(&error))?;
    text.push('\n');
    if is_dash(path) {
        return crate::render::raw(&text);
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| failed(&error))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|error| {
        // Half a plan is none; that it cannot be removed either changes nothing about the error.
        let _ = std::fs::remove_file(path);
        failed(&error)
    })
}

pub(super) fn read(path: &Path) -> Result<Plan> {
    let failed = |error: &dyn std::fmt::Display| {
        CliError::usage(format!("couldn't read the plan {}: {error}", path.display()))
    };
    let mut text = Vec::new();
    let most = MAX_PLAN_BYTES as u64 + 1;
    let read = if is_dash(path) {
        std::io::stdin().lock().take(most).read_to_end(&mut text)
    } else {
        File::open(path).and_then(|file| file.take(most).read_to_end(&mut text))
    };
    read.map_err(|error| failed(&error))?;
    if text.len() > MAX_PLAN_BYTES {
        return Err(failed(&format!("it has more than {MAX_PLAN_BYTES} bytes")));
    }
    Plan::parse(&text).map_err(|error| CliError::from(error).context(&path.display().to_string()))
}
