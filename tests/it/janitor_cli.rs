//! `idemctl purge` and `idemctl janitor` as processes: prompts, exit codes, signals, kill -9.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::purge::{Fixture, fixture};
use crate::support::{idemctl, temp_dir};

/// Every batch takes long enough to be met in the middle.
async fn slow(f: &Fixture, seconds: &str) {
    f.execute(&format!(
        "create function slow() returns trigger language plpgsql as
         $$ begin perform pg_sleep({seconds}); return null; end $$;
         create trigger slow after delete on idempotency for each statement execute function slow()"
    ))
    .await;
}

async fn until(f: &Fixture, sql: &str) {
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while f.number(sql).await == 0 {
        assert!(tokio::time::Instant::now() < end, "never true: {sql}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A backend that is in the middle of a batch.
const DELETING: &str = "select count(*) from pg_stat_activity where state = 'active' and query like '%purge_range%' and datname = current_database() and pid <> pg_backend_pid()";

struct ConfigFile {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl ConfigFile {
    fn new(text: &str) -> Self {
        let dir = temp_dir();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        Self { path, _dir: dir }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.path, text).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_keeps_its_contract() {
    let f = fixture().await;
    f.done(30, 48).await;
    let tried = idemctl(&["purge", "--dry-run", "-o", "json"])
        .on(&f.db.url)
        .run()
        .await
        .ok();
    let tried: Value = serde_json::from_str(&tried).unwrap();
    assert_eq!(
        (&tried["deleted"], &tried["dry_run"], &tried["backlog"]),
        (&30.into(), &true.into(), &30.into())
    );
    let some = idemctl(&["purge", "--max-rows", "7", "-o", "json"])
        .on(&f.db.url)
        .run()
        .await
        .ok();
    let some: Value = serde_json::from_str(&some).unwrap();
    assert_eq!(
        (&some["deleted"], &some["stopped"], &some["backlog"]),
        (&7.into(), &"max_rows".into(), &23.into())
    );
    // Without a terminal a shorter retention needs --yes; a longer one, or the configured one, never.
    let shorter = idemctl(&["purge", "--ttl", "2h"]).on(&f.db.url).run().await;
    assert_eq!(shorter.code, 2, "{}", shorter.transcript());
    assert!(shorter.stderr.contains("--yes"), "{}", shorter.transcript());
    assert_eq!(f.number("select count(*) from idempotency").await, 23);
    let longer = idemctl(&["purge", "--ttl", "72h", "-o", "json"])
        .on(&f.db.url)
        .run()
        .await
        .ok();
    assert_eq!(serde_json::from_str::<Value>(&longer).unwrap()["deleted"], 0);
    let text = idemctl(&["purge", "--ttl", "2h", "--yes"])
        .on(&f.db.url)
        .run()
        .await
        .ok();
    assert!(
        text.contains("deleted  23 rows") && text.contains("stopped  done"),
        "{text}"
    );
    let wrong = idemctl(&["purge", "--ttl", "30s", "--yes"])
        .on(&f.db.url)
        .run()
        .await;
    assert_eq!(wrong.code, 2, "{}", wrong.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_who_says_no_keeps_everything() {
    let f = fixture().await;
    f.done(3, 5).await;
    let asked = idemctl(&["purge", "--ttl", "2h"])
        .on(&f.db.url)
        .pty()
        .stdin("n\n");
    let refused = asked.run().await;
    assert_eq!(refused.code, 4, "{}", refused.transcript());
    assert_eq!(f.number("select count(*) from idempotency").await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_in_the_middle_loses_no_count() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(2_000, 48).await;
    slow(&f, "0.02").await;
    for _ in 0..3 {
        let before = f.logged().await;
        let purge = idemctl(&["purge", "--batch-size", "50"]).on(&f.db.url).spawn();
        let batches = format!(
            "select (count(*) > 0 and sum((details->>'deleted')::int8) > {before} + 100)::int::int8 from idempotency_event"
        );
        until(&f, &batches).await;
        until(&f, DELETING).await;
        assert_eq!(purge.kill9().await.code, 137);
        // What the server had begun ends one way or the other.
        until(&f, &format!("select (({DELETING}) = 0)::int::int8")).await;
        let gone = 2_000 - f.number("select count(*) from idempotency").await;
        assert!(gone > before && gone < 2_000, "{gone}");
        assert_eq!(f.logged().await, gone);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_the_batch_of_a_purge() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(500, 48).await;
    slow(&f, "0.2").await;
    let purge = idemctl(&["purge", "--batch-size", "50", "-o", "json"])
        .on(&f.db.url)
        .spawn();
    until(&f, DELETING).await;
    purge.signal(Signal::SIGTERM);
    let output = purge.wait().await;
    assert_eq!(output.code, 130, "{}", output.transcript());
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(report["stopped"], "interrupted");
    let gone = 500 - f.number("select count(*) from idempotency").await;
    assert_eq!(report["deleted"].as_i64(), Some(gone));
    assert!(gone > 0, "the batch under way was finished");
    assert_eq!(f.logged().await, gone);
}

/// A batch does not end before the table `gate` has a row: however slow the machine is, a signal comes in the middle.
async fn gated(f: &Fixture) {
    f.execute(
        "create table gate ();
         create function gated() returns trigger language plpgsql as $$ begin
             while not exists (select from gate) loop perform pg_sleep(0.01); end loop;
             return null;
         end $$;
         create trigger gated after delete on idempotency for each statement execute function gated()",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemon_finishes_on_sigterm_and_gives_up_on_the_second() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(20, 48).await;
    gated(&f).await;
    let file = ConfigFile::new("[janitor.purge]\nschedule = \"* * * * * *\"\nbatch_size = 10\n");
    let args = ["janitor", "-c", file.path()];
    let mut daemon = idemctl(&args).on(&f.db.url).spawn();
    until(&f, DELETING).await;
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for_line("stopping after what is under way").await;
    f.execute("insert into gate default values").await;
    let output = daemon.wait().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(
        output.stderr.contains("deleted 10 rows in 1 batches"),
        "{}",
        output.transcript()
    );
    assert_eq!(output.stdout, "", "logs go to stderr");
    assert_eq!(f.number("select count(*) from idempotency").await, 10);

    f.execute("delete from gate").await;
    let mut daemon = idemctl(&args).on(&f.db.url).spawn();
    until(&f, DELETING).await;
    daemon.signal(Signal::SIGTERM);
    daemon.wait_for_line("stopping after what is under way").await;
    daemon.signal(Signal::SIGTERM);
    let output = daemon.wait_within(Duration::from_secs(10)).await;
    assert_eq!(output.code, 130, "{}", output.transcript());
    // The server was told to stop as well: the gate is still shut.
    until(&f, &format!("select (({DELETING}) = 0)::int::int8")).await;
    assert_eq!(f.number("select count(*) from idempotency").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_takes_a_good_configuration_and_refuses_a_bad_one() {
    let f = fixture().await;
    let file = ConfigFile::new("[janitor.purge]\nschedule = \"0 0 1 1 *\"\n");
    let mut daemon = idemctl(&["janitor", "-c", file.path()]).on(&f.db.url).spawn();
    daemon.wait_for_line("next run job=purge").await;
    file.write("[janitor.purge]\nschedule = \"61 * * * *\"\n");
    daemon.signal(Signal::SIGHUP);
    let refusal = daemon.wait_for_line("refused").await;
    assert!(
        refusal.contains("minute") && refusal.contains("janitor.purge"),
        "{refusal}"
    );
    f.done(10, 48).await;
    file.write("[janitor.purge]\nschedule = \"* * * * * *\"\n");
    daemon.signal(Signal::SIGHUP);
    daemon.wait_for_line("in force").await;
    daemon.wait_for_line("deleted 10 rows").await;
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.wait().await.code, 130);
}

#[tokio::test(flavor = "multi_thread")]
async fn once_and_check() {
    let f = fixture().await;
    f.done(10, 48).await;
    f.execute("insert into idempotency (client_id, key, fingerprint, locked_until) values ('s', 'stuck', '', now() - interval '1 h')")
        .await;
    let file = ConfigFile::new(
        "[janitor]\ntimezone = \"Europe/Berlin\"\n[janitor.expired]\npolicy = \"fail\"\nolder_than = \"30m\"\n",
    );
    // No database is needed to check a configuration.
    let check = idemctl(&["janitor", "--check", "-o", "json", "-c", file.path()]);
    let check: Value = serde_json::from_str(&check.on("host=/nowhere user=x").run().await.ok()).unwrap();
    assert_eq!(check["jobs"][0]["timezone"], "Europe/Berlin");
    assert_eq!(check["jobs"][0]["next"].as_array().unwrap().len(), 3);
    assert!(
        check["jobs"][1]["next"][0].as_str().unwrap().ends_with("00Z"),
        "{check}"
    );
    let text = idemctl(&["janitor", "--check", "-c", file.path()])
        .on("user=x")
        .run()
        .await
        .ok();
    assert!(text.contains("purge: */10 * * * * (Europe/Berlin)"), "{text}");
    let once = idemctl(&["janitor", "--once", "-o", "json", "-c", file.path()]);
    let once: Value = serde_json::from_str(&once.on(&f.db.url).run().await.ok()).unwrap();
    assert_eq!(once["jobs"][0]["purge"]["deleted"], 10);
    assert_eq!(once["jobs"][1]["expired"]["changed"], 1);
    let actor = "select count(*) from idempotency_event where action = 'fail' and reason = 'policy fail' and host is not null";
    assert_eq!(f.number(actor).await, 1);
    for (text, part) in [
        ("[janitor]\ntimezone = \"Nowhere\"\n", "not a time zone"),
        ("[janitor.purge]\nschedule = \"0 0 30 2 *\"\n", "never comes"),
        ("[janitor.purge]\nbatch_size = 0\n", "batch_size"),
        ("[janitor.expired]\npolicy = \"forget\"\n", "line 2"),
        (
            "[janitor.expired]\naccept_double_charge = true\n",
            "accept_double_charge",
        ),
        (
            "[janitor.expired]\npolicy = \"release\"\n[providers.acme]\nkind = \"http\"\nurl = \"https://a.example/{order_id}\"\n",
            "accept_double_charge",
        ),
        ("[janitor]\njitter = \"2h\"\n", "jitter"),
        ("[retention]\ndone = \"10s\"\n", "retention.done"),
    ] {
        let file = ConfigFile::new(text);
        let output = idemctl(&["janitor", "--check", "-c", file.path()])
            .on("user=x")
            .run()
            .await;
        assert_eq!(output.code, 2, "{text}: {}", output.transcript());
        assert!(output.stderr.contains(part), "{text}: {}", output.transcript());
    }
    let away = idemctl(&["janitor", "--once", "-c", file.path()])
        .on("host=/nowhere user=x")
        .run()
        .await;
    assert_eq!(away.code, 7, "{}", away.transcript());
}
