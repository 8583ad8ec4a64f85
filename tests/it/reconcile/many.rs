//! Many rows at once, while things go wrong.

use std::time::Duration;

use idemctl::dev::{Binaries, Lifetime, Options, Server};
use idemctl::ops::migrate;

use super::provider::{Fault, Provider, section};
use super::{fixture, results};
use crate::cli::fixture::calm;
use crate::support::{Proxy, connect, free_port, idemctl, settings, temp_dir, until};

/// Rows whose key `poison` rules cannot be changed, and `good` ones.
fn rows(good: u32) -> String {
    format!(
        "insert into idempotency (client_id, key, fingerprint, locked_until, created_at, lease_token, provider)
         select 'shop-1', 'order-' || i, repeat('ab', 32), now() - interval '14 min', now() - interval '15 min',
                gen_random_uuid(), 'acme'
           from generate_series(1, {good}) i"
    )
}

/// No change without its event, and no event without its change.
const TORN: &str = "select (select count(*) from idempotency k
                             where k.status = 'done' and not exists (
                                   select from idempotency_event e where e.key = k.key and e.action = 'reconcile'))
                          + (select count(*) from idempotency k
                              where k.status = 'in_progress' and exists (
                                    select from idempotency_event e where e.key = k.key and e.action = 'reconcile'))
                          + (select count(*) from (select from idempotency_event
                                                    group by client_id, key having count(*) > 1) twice)";

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_postgresql_in_the_middle_and_two_poison_rows() {
    let dir = temp_dir();
    let mut options = Options::new(
        dir.path().join("pg"),
        Binaries::find(bindir().as_deref()).unwrap(),
    );
    options.port = free_port();
    let server = Server::start(&options, Lifetime::Tied).await.unwrap();
    let url = server.url("idemctl");
    migrate::run(&settings(&url), None, &migrate::Options::default())
        .await
        .unwrap();
    let client = connect(&url).await;
    let provider = poisoned(&client).await;
    let config = dir.path().join("config.toml");
    std::fs::write(&config, section("acme", provider.address)).unwrap();
    let config = config.to_string_lossy();
    let args = [
        "reconcile",
        "--expired",
        "--limit",
        "1000",
        "--yes",
        "-c",
        &config,
        "-o",
        "json",
    ];
    let run = idemctl(&args).on(&url).limit(Duration::from_mins(2)).spawn();
    until("it is in the middle", async || {
        let done = "select count(*) from idempotency where status = 'done'";
        client.query_one(done, &[]).await.unwrap().get::<_, i64>(0) >= 20
    })
    .await;
    drop(client);
    server.stop().await.unwrap();
    let server = Server::start(&options, Lifetime::Tied).await.unwrap();
    let output = calm(run.wait().await);
    assert_eq!(output.code, 6, "{}", output.transcript());
    assert!(
        output.stderr.contains("connecting again"),
        "it went through a restart: {}",
        output.stderr
    );
    let json = serde_json::from_str(&output.stdout).unwrap();
    for (key, result) in results(&json) {
        let expected = match key.as_str() {
            "order-100" => "error",
            "order-200" => "waiting",
            _ => "completed",
        };
        assert_eq!(result, expected, "{key}");
    }
    let client = connect(&url).await;
    let number = async |sql: &str| client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(
        number("select count(*) from idempotency where status = 'done'").await,
        248
    );
    assert_eq!(number("select count(*) from idempotency_event").await, 248);
    assert_eq!(number(TORN).await, 0);
    server.stop().await.unwrap();
}

/// Of 250 rows one that the database refuses to change, and one that the provider cannot tell about.
async fn poisoned(client: &tokio_postgres::Client) -> Provider {
    client.batch_execute(&rows(250)).await.unwrap();
    client
        .batch_execute(
            "create function poison() returns trigger language plpgsql as $$ begin raise exception 'poison'; end $$;
             create trigger poison before update on idempotency for each row
                    when (new.key = 'order-100' and new.status = 'done') execute function poison()",
        )
        .await
        .unwrap();
    let provider = Provider::start().await;
    for i in 1..=250 {
        provider.book(&format!("order-{i}"), "succeeded");
    }
    provider.fault(Some("order-200"), Some(Fault::Garbage));
    provider
}

fn bindir() -> Option<std::path::PathBuf> {
    std::env::var_os("IDEMCTL_TEST_PG_BINDIR").map(Into::into)
}

/// The server commits, and the network goes silent before it has said so.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_found_again() {
    let f = fixture().await;
    f.stuck("order-1").await;
    f.provider.book("order-1", "succeeded");
    let db = &f.cli.db;
    // Holds the commit up until somebody gives the lock back.
    f.cli
        .execute(
            "create function hold() returns trigger language plpgsql as $$
                begin perform pg_advisory_xact_lock_shared(42); return null; end $$;
             create constraint trigger hold after insert on idempotency_event deferrable initially deferred
                    for each row execute function hold()",
        )
        .await;
    let locker = db.connect().await;
    locker
        .batch_execute("begin; select pg_advisory_xact_lock(42)")
        .await
        .unwrap();
    let proxy = Proxy::start(db.target()).await;
    let url = db.url_through(proxy.address.port());
    let args = [
        "reconcile",
        "shop-1",
        "order-1",
        "--yes",
        "-c",
        &f.config,
        "-o",
        "json",
    ];
    let run = idemctl(&args).on(&url).spawn();
    let truth = async |sql: &str| db.client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0);
    until("the commit is under way", async || {
        truth("select exists (select from pg_locks where locktype = 'advisory' and not granted
                                  and database = (select oid from pg_database where datname = current_database()))")
            .await
    })
    .await;
    proxy.hold();
    locker.batch_execute("rollback").await.unwrap();
    until("it is committed", async || {
        truth("select exists (select from idempotency_event)").await
    })
    .await;
    proxy.cut();
    proxy.release();
    let output = calm(run.wait().await);
    assert_eq!(output.code, 0, "{}", output.transcript());
    let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(super::result(&json), "completed");
    assert_eq!(f.events("order-1").await, 1);
    assert_eq!(f.cli.number(TORN).await, 0);
}

/// Killed at many points of its work: each row and its event are there, or neither is.
#[tokio::test(flavor = "multi_thread")]
async fn kill_9_leaves_both_or_neither() {
    let f = fixture().await;
    f.cli.execute(&rows(120)).await;
    for i in 1..=120 {
        f.provider.book(&format!("order-{i}"), "succeeded");
    }
    let mut killed_in_the_middle = 0;
    for round in 0..10_i64 {
        let args = [
            "reconcile",
            "--expired",
            "--limit",
            "1000",
            "--yes",
            "-c",
            &f.config,
        ];
        let run = f.cli.command(&args).spawn();
        let goal = f.cli.number("select count(*) from idempotency_event").await + 3 + round;
        until("some more are done", async || {
            f.cli.number("select count(*) from idempotency_event").await >= goal
        })
        .await;
        run.kill9().await;
        assert_eq!(f.cli.number(TORN).await, 0, "round {round}");
        let left = f
            .cli
            .number("select count(*) from idempotency where status = 'in_progress'")
            .await;
        killed_in_the_middle += i32::from(left > 0);
    }
    assert!(
        killed_in_the_middle >= 5,
        "it was too quick to be killed in the middle"
    );
    let (code, _, output) = f.reconcile(&["--expired", "--limit", "1000", "--yes"]).await;
    assert_eq!(code, 0, "{}", output.transcript());
    assert_eq!(f.cli.number("select count(*) from idempotency_event").await, 120);
    assert_eq!(f.cli.number(TORN).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_provider_does_not_stop_the_others_and_is_not_asked_for_ever() {
    let mut f = fixture().await;
    let dead = Provider::start().await;
    dead.fault(None, Some(Fault::Hang));
    let text = format!(
        "{}\n{}",
        section("acme", f.provider.address),
        section("dead", dead.address)
    );
    f.config = f
        .cli
        .config(&text.replace("timeout = \"1s\"", "timeout = \"300ms\""));
    for i in 0..40 {
        f.stuck_at(&format!("dead-{i}"), "dead", 1).await;
    }
    for i in 0..10 {
        let key = format!("good-{i}");
        f.stuck(&key).await;
        f.provider.book(&key, "succeeded");
    }
    let (code, json, output) = f.reconcile(&["--expired", "--yes"]).await;
    assert_eq!(code, 6, "{}", output.transcript());
    let results = results(&json);
    assert_eq!(results.len(), 50);
    assert!(results.iter().all(|(key, result)| {
        result
            == if key.starts_with("good") {
                "completed"
            } else {
                "waiting"
            }
    }));
    let asked = dead.questions().len();
    assert!((5..=16).contains(&asked), "{asked} questions to a dead provider");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pace_is_kept_and_an_interrupt_leaves_the_rest() {
    let f = fixture().await;
    f.cli.execute(&rows(30)).await;
    for i in 1..=30 {
        f.provider.book(&format!("order-{i}"), "succeeded");
    }
    let args = [
        "reconcile",
        "--expired",
        "--yes",
        "--rps",
        "20",
        "-c",
        &f.config,
        "-o",
        "json",
    ];
    let run = f.cli.command(&args).spawn();
    until("some are asked about", async || {
        f.provider.questions().len() >= 10
    })
    .await;
    run.signal(nix::sys::signal::Signal::SIGINT);
    let output = calm(run.wait().await);
    assert_eq!(output.code, 130, "{}", output.transcript());
    let json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(results(&json).len(), 30, "those that had no turn are listed, too");
    let questions = f.provider.questions();
    let took = questions.last().unwrap().0 - questions[0].0;
    let most = 1.0 + took.as_secs_f64() * 20.0;
    #[expect(clippy::cast_precision_loss, reason = "a small number")]
    let asked = questions.len() as f64;
    // A question may be held up on its way, so that those after it come closer.
    assert!(asked <= most + 2.0, "{asked} questions in {took:?}");
    assert!(
        f.cli
            .number("select count(*) from idempotency where status = 'in_progress'")
            .await
            > 0
    );
    assert_eq!(f.cli.number(TORN).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_the_provider_cannot_answer_do_not_hide_those_behind_them() {
    let f = fixture().await;
    f.cli.execute(&rows(40)).await;
    for i in 1..=40 {
        f.provider.book(&format!("order-{i}"), "succeeded");
    }
    // The five that are oldest, one after the other.
    for i in 1..=5 {
        f.cli
            .execute(&format!(
                "update idempotency set locked_until = now() - interval '1 day' where key = 'order-{i}'"
            ))
            .await;
        f.provider
            .fault(Some(&format!("order-{i}")), Some(Fault::Status(500)));
    }
    let (code, json, output) = f.reconcile(&["--expired", "--yes", "--concurrency", "1"]).await;
    assert_eq!(code, 6, "{}", output.transcript());
    let done = results(&json)
        .iter()
        .filter(|(_, result)| result == "completed")
        .count();
    assert_eq!(done, 35, "{}", output.transcript());
}

/// The database goes away and does not come back: what was done is told, and each of the others is named.
#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_listed_when_the_database_stays_away() {
    let f = fixture().await;
    f.cli.execute(&rows(30)).await;
    for i in 1..=30 {
        f.provider.book(&format!("order-{i}"), "succeeded");
    }
    let db = &f.cli.db;
    let proxy = Proxy::start(db.target()).await;
    let url = db.url_through(proxy.address.port());
    let args = [
        "reconcile",
        "--expired",
        "--yes",
        "--patience",
        "300ms",
        "-c",
        &f.config,
        "-o",
        "json",
    ];
    // Slows the writing down, so that the cut comes in the middle.
    proxy.delay(Duration::from_millis(20));
    let run = idemctl(&args).on(&url).spawn();
    until("it is in the middle", async || {
        f.cli.number("select count(*) from idempotency_event").await >= 3
    })
    .await;
    proxy.refuse(true);
    proxy.cut();
    let output = calm(run.wait().await);
    assert_eq!(output.code, 7, "{}", output.transcript());
    let json = serde_json::from_str(&output.stdout).unwrap();
    let results = results(&json);
    assert_eq!(results.len(), 30);
    let done = f.cli.number("select count(*) from idempotency_event").await;
    let told = |word: &str| i64::try_from(results.iter().filter(|(_, r)| r == word).count()).unwrap();
    assert!(told("completed") <= done && done <= told("completed") + told("unknown"));
    assert!(told("waiting") > 0, "{}", output.transcript());
    assert_eq!(f.cli.number(TORN).await, 0);
}
