//! The memory of `list --all`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::{Bench, Result};

/// Reads everything that the command prints; its peak memory is looked at as it goes.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_idemctl"))
        .args(["list", "--all", "-o", "jsonl"])
        .env("IDEMCTL_DATABASE_URL", &bench.url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("a pipe was asked for")?;
    let status = format!("/proc/{}/status", child.id());
    let (mut lines, mut peak) = (0_u64, None);
    for line in BufReader::new(out).lines() {
        line?;
        lines += 1;
        // It only ever grows, and when the command has ended nobody can ask any more.
        if lines.is_multiple_of(1_000) {
            peak = high_water(&status).or(peak);
        }
    }
    let ended = child.wait()?;
    if !ended.success() || lines != u64::from(bench.rows) {
        return Err(format!(
            "list --all ended with {ended} after {lines} of {} rows",
            bench.rows
        )
        .into());
    }
    println!(
        "\n`list --all -o jsonl`: {lines} rows in {:.1} s, peak memory {}",
        started.elapsed().as_secs_f64(),
        peak.unwrap_or_else(|| "unknown".to_owned())
    );
    Ok(())
}

/// `VmHWM` of proc(5).
fn high_water(status: &str) -> Option<String> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().to_owned())
}
