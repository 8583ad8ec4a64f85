//! How big the program is, and how long it takes to start.
//!
//! ```sh
//! cargo build --release && cargo bench --bench footprint -- --binary target/release/idemctl
//! ```
//!
//! Without `--binary`, it is the program of the benchmark's own profile, which is neither stripped nor optimised when
//! linked.

#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a benchmark prints, and one that cannot go on has failed"
)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often each command is started.
const ROUNDS: usize = 50;

fn main() {
    let mut args = std::env::args().skip_while(|arg| arg != "--binary");
    let binary = args
        .nth(1)
        .unwrap_or_else(|| env!("CARGO_BIN_EXE_idemctl").to_owned());
    let size = std::fs::metadata(&binary).expect("the program's file").len();
    println!("{binary}: {size} bytes");
    for command in [
        &["--version"][..],
        &["config", "--check"],
        &["man", "reconcile"],
        &["completions", "zsh"],
    ] {
        let mut times: Vec<Duration> = (0..ROUNDS).map(|_| run(&binary, command)).collect();
        times.sort();
        println!(
            "idemctl {}: least {:.1} ms, median {:.1} ms",
            command.join(" "),
            times[0].as_secs_f64() * 1e3,
            times[ROUNDS / 2].as_secs_f64() * 1e3
        );
    }
}

/// One start, to the end, without any configuration.
fn run(binary: &str, args: &[&str]) -> Duration {
    let start = Instant::now();
    let status = Command::new(binary)
        .args(args)
        .env_clear()
        .env("HOME", "/nonexistent")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("the program starts");
    let took = start.elapsed();
    assert!(status.success(), "{args:?}: {status}");
    took
}
