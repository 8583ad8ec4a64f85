//! One run of the program, and the most memory that it had.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;

/// What a run of the program was like.
pub(crate) struct Run {
    pub(crate) took: Duration,
    /// `VmHWM` of proc(5), in kB; 0 where there is no /proc.
    pub(crate) peak_kb: u64,
    pub(crate) lines: usize,
    pub(crate) stderr: String,
}

/// Runs `idemctl` to its end. Exit codes that say "something is to be reported" are as good as 0.
pub(crate) fn run(url: &str, args: &[&str]) -> Result<Run> {
    let started = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_idemctl"))
        .args(args)
        .env("IDEMCTL_DATABASE_URL", url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (out, mut err) = child
        .stdout
        .take()
        .zip(child.stderr.take())
        .ok_or("pipes were asked for")?;
    let lines = std::thread::spawn(move || count_lines(out));
    let stderr = std::thread::spawn(move || {
        let mut text = String::new();
        err.read_to_string(&mut text).map(|_| text)
    });
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kb = 0;
    // It only ever grows, and when the program has ended nobody can ask any more.
    let ended = loop {
        peak_kb = high_water(&status).unwrap_or(peak_kb);
        if let Some(ended) = child.try_wait()? {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let took = started.elapsed();
    let panicked = |_| "a reader of the program's output panicked";
    let lines = lines.join().map_err(panicked)??;
    let stderr = stderr.join().map_err(panicked)??;
    // No provider is configured here. 4: it cannot say; 6: some were refused; 2: all that `reconcile` found name none.
    let fine = match ended.code() {
        Some(2) => args.first() == Some(&"reconcile"),
        code => matches!(code, Some(0 | 4 | 6)),
    };
    if !fine {
        return Err(format!("idemctl {} ended with {ended}: {stderr}", args.join(" ")).into());
    }
    Ok(Run {
        took,
        peak_kb,
        lines,
        stderr,
    })
}

/// Without keeping them.
fn count_lines(out: impl Read) -> std::io::Result<usize> {
    let mut lines = 0;
    for line in BufReader::new(out).split(b'\n') {
        line?;
        lines += 1;
    }
    Ok(lines)
}

fn high_water(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}
