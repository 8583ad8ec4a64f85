//! Only the database's clock decides: not the session's time zone, and not the client's own clock.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use idemctl::protocol::{Idempotency, Reservation};
use tokio_postgres::Client;

use super::{Table, acquire, open, request, response};
use crate::support::{Run, connect, idemctl};

/// What a client decides about a lease that is alive, one that is over by a second, and one with a second left.
async fn decisions(keys: &Idempotency, client: &Client) -> Vec<String> {
    let mut said = Vec::new();
    let long = request("k").lease(std::time::Duration::from_mins(5)).unwrap();
    let _first = acquire(keys, client, &long).await;
    for (moved, key) in [("0 s", "k"), ("298 s", "k"), ("301 s", "k")] {
        client
            .execute(
                &format!(
                    "update idempotency set locked_until = now() + interval '300 s' - interval '{moved}'
                      where key = $1 and attempt = 1"
                ),
                &[&key],
            )
            .await
            .unwrap();
        said.push(match keys.reserve(client, &request(key)).await.unwrap() {
            Reservation::Acquired(mut lease) => {
                let attempt = lease.attempt();
                lease.complete(client, &response("x")).await.unwrap();
                format!("{moved}: acquired, attempt {attempt}")
            }
            Reservation::InProgress(busy) => {
                format!("{moved}: busy, short: {}", busy.retry_after.as_secs() < 4)
            }
            other => format!("{moved}: {other:?}"),
        });
    }
    let Reservation::Replay(replay) = keys.reserve(client, &request("k")).await.unwrap() else {
        panic!("no replay")
    };
    let done = replay.retained_from.unwrap().to_utc().unwrap().timestamp();
    let now: i64 = client
        .query_one("select extract(epoch from now())::int8", &[])
        .await
        .unwrap()
        .get(0);
    said.push(format!("just done: {}", (0..60).contains(&(now - done))));
    client.batch_execute("delete from idempotency").await.unwrap();
    said
}

const EXPECTED: [&str; 4] = [
    "0 s: busy, short: false",
    "298 s: busy, short: true",
    "301 s: acquired, attempt 2",
    "just done: true",
];

#[tokio::test(flavor = "multi_thread")]
async fn the_sessions_time_zone_changes_nothing() {
    let table = Table::new().await;
    // There this style of dates is refused; a test of its own shows that.
    let style = if table.db.is_citus() {
        "ISO, DMY"
    } else {
        "SQL, DMY"
    };
    for zone in [
        "UTC",
        "Pacific/Kiritimati",
        "America/St_Johns",
        "Europe/Berlin",
        "Etc/GMT+12",
    ] {
        let client = table.db.connect().await;
        client
            .batch_execute(&format!("set timezone = '{zone}'; set datestyle = '{style}'"))
            .await
            .unwrap();
        assert_eq!(decisions(&open(&client).await, &client).await, EXPECTED, "{zone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process"]
#[expect(
    clippy::disallowed_methods,
    reason = "it shows that this process's clock is wrong"
)]
async fn child_with_a_wrong_clock() {
    let client = connect(&std::env::var("TEST_URL").unwrap()).await;
    let theirs: f64 = client
        .query_one("select extract(epoch from clock_timestamp())::float8", &[])
        .await
        .unwrap()
        .get(0);
    let ours = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    println!("off by {:.0}", (ours - theirs) / 60.0);
    println!("decided {:?}", decisions(&open(&client).await, &client).await);
}

pub(crate) fn libfaketime() -> PathBuf {
    let found = std::fs::read_dir("/usr/lib")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path().join("faketime/libfaketimeMT.so.1")))
        .chain([PathBuf::from("/usr/lib/faketime/libfaketimeMT.so.1")])
        .find(|path| path.is_file());
    found.expect("this test needs libfaketime (Debian: apt-get install libfaketime)")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_clock_changes_nothing() {
    for (shift, minutes) in [("-10m", "-10"), ("+0", "0"), ("+10m", "10")] {
        let table = Table::new().await;
        let output = Run::test("protocol::clocks::child_with_a_wrong_clock")
            .env("TEST_URL", &table.db.url)
            .env("LD_PRELOAD", libfaketime().to_string_lossy())
            .env("FAKETIME", shift)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1")
            .run()
            .await
            .ok();
        let off = output
            .lines()
            .find_map(|line| line.split("off by ").nth(1))
            .unwrap();
        assert!(minutes == "0" || off == minutes, "the clock was wrong: {output}");
        assert!(output.contains(&format!("decided {EXPECTED:?}")), "{output}");
    }
}

/// The command decides by the database's clock too: just under and just over a day, and a lease just over.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_clock_changes_nothing() {
    let table = Table::new().await;
    table
        .execute(
            "insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at, completed_at)
             select 's', 'k' || age, 'f', 'done', now() - interval '3 days', now() - interval '3 days',
                    now() - interval '1 day' - make_interval(secs => age)
               from unnest(array[-120, 2, 300]::float8[]) age",
        )
        .await;
    table
        .execute(
            "insert into idempotency (client_id, key, fingerprint, locked_until)
             values ('s', 'over', 'f', now() - interval '1 s'), ('s', 'alive', 'f', now() + interval '9 min')",
        )
        .await;
    for shift in ["-10m", "+0", "+10m"] {
        let run = async |args: &[&str]| {
            idemctl(args)
                .on(&table.db.url)
                .env("LD_PRELOAD", libfaketime().to_string_lossy())
                .env("FAKETIME", shift)
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .env("DONT_FAKE_MONOTONIC", "1")
                .run()
                .await
                .ok()
        };
        let due: serde_json::Value =
            serde_json::from_str(&run(&["purge", "--dry-run", "-o", "json"]).await).unwrap();
        assert_eq!(due["deleted"], 2, "{shift}: {due}");
        assert_eq!(
            run(&["list", "--state", "expired", "-o", "ids"]).await,
            "s\tover\n",
            "{shift}"
        );
    }
}
