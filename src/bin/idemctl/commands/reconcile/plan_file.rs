//! The plan's file: written whole or not at all, never over another one, readable by its owner alone.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use idemctl::ops::reconcile::{MAX_PLAN_BYTES, Plan};

use crate::exit::{CliError, Exit, Result};

fn is_dash(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses before anybody is asked what could not be written afterwards.
pub(super) fn check_new(path: &Path) -> Result<()> {
    if is_dash(path) {
        return Ok(());
    }
    if path.symlink_metadata().is_ok() {
        return Err(CliError::usage(format!(
            "{} is there already; a plan is never overwritten",
            path.display()
        ))
        .hint("name a file that is not there yet, or `-` for stdout"));
    }
    if path.file_name().is_none() || !directory(path).is_dir() {
        return Err(CliError::usage(format!(
            "the plan {} would lie in a directory that is not there",
            path.display()
        )));
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
    // Under another name until it is whole; the link is made only where nothing of the name is there.
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let part = directory(path).join(format!(".{name}.{}", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::hard_link(&part, path));
    // Half a plan is none; that it cannot be removed changes nothing about the outcome.
    let _ = std::fs::remove_file(&part);
    written.map_err(|error| failed(&error))
}

fn directory(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
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
