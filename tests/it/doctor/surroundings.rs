//! What is wrong between this machine and the server, and with their clocks.

use super::{Findings, find, run, sound, sound_on, sound_settings};
use crate::cli::fixture::calm;
use crate::connect::certificates::Certificates;
use crate::protocol::clocks::libfaketime;
use crate::support::{Cluster, ClusterOptions, PgbouncerOptions, free_port, pgbouncer, temp_dir, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there() {
    let cli = sound().await;
    let url = format!("postgresql://idemctl:s3cr3t-Pa55@127.0.0.1:{}/pay", free_port());
    let findings = Findings::of(run(&cli, &[]).on(&url).run().await);
    findings.are(&["connection"], 7);
    assert!(findings.named(&["unknown"]).len() > 20, "{:#?}", findings.checks);
    // The same checks as with a connection: none is left out in silence.
    let names = |findings: &Findings| {
        let mut names: Vec<String> = findings
            .checks
            .iter()
            .map(|check| check["name"].to_string())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&findings), names(&find(&cli, &[]).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_and_its_mode() {
    let cli = sound().await;
    let pooler = pgbouncer(&cli.db, PgbouncerOptions::default()).await;
    let findings = Findings::of(run(&cli, &[]).on(&pooler.url).run().await);
    findings.are(&[], 0);
    let found = findings.get("pooler")["found"].as_str().unwrap();
    assert!(
        found.contains("transaction mode") && found.contains("unnamed"),
        "{found}"
    );
    let config = cli.config("[database]\nstatements = \"prepared\"\n");
    let output = run(&cli, &["--config", &config]).on(&pooler.url).run().await;
    Findings::of(output).are(&["pooler"], 0);
    let session = PgbouncerOptions {
        pool_mode: "session",
        ..PgbouncerOptions::default()
    };
    let pooler = pgbouncer(&cli.db, session).await;
    let findings = Findings::of(run(&cli, &[]).on(&pooler.url).run().await);
    findings.are(&[], 0);
    let found = findings.get("pooler")["found"].as_str().unwrap();
    assert!(found.contains("cannot be told"), "{found}");
    let statement = PgbouncerOptions {
        pool_mode: "statement",
        ..PgbouncerOptions::default()
    };
    let pooler = pgbouncer(&cli.db, statement).await;
    let findings = Findings::of(run(&cli, &[]).on(&pooler.url).run().await);
    findings.are(&["pooler"], 4);
    assert!(
        findings.get("pooler")["mend"]
            .as_str()
            .unwrap()
            .contains("transaction")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_nobody_checks() {
    let certificates = Certificates::make();
    let mut settings = sound_settings();
    settings.extend([
        ("ssl", "on".into()),
        ("ssl_cert_file", "{dir}/server.crt".into()),
        ("ssl_key_file", "{dir}/server.key".into()),
    ]);
    let cluster = Cluster::start(ClusterOptions {
        settings,
        hba: vec!["host all all 127.0.0.1/32 trust".to_owned()],
        files: vec![
            ("server.crt", certificates.read("good.crt")),
            ("server.key", certificates.read("good.key")),
        ],
        tcp: true,
        ..ClusterOptions::default()
    })
    .await;
    let cli = sound_on(cluster.database().await).await;
    let url = format!("postgresql://idemctl@localhost:{}/{}", cli.db.port, cli.db.name);
    for mode in ["prefer", "require"] {
        let output = run(&cli, &[]).on(&format!("{url}?sslmode={mode}")).run().await;
        Findings::of(output).are(&["tls"], 0);
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let url = format!("{url}?sslmode={mode}&sslrootcert={}", certificates.path("ca.crt"));
        Findings::of(run(&cli, &[]).on(&url).run().await).are(&[], 0);
    }
    let output = run(&cli, &[]).on(&format!("{url}?sslmode=disable")).run().await;
    Findings::of(output).are(&[], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_off() {
    let cli = sound().await;
    for (shift, side) in [("-10m", "behind"), ("+10m", "ahead of")] {
        let output = run(&cli, &[])
            .env("LD_PRELOAD", libfaketime().to_string_lossy())
            .env("FAKETIME", shift)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .run()
            .await;
        let findings = Findings::of(output);
        findings.are(&["clock"], 0);
        let found = findings.get("clock")["found"].as_str().unwrap();
        assert!(found.contains(side), "{shift}: {found}");
    }
}

/// The server's clock is moved while a transaction is open, which is then as old as one that was left open at night.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_left_open() {
    let dir = temp_dir();
    let clock = dir.path().join("clock");
    std::fs::write(&clock, "+0\n").unwrap();
    let cluster = Cluster::start(ClusterOptions {
        settings: sound_settings(),
        env: vec![
            (
                "LD_PRELOAD".to_owned(),
                libfaketime().to_string_lossy().into_owned(),
            ),
            (
                "FAKETIME_TIMESTAMP_FILE".to_owned(),
                clock.to_string_lossy().into_owned(),
            ),
            ("FAKETIME_NO_CACHE".to_owned(), "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
            ("DONT_FAKE_MONOTONIC".to_owned(), "1".to_owned()),
        ],
        ..ClusterOptions::default()
    })
    .await;
    let cli = sound_on(cluster.database().await).await;
    let mut other = cli.db.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("select 1").await.unwrap();
    find(&cli, &[]).await.are(&[], 0);
    for (shift, code) in [("+1h\n", 0), ("+5h\n", 4)] {
        std::fs::write(&clock, shift).unwrap();
        let findings = find(&cli, &[]).await;
        findings.are(&["clock", "oldest_transaction"], code);
        let check = findings.get("oldest_transaction");
        assert!(
            check["found"].as_str().unwrap().contains("idle in transaction"),
            "{check}"
        );
        assert!(
            check["mend"]
                .as_str()
                .unwrap()
                .starts_with("select pg_terminate_backend("),
            "{check}"
        );
    }
    // Somebody who may not see it cannot say that there is none.
    let (_, url) = super::login(&cli, "blind").await;
    let findings = Findings::of(run(&cli, &[]).on(&url).run().await);
    assert_eq!(findings.get("oldest_transaction")["severity"], "unknown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_systemd() {
    let cli = sound().await;
    let findings = Findings::of(run(&cli, &[]).env("PATH", "/nonexistent").run().await);
    findings.are(&[], 0);
    assert_eq!(findings.get("timer")["severity"], "unknown");
    super::systemctl(&cli, "");
    let findings = find(&cli, &[]).await;
    assert!(
        findings.get("timer")["found"]
            .as_str()
            .unwrap()
            .contains("not installed")
    );
    let output = calm(run(&cli, &["-o", "ids"]).run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
}

/// Unknown answers alone would look like a server in good health.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_while_the_checks_are_made() {
    let cli = sound().await;
    let mut other = cli.db.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("lock table idempotency").await.unwrap();
    let doctor = run(&cli, &["--lock-timeout", "1m", "--statement-timeout", "1m"]).spawn();
    let end = "select count(*) from (select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and wait_event_type = 'Lock') ended";
    until("it waits for the lock", async || cli.number(end).await > 0).await;
    let findings = Findings::of(doctor.wait().await);
    findings.are(&["connection"], 7);
    assert!(!findings.named(&["unknown"]).is_empty());
}
