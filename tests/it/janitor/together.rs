//! Two daemons, purges by hand and by timer, and the services' own traffic, all at once on one table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::response::Response;
use nix::sys::signal::Signal;
use regex::Regex;
use serde_json::Value;

use super::dead::{TOO_EARLY, audited};
use crate::purge::fixture;
use crate::support::{Database, idemctl, temp_dir};

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

#[tokio::test(flavor = "multi_thread")]
async fn each_row_is_deleted_and_counted_once_and_nobody_waits() {
    let f = fixture().await;
    audited(&f).await;
    let dir = temp_dir();
    let path = dir.path().join("config.toml");
    std::fs::write(
        &path,
        "[janitor.purge]\nschedule = \"* * * * * *\"\nbatch_size = 200\n[janitor.expired]\nschedule = \"* * * * * *\"\n",
    )
    .unwrap();
    let args = ["janitor", "-c", path.to_str().unwrap()];
    let daemons = [
        idemctl(&args).on(&f.db.url).spawn(),
        idemctl(&args).on(&f.db.url).spawn(),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let hand = tokio::spawn(purges(
        f.db.url.clone(),
        Arc::clone(&stop),
        &["purge", "-o", "json", "--batch-size", "100"],
    ));
    let timer = tokio::spawn(purges(
        f.db.url.clone(),
        Arc::clone(&stop),
        &["purge", "-o", "json", "--max-duration", "50m"],
    ));
    let db = Arc::new(f);
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (f, stop) = (Arc::clone(&db), Arc::clone(&stop));
            tokio::spawn(async move { traffic(&f.db, stop, worker).await })
        })
        .collect();
    // Old rows come all the time: two thousand at once, ten times, a second and more apart.
    let rounds = AtomicU32::new(0);
    while rounds.fetch_add(1, Ordering::SeqCst) < 10 {
        let round = rounds.load(Ordering::SeqCst);
        db.execute(&format!(
            "insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at, locked_until)
             select 'old-' || i % 7, 'r{round}-' || i, '', 'done', at, at, at
               from generate_series(1, 2000) i, lateral (select now() - interval '48 h' + i * interval '1 s' as at) t"
        ))
        .await;
        tokio::time::sleep(Duration::from_millis(1_200)).await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut took = Vec::new();
    for worker in workers {
        took.extend(worker.await.unwrap());
    }
    let mut counted = hand.await.unwrap() + timer.await.unwrap();
    for daemon in daemons {
        daemon.signal(Signal::SIGTERM);
        let output = daemon.wait().await;
        assert_eq!(output.code, 0, "{}", output.transcript());
        assert!(!output.stderr.contains("deadlock"), "{}", output.transcript());
        counted += Regex::new(r"deleted (\d+) rows")
            .unwrap()
            .captures_iter(&output.stderr)
            .map(|found| found[1].parse::<i64>().unwrap())
            .sum::<i64>();
    }
    let last = idemctl(&["purge", "-o", "json"]).on(&db.db.url).run().await.ok();
    counted += serde_json::from_str::<Value>(&last).unwrap()["deleted"]
        .as_i64()
        .unwrap();

    took.sort();
    let (p50, p99, most) = (
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took[took.len() - 1],
    );
    println!(
        "{} claims: p50 {p50:?}, p99 {p99:?}, longest {most:?}",
        took.len()
    );
    assert!(took.len() > 500, "{}", took.len());
    assert!(
        p99 < Duration::from_secs(1) && most < Duration::from_secs(5),
        "{p99:?} {most:?}"
    );
    assert_eq!(
        db.number("select count(*) from idempotency where client_id like 'old%'")
            .await,
        0
    );
    assert_eq!(
        db.number("select count(*) from idempotency where client_id like 'live%' and status = 'done'")
            .await,
        i64::try_from(took.len()).unwrap(),
        "no row of the day went"
    );
    assert_eq!((counted, db.logged().await), (20_000, 20_000), "each row once");
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(db.number(deadlocks).await, 0);
    // Never two at once, and each second was served once, whichever daemon that was.
    assert_eq!(db.number(TOO_EARLY).await, 0);
    let served = "taken where scheduled_at is distinct from old_scheduled_at";
    let (runs, times) = (
        db.number(&format!("select count(*) from {served}")).await,
        db.number(&format!(
            "select count(distinct (job, scheduled_at)) from {served}"
        ))
        .await,
    );
    println!("{runs} scheduled runs");
    assert!(runs > 5, "{runs}");
    assert_eq!(runs, times);
}
