//! Holders that die, stand still, or are robbed: somebody else takes over, and never before the term is over.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use idemctl::error::Error;
use idemctl::janitor::Job;
use idemctl::janitor::turn::{Outcome, TERM, Taken, Turn};
use nix::sys::signal::Signal;

use super::{Running, clock, config};
use crate::purge::{Fixture, fixture};
use crate::support::{PgbouncerOptions, idemctl, pgbouncer, temp_dir, until};

/// Every batch takes this long.
async fn slow(f: &Fixture, seconds: &str) {
    f.execute(&format!(
        "create function slow() returns trigger language plpgsql as
         $$ begin perform pg_sleep({seconds}); return null; end $$;
         create trigger slow after delete on idempotency for each statement execute function slow()"
    ))
    .await;
}

/// Writes down, by the database's clock, each time that the job changes hands.
pub(super) async fn audited(f: &Fixture) {
    f.execute(
        "create table taken (job text, at timestamptz, was_held_until timestamptz, holder text, scheduled_at timestamptz,
                             old_scheduled_at timestamptz, outcome text);
         create function audit() returns trigger language plpgsql as $$
         begin
             if new.token is distinct from old.token then
                 insert into taken values (new.job, clock_timestamp(), old.held_until, new.holder, new.last_scheduled_at,
                                           old.last_scheduled_at, old.last_outcome);
             end if;
             return null;
         end $$;
         create trigger audit after update on idempotency_job for each row execute function audit()",
    )
    .await;
}

/// How often the job was taken from a holder whose term was not over.
pub(super) const TOO_EARLY: &str = "select count(*) from taken where was_held_until > at";

struct File {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

fn file(text: &str) -> File {
    let dir = temp_dir();
    let path = dir.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    File { path, _dir: dir }
}

async fn take(f: &Fixture) -> Turn {
    match Turn::take(&f.conn, &f.store, Job::Purge).await.unwrap() {
        Taken::Ours(turn) => turn,
        Taken::Held(held) => panic!("{held}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_want_a_job_one_has_it() {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let f = fixture().await;
        f.execute(&format!(
            "alter database \"{}\" set default_transaction_isolation = '{isolation}'",
            f.db.name
        ))
        .await;
        let wanting: Vec<_> = (0..12)
            .map(|_| {
                let settings = f.db.settings();
                tokio::spawn(async move {
                    let conn = idemctl::connect::Connection::open(&settings).await.unwrap();
                    let store = idemctl::store::Store::open(&conn, None).await.unwrap();
                    match Turn::take(&conn, &store, Job::Expired).await {
                        Ok(Taken::Ours(turn)) => Some(turn),
                        Ok(Taken::Held(_)) | Err(Error::Contended { .. }) => None,
                        Err(error) => panic!("{isolation}: {error}"),
                    }
                })
            })
            .collect();
        let mut ours = Vec::new();
        for task in wanting {
            ours.extend(task.await.unwrap());
        }
        assert_eq!(ours.len(), 1, "{isolation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_that_takes_a_job_repeats_what_was_seen() {
    let f = fixture().await;
    let (seen, other) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    f.execute("insert into idempotency_job (job) values ('purge')")
        .await;
    let statement = f.store.statements().find(|sql| sql.name == "job_take").unwrap();
    for (token, held_until, taken) in [
        (Some(seen), "null", 1),
        (Some(seen), "now()", 1),
        (Some(seen), "'-infinity'", 1),
        // The holder that seemed dead renewed its term.
        (Some(seen), "now() + interval '1 s'", 0),
        (Some(seen), "now() + interval '10 min'", 0),
        // Nobody writes such a term.
        (Some(seen), "now() + interval '12 min'", 1),
        (Some(seen), "'infinity'", 1),
        // Somebody else ran the job meanwhile, or died in it.
        (Some(other), "null", 0),
        (Some(other), "now()", 0),
        (None, "null", 0),
    ] {
        f.db.client
            .execute(
                &format!("update idempotency_job set held_until = {held_until}, token = $1"),
                &[&token],
            )
            .await
            .unwrap();
        let at: Option<idemctl::time::Timestamp> = None;
        let affected =
            f.db.client
                .execute(
                    &*statement.text,
                    &[
                        &"purge",
                        &"me",
                        &uuid::Uuid::new_v4(),
                        &60.0_f64,
                        &at,
                        &Some(seen),
                        &660.0_f64,
                    ],
                )
                .await
                .unwrap();
        assert_eq!(affected, taken, "{token:?} {held_until}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_between_changes_nothing() {
    let _private = crate::support::privately("a pooler stands before its server");
    let f = fixture().await;
    f.done(10, 48).await;
    let pooler = pgbouncer(&f.db, PgbouncerOptions::default()).await;
    let (clock, seconds) = clock();
    let daily = || config(pooler.settings(), Some("0 3 * * *"), None);
    let mut janitor = Running::start(daily(), clock.clone());
    janitor.wait_for("scheduled purge 2026-11-29").await;
    seconds.fetch_add(2, std::sync::atomic::Ordering::SeqCst);
    janitor.wait_for("finished purge deleted 10 rows").await;
    janitor.wait_for("scheduled purge 2026-11-30").await;
    let mut second = Running::start(daily(), clock);
    second.wait_for("scheduled purge 2026-11-30").await;
    assert_eq!(second.count("finished"), 0);
    janitor.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_taken_over_ends_nothing() {
    let f = fixture().await;
    let first = take(&f).await;
    assert!(matches!(
        Turn::take(&f.conn, &f.store, Job::Purge).await.unwrap(),
        Taken::Held(held) if held.left <= TERM && held.left > TERM / 2
    ));
    f.execute("update idempotency_job set held_until = now()").await;
    let second = take(&f).await;
    assert!(
        !first
            .finish(&f.conn, &f.store, Outcome::Ok, "late")
            .await
            .unwrap()
    );
    assert!(
        second
            .finish(&f.conn, &f.store, Outcome::Ok, "ours")
            .await
            .unwrap()
    );
    assert!(
        !first
            .finish(&f.conn, &f.store, Outcome::Ok, "late")
            .await
            .unwrap()
    );
    let ours = "select count(*) from idempotency_job where last_summary = 'ours' and held_until is null";
    assert_eq!(f.number(ours).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holders_run_is_finished_when_its_term_is_over() {
    let f = fixture().await;
    f.done(10, 48).await;
    audited(&f).await;
    let dead = take(&f).await;
    drop(dead);
    f.execute("update idempotency_job set held_until = now() + interval '3 s', holder = 'dead' || chr(27) || ':1:x'")
        .await;
    let (clock, _) = clock();
    // Its next time is far away: it is the dead one's run that is made up for.
    let mut janitor = Running::start(config(f.db.settings(), Some("0 0 1 1 *"), None), clock);
    let held = janitor.wait_for("held purge by dead").await;
    assert!(held.contains("until 20"), "{held}");
    janitor.wait_for("finished purge deleted 10 rows").await;
    janitor.wait_for("scheduled purge 2027-01-01").await;
    assert_eq!(janitor.count("held"), 1, "told once");
    janitor.stop().await;
    assert_eq!(f.number(TOO_EARLY).await, 0);
    assert_eq!(f.number("select count(*) from taken").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_begun_and_dies_while_others_wait_for_their_time_is_seen() {
    let f = fixture().await;
    f.done(10, 48).await;
    let (clock, _) = clock();
    let mut janitor = Running::start(config(f.db.settings(), Some("0 0 1 1 *"), None), clock);
    janitor.wait_for("scheduled purge 2027-01-01").await;
    drop(take(&f).await);
    // It looks every half minute.
    janitor.wait_for("held purge by").await;
    assert_eq!(janitor.count("scheduled"), 1, "the same time is told once");
    f.execute("update idempotency_job set held_until = now()").await;
    janitor.wait_for("finished purge deleted 10 rows").await;
    janitor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_stopped_hands_its_run_on() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(400, 48).await;
    slow(&f, "0.1").await;
    audited(&f).await;
    let (clock, seconds) = clock();
    let small = || {
        let mut config = config(f.db.settings(), Some("0 3 * * *"), None);
        config.purge.as_mut().unwrap().request.batch_size = 10;
        config
    };
    let mut first = Running::start(small(), clock.clone());
    first.wait_for("scheduled").await;
    seconds.fetch_add(2, std::sync::atomic::Ordering::SeqCst);
    first.wait_for("started").await;
    let mut second = Running::start(small(), clock);
    second.wait_for("held purge").await;
    first.stop().await;
    second.wait_for("finished purge").await;
    second.stop().await;
    assert_eq!(f.number("select count(*) from idempotency").await, 0);
    assert_eq!(f.logged().await, 400);
    assert_eq!(f.number(TOO_EARLY).await, 0);
    let handed_on = "select count(*) from taken where outcome = 'handed_on'";
    assert_eq!(f.number(handed_on).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_keeps_its_job_and_stops_when_it_is_robbed() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(5_000, 48).await;
    slow(&f, "0.2").await;
    let (clock, seconds) = clock();
    let mut small = config(f.db.settings(), Some("0 3 * * *"), None);
    small.purge.as_mut().unwrap().request.batch_size = 16;
    let mut janitor = Running::start(small, clock);
    janitor.wait_for("scheduled").await;
    seconds.fetch_add(2, std::sync::atomic::Ordering::SeqCst);
    janitor.wait_for("started").await;
    let renewed = "select count(*) from idempotency_job where held_until > last_started_at + interval '70 s'";
    until("the term is renewed", async || f.number(renewed).await == 1).await;
    f.execute(
        "update idempotency_job set token = gen_random_uuid(), holder = 'thief', held_until = now() + interval '60 s'",
    )
    .await;
    let how = janitor.wait_for("lost purge").await;
    assert!(how.contains("somebody else has taken it"), "{how}");
    janitor.wait_for("finished purge deleted").await;
    janitor.wait_for("held purge by thief").await;
    janitor.stop().await;
    assert!(
        f.number("select count(*) from idempotency").await > 1_000,
        "it stopped"
    );
    let thief = "select count(*) from idempotency_job where holder = 'thief' and held_until is not null";
    assert_eq!(f.number(thief).await, 1, "the new holder's row is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_the_leader_costs_a_term_and_no_more() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(100_000, 48).await;
    slow(&f, "0.2").await;
    audited(&f).await;
    let file = file(
        "[janitor.purge]\nschedule = \"* * * * * *\"\nbatch_size = 20\n[janitor.expired]\nschedule = \"@yearly\"\n",
    );
    let args = ["janitor", "-c", file.path.to_str().unwrap()];
    let holder = async || -> String {
        let row = f.db.client.query_opt(
            "select holder from idempotency_job where job = 'purge' and held_until > now()",
            &[],
        );
        row.await.unwrap().map(|row| row.get(0)).unwrap_or_default()
    };
    let (first, second) = (
        idemctl(&args).on(&f.db.url).spawn(),
        idemctl(&args).on(&f.db.url).spawn(),
    );
    until("one of them leads", async || !holder().await.is_empty()).await;
    let led = holder().await;
    let (leader, mut other) = if led.contains(&format!(":{}:", first.pid())) {
        (first, second)
    } else {
        (second, first)
    };
    assert!(led.contains(&format!(":{}:", leader.pid())), "{led}");
    other.wait_for_line("somebody else runs it").await;
    let killed = Instant::now();
    leader.kill9().await;
    let led_by_other = format!(":{}:", other.pid());
    // How soon beyond the term is a matter of how busy the machine is.
    let deadline = TERM + Duration::from_mins(1);
    while !holder().await.contains(&led_by_other) {
        assert!(killed.elapsed() < deadline, "nobody took over");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let after: f64 =
        f.db.client
            .query_one(
                "select extract(epoch from max(at) - max(was_held_until))::float8 from taken",
                &[],
            )
            .await
            .unwrap()
            .get(0);
    println!(
        "taken over {after:.3} s after the term's end, {:?} after kill -9",
        killed.elapsed()
    );
    assert!((0.0..60.0).contains(&after), "{after}");
    assert_eq!(f.number(TOO_EARLY).await, 0);
    other.signal(Signal::SIGTERM);
    let output = other.wait().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert_eq!(
        output.stderr.matches("somebody else runs it").count(),
        1,
        "{}",
        output.transcript()
    );
    let gone = 100_000 - f.number("select count(*) from idempotency").await;
    assert_eq!(f.logged().await, gone, "each row was counted once");
}
