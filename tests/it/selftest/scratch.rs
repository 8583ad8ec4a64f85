//! The scratch schema and the process that is to be killed: gone, however the run ends.

use nix::sys::signal::Signal;

use super::{schemas, short};
use crate::support::{Database, Run, database, idemctl, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_exists_is_refused_and_left_alone() {
    let db = database().await;
    db.client
        .batch_execute("create schema mine; create table mine.idempotency (precious text)")
        .await
        .unwrap();
    let output = short(&["--scratch", "mine"]).on(&db.url).run().await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    assert!(
        output.stderr.contains("\"mine\" already exists"),
        "{}",
        output.transcript()
    );
    db.client
        .query("select precious from mine.idempotency", &[])
        .await
        .unwrap();
}

/// So many races that nobody sees their end.
const LONG: [&str; 6] = ["--rounds", "10000", "--race-time", "1h", "--scratch", "left-over"];

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_and_drops_the_schema() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let db = database().await;
        let mut run = long().on(&db.url).spawn();
        run.wait_for_line("made the scratch schema").await;
        races(&db).await;
        run.signal(signal);
        let output = run.wait().await;
        assert_eq!(output.code, 130, "{}", output.transcript());
        assert!(
            output.stderr.contains("error: interrupted"),
            "{}",
            output.transcript()
        );
        assert!(
            output
                .stdout
                .contains("PASSED 0 of 21 checks, 21 not checked: race, "),
            "{}",
            output.transcript()
        );
        assert!(schemas(&db).await.is_empty(), "{}", output.transcript());
    }
}

fn long() -> Run {
    let args: Vec<&str> = ["selftest", "--clients", "4"]
        .iter()
        .chain(&LONG)
        .copied()
        .collect();
    idemctl(&args)
}

async fn races(db: &Database) {
    let raced = "select count(*) from \"left-over\".idempotency";
    until("a race is over", async || {
        let count = db.client.query_one(raced, &[]).await;
        count.is_ok_and(|row| row.get::<_, i64>(0) > 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_run_left_is_named_and_not_touched() {
    let db = database().await;
    let mut run = long().on(&db.url).spawn();
    run.wait_for_line("made the scratch schema").await;
    races(&db).await;
    run.kill9().await;
    let output = short(&[]).on(&db.url).run().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(
        output.stderr.contains("drop schema \"left-over\" cascade"),
        "{}",
        output.transcript()
    );
    assert_eq!(schemas(&db).await, ["left-over"]);
}

/// The process that holds a key until it is killed ends with whoever started it: then its stdin is closed.
#[tokio::test(flavor = "multi_thread")]
async fn the_victim_does_not_outlive_its_parent() {
    let db = migrated().await;
    let mark = "comment on schema s is 'scratch schema of idemctl; nothing in it is worth keeping'";
    db.client.batch_execute(mark).await.unwrap();
    let said = hold().on(&db.url).run().await.ok();
    assert!(said.starts_with(r#"{"attempt":1,"provider_key":""#), "{said}");
    assert_eq!(states(&db).await, ["in_progress"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_victim_writes_into_no_schema_but_a_scratch_one() {
    let db = migrated().await;
    let output = hold().on(&db.url).run().await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    assert!(
        output.stderr.contains("nothing was written"),
        "{}",
        output.transcript()
    );
    assert!(states(&db).await.is_empty());
    let odd = idemctl(&["selftest", "--hold", "s", "4"]).on(&db.url).run().await;
    assert_eq!(odd.code, 2, "{}", odd.transcript());
}

async fn migrated() -> Database {
    let db = database().await;
    idemctl(&["migrate", "--schema", "s"])
        .on(&db.url)
        .run()
        .await
        .ok();
    db
}

fn hold() -> Run {
    idemctl(&["selftest", "--hold", "s", "0"])
}

async fn states(db: &Database) -> Vec<String> {
    let rows = db.client.query("select status from s.idempotency", &[]).await;
    rows.unwrap().iter().map(|row| row.get(0)).collect()
}
