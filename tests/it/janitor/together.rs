//! Two daemons, purges by hand and by timer, and the services' own traffic, all at once on one table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::response::Response;
use nix::sys::signal::Signal;
use regex::Regex;
use serde_json::Value;

use super::dead::{TOO_EARLY, audited};
use crate::purge::{Fixture, fixture};
use crate::support::{Database, Spawned, idemctl, temp_dir};

/// Requests of services, as many a second as are wanted; how long each reserve took.
async fn traffic(db: &Database, stop: Arc<AtomicBool>, worker: u32) -> Vec<Duration> {
    let client = db.connect().await;
    let keys = Idempotency::open(&client, None, Options::default())
        .await
        .unwrap();
    let response = Response::new(201, "{}").unwrap();
    let mut took = Vec::new();
    // Four workers with fifty requests a second each.
    let mut beat = tokio::time::interval(Duration::from_millis(20));
    while !stop.load(Ordering::SeqCst) {
        beat.tick().await;
        let id = KeyId::new(format!("live-{worker}"), format!("k{}", took.len())).unwrap();
        let request = Request::new(id, Fingerprint::of_bytes(b"x"));
        let start = Instant::now();
        let reserved = keys.reserve(&client, &request).await.unwrap();
        took.push(start.elapsed());
        let Reservation::Acquired(mut lease) = reserved else {
            panic!("{reserved:?}")
        };
        lease.complete(&client, &response).await.unwrap();
    }
    took
}

/// Purges one after the other as a timer or a person does; what they say they deleted.
async fn purges(url: String, stop: Arc<AtomicBool>, args: &'static [&'static str]) -> i64 {
    let mut deleted = 0;
    while !stop.load(Ordering::SeqCst) {
        let output = idemctl(args).on(&url).run().await;
        // 6: rows that another purge was deleting were stepped over.
        assert!([0, 6].contains(&output.code), "{}", output.transcript());
        assert!(!output.stderr.contains("deadlock"), "{}", output.transcript());
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        deleted += report["deleted"].as_i64().unwrap();
    }
    deleted
}

/// Two daemons with a run of each job every second, in small batches.
fn daemons(url: &str) -> ([Spawned; 2], tempfile::TempDir) {
    let dir = temp_dir();
    let path = dir.path().join("config.toml");
    std::fs::write(
        &path,
        "[janitor.purge]\nschedule = \"* * * * * *\"\nbatch_size = 200\n[janitor.expired]\nschedule = \"* * * * * *\"\n",
    )
    .unwrap();
    let args = ["janitor", "-c", path.to_str().unwrap()];
    let daemon = || idemctl(&args).on(url).spawn();
    ([daemon(), daemon()], dir)
}

/// Ends the daemons; what they say they deleted.
async fn end(daemons: [Spawned; 2]) -> i64 {
    let said = Regex::new(r"deleted (\d+) rows").unwrap();
    let mut deleted = 0;
    for daemon in daemons {
        daemon.signal(Signal::SIGTERM);
        let output = daemon.wait().await;
        assert_eq!(output.code, 0, "{}", output.transcript());
        assert!(!output.stderr.contains("deadlock"), "{}", output.transcript());
        deleted += said
            .captures_iter(&output.stderr)
            .map(|found| found[1].parse::<i64>().unwrap())
            .sum::<i64>();
    }
    deleted
}

/// Two thousand rows that are due, ten times, more than a second apart.
async fn old_rows(f: &Fixture) {
    for round in 0..10 {
        f.execute(&format!(
            "insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at, locked_until)
             select 'old-' || i % 7, 'r{round}-' || i, '', 'done', at, at, at
               from generate_series(1, 2000) i, lateral (select now() - interval '48 h' + i * interval '1 s' as at) t"
        ))
        .await;
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
}

/// A claim waits for no more than a batch. How long one took at worst depends on how busy the machine is, so only what no
/// busy machine explains fails.
fn nobody_waited(mut took: Vec<Duration>) {
    took.sort();
    let (median, slow, most) = (
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took[took.len() - 1],
    );
    println!(
        "{} claims: median {median:?}, 99 % within {slow:?}, longest {most:?}",
        took.len()
    );
    assert!(took.len() > 50, "{}", took.len());
    assert!(
        median < Duration::from_secs(1) && most < Duration::from_secs(30),
        "{median:?} {most:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_row_is_deleted_and_counted_once_and_nobody_waits() {
    let f = Arc::new(fixture().await);
    audited(&f).await;
    let (daemons, _dir) = daemons(&f.db.url);
    let stop = Arc::new(AtomicBool::new(false));
    let purging = [
        &["purge", "-o", "json", "--batch-size", "100"][..],
        &["purge", "-o", "json", "--max-duration", "50m"],
    ]
    .map(|args| tokio::spawn(purges(f.db.url.clone(), Arc::clone(&stop), args)));
    let workers = [0, 1, 2, 3].map(|worker| {
        let (f, stop) = (Arc::clone(&f), Arc::clone(&stop));
        tokio::spawn(async move { traffic(&f.db, stop, worker).await })
    });
    old_rows(&f).await;
    stop.store(true, Ordering::SeqCst);
    let mut took = Vec::new();
    for worker in workers {
        took.extend(worker.await.unwrap());
    }
    let mut counted = 0;
    for purge in purging {
        counted += purge.await.unwrap();
    }
    counted += end(daemons).await;
    let last = idemctl(&["purge", "-o", "json"]).on(&f.db.url).run().await.ok();
    counted += serde_json::from_str::<Value>(&last).unwrap()["deleted"]
        .as_i64()
        .unwrap();

    let rows = async |of: &str| f.number(&format!("select count(*) from {of}")).await;
    assert_eq!(
        rows("idempotency where client_id like 'live%' and status = 'done'").await,
        i64::try_from(took.len()).unwrap(),
        "no row of the day went"
    );
    nobody_waited(took);
    assert_eq!(rows("idempotency where client_id like 'old%'").await, 0);
    assert_eq!((counted, f.logged().await), (20_000, 20_000), "each row once");
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(f.number(deadlocks).await, 0);
    // Never two at once, and each second was served once, whichever daemon that was.
    assert_eq!(f.number(TOO_EARLY).await, 0);
    let served = "taken where scheduled_at is distinct from old_scheduled_at";
    let distinct = format!("(select distinct job, scheduled_at from {served}) d");
    let runs = rows(served).await;
    println!("{runs} scheduled runs, {} in all", rows("taken").await);
    assert!(runs > 5, "{runs}");
    assert_eq!(runs, rows(&distinct).await);
}
