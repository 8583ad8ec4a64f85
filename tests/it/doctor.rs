//! `idemctl doctor`: a sound set-up is clean, and each of many broken ones is found by name, and by no other.

mod config;
mod database;
mod privileges;
mod repair;
mod surroundings;

use idemctl::ops::migrate::Options;
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::cli::fixture::{Cli, calm};
use crate::support::{Cluster, ClusterOptions, Database, Output, Run, idemctl, temp_dir};

/// What the tests' other clusters do without, to be quick.
pub(crate) fn sound_settings() -> Vec<(&'static str, String)> {
    ["fsync", "full_page_writes", "synchronous_commit"]
        .map(|name| (name, "on".to_owned()))
        .to_vec()
}

/// A cluster in which nothing is wrong.
async fn cluster() -> &'static Cluster {
    static SOUND: OnceCell<Cluster> = OnceCell::const_new();
    SOUND
        .get_or_init(|| {
            Cluster::start(ClusterOptions {
                settings: sound_settings(),
                ..ClusterOptions::default()
            })
        })
        .await
}

/// A database in which nothing is wrong: migrated, and purged a moment ago.
async fn sound() -> Cli {
    sound_on(cluster().await.database().await).await
}

async fn sound_on(db: Database) -> Cli {
    let cli = Cli { db, dir: temp_dir() };
    let migrated = idemctl::ops::migrate::run(&cli.db.settings(), None, &Options::default()).await;
    migrated.unwrap();
    systemctl(&cli, "enabled");
    calm(cli.command(&["purge"]).run().await).ok();
    cli
}

/// What systemctl says of every unit on this machine.
fn systemctl(cli: &Cli, word: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = cli.dir.path().join("systemctl");
    std::fs::write(&path, format!("#!/bin/sh\necho {word}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The command, with that systemctl.
fn run(cli: &Cli, args: &[&str]) -> Run {
    let path = std::env::var("PATH").unwrap();
    let form: &[&str] = if args.contains(&"-o") {
        &[]
    } else {
        &["-o", "json"]
    };
    let args = [&["doctor"], form, args].concat();
    idemctl(&args)
        .on(&cli.db.url)
        .env("PATH", format!("{}:{path}", cli.dir.path().display()))
}

/// Every check that was made.
struct Findings {
    code: i32,
    checks: Vec<Value>,
    stderr: String,
}

impl Findings {
    #[track_caller]
    fn of(output: Output) -> Self {
        let output = calm(output);
        let checks: Vec<Value> = serde_json::from_str(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", output.transcript()));
        for check in &checks {
            let fields: Vec<&str> = check.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(fields, ["expected", "fix", "found", "mend", "name", "severity"]);
            let bad = matches!(check["severity"].as_str().unwrap(), "warning" | "error");
            assert_eq!(bad, check["mend"].is_string(), "{check}");
            assert_ne!(check["found"], "", "{check}");
        }
        Self {
            code: output.code,
            checks,
            stderr: output.stderr,
        }
    }

    /// The names of what is wrong.
    fn bad(&self) -> Vec<&str> {
        self.named(&["warning", "error"])
    }

    fn named(&self, severities: &[&str]) -> Vec<&str> {
        self.checks
            .iter()
            .filter(|check| severities.contains(&check["severity"].as_str().unwrap()))
            .map(|check| check["name"].as_str().unwrap())
            .collect()
    }

    #[track_caller]
    fn get(&self, name: &str) -> &Value {
        self.checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("no check {name}: {:#?}", self.checks))
    }

    /// Exactly these are wrong, and the exit code says so.
    #[track_caller]
    fn are(&self, names: &[&str], code: i32) {
        assert_eq!(
            (self.bad(), self.code),
            (names.to_vec(), code),
            "{:#?}",
            self.checks
        );
    }
}

async fn find(cli: &Cli, args: &[&str]) -> Findings {
    Findings::of(run(cli, args).run().await)
}

/// The URL of a new login of the database.
async fn login(cli: &Cli, name: &str) -> (String, String) {
    let login = format!("{name}_{}", cli.db.name);
    cli.execute(&format!("create role {login} login")).await;
    (
        login.clone(),
        cli.db.url.replacen("idemctl@", &format!("{login}@"), 1),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_set_up_is_clean() {
    let cli = sound().await;
    let findings = find(&cli, &["--strict", "--role", "owner"]).await;
    findings.are(&[], 0);
    assert_eq!(findings.named(&["unknown"]), [""; 0], "{:#?}", findings.checks);
    assert!(findings.checks.len() >= 30);
    assert_eq!(findings.stderr, "");
    // With keys in it, among them one in progress.
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint) values ('shop-1', 'order-1', repeat('ab', 32));
         insert into idempotency (client_id, key, fingerprint, status, completed_at)
         select 'shop-1', 'k' || i, repeat('ab', 32), 'done', now() from generate_series(1, 500) i",
    )
    .await;
    find(&cli, &["--strict"]).await.are(&[], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_get_a_line_for_each_and_more_for_what_is_wrong() {
    let cli = sound().await;
    cli.execute("drop index idempotency_expired_idx").await;
    let output = calm(run(&cli, &["-o", "table"]).run().await);
    assert_eq!(output.code, 9, "{}", output.transcript());
    for part in [
        "error    indexes",
        "missing or INVALID: idempotency_expired_idx",
        "mend: idemctl migrate",
        "1 errors, 0 warnings, 0 unknown,",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
    assert!(
        output.stderr.contains("error: not as expected: indexes"),
        "{}",
        output.stderr
    );
    let output = calm(run(&cli, &["-o", "csv", "--problems"]).run().await);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "name,severity,found,expected,mend,fix");
    assert_eq!(lines.len(), 2, "{}", output.stdout);
    assert!(lines[1].starts_with("indexes,error,"), "{}", output.stdout);
}
