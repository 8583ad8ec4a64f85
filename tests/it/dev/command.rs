//! `idemctl dev`, as people and scripts use it.

use std::path::Path;

use idemctl::dev::Server;
use nix::sys::signal::Signal;

use crate::support::{Redactor, Spawned, connect, idemctl, temp_dir, until};

async fn is_up(dir: &Path) -> bool {
    Server::find(dir).await.unwrap().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn up_url_down() {
    let home = temp_dir();
    let dir = home.path().join("dev");
    let place = dir.to_string_lossy().into_owned();
    let missing = idemctl(&["dev", "url", "--dir", &place]).run().await;
    assert_eq!(missing.code, 3, "{}", missing.transcript());
    assert!(missing.stderr.contains("idemctl dev up"), "{}", missing.stderr);

    let up = idemctl(&["dev", "up", "--dir", &place]).run().await.ok();
    assert_eq!(up, format!("postgresql://idemctl@/idemctl?host={place}\n"));
    connect(up.trim()).await.simple_query("select 1").await.unwrap();
    // A second time changes nothing.
    assert_eq!(idemctl(&["dev", "up", "--dir", &place]).run().await.ok(), up);
    assert_eq!(idemctl(&["dev", "url", "--dir", &place]).run().await.ok(), up);
    let json = idemctl(&["dev", "url", "--dir", &place, "-o", "json"])
        .run()
        .await
        .ok();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["url"], up.trim());
    assert_eq!(json["dir"], place.as_str());

    assert_eq!(idemctl(&["dev", "down", "--dir", &place]).run().await.ok(), "");
    assert!(!is_up(&dir).await);
    assert_eq!(
        idemctl(&["dev", "down", "--dir", &place]).run().await.ok(),
        "",
        "nothing to do is no error"
    );
}

async fn foreground(dir: &Path, pty: bool) -> Spawned {
    let place = dir.to_string_lossy().into_owned();
    let run = idemctl(&["dev", "up", "--foreground", "--dir", &place]);
    let mut spawned = if pty { run.pty() } else { run }.spawn();
    spawned.wait_for_line("until Ctrl-C").await;
    assert!(is_up(dir).await);
    spawned
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_foreground_the_server_ends_with_the_command() {
    let home = temp_dir();
    let dir = home.path().join("dev");
    let by_key = {
        let mut spawned = foreground(&dir, true).await;
        spawned.type_in("\x03").await;
        spawned.wait().await
    };
    assert_eq!(by_key.code, 0, "{}", by_key.transcript());
    assert!(!is_up(&dir).await);

    let spawned = foreground(&dir, false).await;
    spawned.signal(Signal::SIGTERM);
    assert_eq!(spawned.wait().await.code, 0);
    assert!(!is_up(&dir).await);

    foreground(&dir, false).await.kill9().await;
    until("the server is gone", async || !is_up(&dir).await).await;

    let spawned = foreground(&dir, false).await;
    let pid = Server::find(&dir).await.unwrap().unwrap().pid();
    super::kill9(pid);
    let output = spawned.wait().await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    assert!(
        output.stderr.contains("the server has ended"),
        "{}",
        output.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_the_programs_is_a_usage_error() {
    let home = temp_dir();
    let place = home.path().to_string_lossy().into_owned();
    let dir = home.path().join("dev").to_string_lossy().into_owned();
    for run in [
        idemctl(&["dev", "up", "--dir", &dir, "--pg-bindir", &place]),
        idemctl(&["dev", "up", "--dir", &dir]).env("IDEMCTL_PG_BINDIR", &place),
    ] {
        let output = run.run().await;
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stderr.contains("there is no initdb"), "{}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_walks_through_a_nights_call() {
    let home = temp_dir();
    let dir = home.path().join("dev");
    let place = dir.to_string_lossy().into_owned();
    // What a developer may have set must not lead the demo elsewhere.
    let run = || {
        idemctl(&["dev", "demo", "--dir", &place])
            .env("PGHOST", "db.example")
            .env("PGHOSTADDR", "192.0.2.1")
            .env("PGPORT", "1")
            .env("DATABASE_URL", "postgresql://db.example/production")
    };
    let output = run().run().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert_eq!(output.stderr, "");
    let redactor = Redactor::new()
        .pattern(r"PostgreSQL \d+(\.\d+)?", "PostgreSQL [version]")
        .pattern(r"reconcile by \S+ ", "reconcile by [user]@[host] ");
    insta::assert_snapshot!(redactor.redact(&output.stdout));
    assert!(!is_up(&dir).await, "it stops what it started");

    idemctl(&["dev", "up", "--dir", &place]).run().await.ok();
    let again = run().run().await.ok();
    assert_eq!(redactor.redact(&again), redactor.redact(&output.stdout));
    assert!(is_up(&dir).await, "and nothing else");
    idemctl(&["dev", "down", "--dir", &place]).run().await.ok();
}
