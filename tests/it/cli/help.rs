//! The help of every command, as it is read.

use std::fmt::Write as _;

use crate::support::idemctl;

#[tokio::test(flavor = "multi_thread")]
async fn every_command() {
    let mut all = String::new();
    for command in [
        "",
        "inspect",
        "history",
        "list",
        "release",
        "resolve",
        "provider",
        "provider status",
        "provider list",
        "provider key",
        "purge",
        "janitor",
        "migrate",
        "migrate status",
        "adopt",
        "stats",
        "top",
        "doctor",
        "fingerprint",
        "bench",
        "selftest",
        "config",
        "dev",
        "dev up",
        "dev down",
        "dev url",
        "dev demo",
        "runbook",
        "completions",
        "man",
    ] {
        let mut args: Vec<&str> = command.split_whitespace().collect();
        args.push("--help");
        let help = idemctl(&args).run().await.ok();
        // What is the same everywhere is shown once.
        let own = match help.split_once("\nConnection options:") {
            Some((own, _)) if !command.is_empty() => own,
            _ => &help,
        };
        writeln!(all, "$ idemctl {}\n{own}", args.join(" ")).unwrap();
    }
    insta::assert_snapshot!(all);
    let version = idemctl(&["--version"]).run().await.ok();
    assert_eq!(version, format!("idemctl {}\n", env!("CARGO_PKG_VERSION")));
}
