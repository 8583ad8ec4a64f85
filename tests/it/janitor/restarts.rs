//! What the database remembers of a job's last run: daemons that come and go, downtime, and purges of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use idemctl::janitor::clock::Clock;
use idemctl::janitor::run_once;
use idemctl::janitor::turn::{Outcome, Taken, Turn};
use idemctl::janitor::{Config, Job};
use idemctl::stop::Stop;

use super::{Running, clock, config};
use crate::purge::{Fixture, fixture};
use crate::support::idemctl;

/// Time passes: for the fake clock of the process, and for the ages that the database tells.
async fn pass(f: &Fixture, clock: &AtomicI64, seconds: i64) {
    clock.fetch_add(seconds, Ordering::SeqCst);
    f.execute(&format!(
        "update idempotency_job set known_since = known_since - interval '{seconds} s',
                last_started_at = last_started_at - interval '{seconds} s',
                last_finished_at = last_finished_at - interval '{seconds} s',
                held_until = held_until - interval '{seconds} s'"
    ))
    .await;
}

/// A daemon that lives until it waits for its next time; what it told of.
async fn short_life(config: Config, clock: &Clock) -> Vec<String> {
    let mut janitor = Running::start(config, clock.clone());
    janitor.wait_for("scheduled purge").await;
    let seen = Arc::clone(&janitor.seen);
    janitor.stop().await;
    let seen = seen.lock().unwrap();
    seen.clone()
}

fn runs(seen: &[String]) -> usize {
    seen.iter().filter(|event| event.contains("finished")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_restarted_every_hour_runs_the_daily_job_once_a_day() {
    let f = fixture().await;
    let (clock, seconds) = clock();
    // 2026-11-29T02:59:59Z, and the same minute of each hour of three days.
    let mut ran_at = Vec::new();
    for hour in 0..72 {
        let seen = short_life(config(f.db.settings(), Some("0 3 * * *"), None), &clock).await;
        if runs(&seen) > 0 {
            assert_eq!(runs(&seen), 1, "{seen:?}");
            ran_at.push(hour);
        }
        pass(&f, &seconds, 3_600).await;
    }
    // The first start is a second before three, the second one 59 minutes after.
    assert_eq!(ran_at, [1, 25, 49]);
}

#[tokio::test(flavor = "multi_thread")]
async fn downtime_is_made_up_for_by_one_run_and_a_new_job_waits_for_its_time() {
    let f = fixture().await;
    f.done(10, 48).await;
    let (clock, seconds) = clock();
    let every_ten = || config(f.db.settings(), Some("*/10 * * * *"), None);
    let seen = short_life(every_ten(), &clock).await;
    assert_eq!(
        seen,
        ["scheduled purge 2026-11-29T03:00:00+00:00"],
        "a new job waits"
    );
    assert_eq!(f.number("select count(*) from idempotency_job").await, 1);
    for days in [1, 5, 4_000] {
        pass(&f, &seconds, days * 86_400).await;
        let seen = short_life(every_ten(), &clock).await;
        assert_eq!(runs(&seen), 1, "{days} days away: {seen:?}");
        let seen = short_life(every_ten(), &clock).await;
        assert_eq!(runs(&seen), 0, "and no more: {seen:?}");
    }
    assert_eq!(f.number("select count(*) from idempotency").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_by_hand_or_timer_or_once_is_the_run_of_its_time() {
    let f = fixture().await;
    let daily = || config(f.db.settings(), Some("0 3 * * *"), None);
    for (counts, command) in [
        (true, &["purge"][..]),
        (true, &["purge", "--max-duration", "50m", "-o", "json"]),
        (true, &["janitor", "--once"]),
        (false, &["purge", "--dry-run"]),
        (false, &["purge", "--ttl", "48h"]),
    ] {
        f.execute("delete from idempotency_job").await;
        let (clock, seconds) = clock();
        let mut janitor = Running::start(daily(), clock);
        janitor.wait_for("scheduled purge 2026-11-29T03:00").await;
        f.done(10, 30).await;
        idemctl(command).on(&f.db.url).run().await.ok();
        // Half a minute after three, by which time the command is over.
        seconds.fetch_add(30, Ordering::SeqCst);
        janitor.wait_for("scheduled purge 2026-11-30T03:00").await;
        assert_eq!(
            janitor.count("finished purge"),
            usize::from(!counts),
            "{command:?}"
        );
        janitor.stop().await;
        let ours = "select count(*) from idempotency_job where job = 'purge' and held_until is null
                    and last_outcome = 'ok' and last_summary like 'deleted 10 rows%' and last_success_at is not null";
        assert_eq!(f.number(ours).await, 1, "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_ended_badly_or_was_stopped_by_hand_waits_for_the_next_time() {
    let f = fixture().await;
    let (clock, _) = clock();
    for (outcome, again) in [
        (Outcome::Ok, false),
        (Outcome::Partial, false),
        (Outcome::Failed, false),
        (Outcome::Interrupted, false),
        (Outcome::HandedOn, true),
    ] {
        let Taken::Ours(turn) = Turn::take(&f.conn, &f.store, Job::Purge).await.unwrap() else {
            panic!("nobody else is there")
        };
        assert!(turn.finish(&f.conn, &f.store, outcome, "a\nb\0c").await.unwrap());
        assert!(!turn.finish(&f.conn, &f.store, outcome, "twice").await.unwrap());
        let seen = short_life(config(f.db.settings(), Some("0 3 * * *"), None), &clock).await;
        assert_eq!(runs(&seen), usize::from(again), "{outcome:?}: {seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn once_leaves_a_job_to_whoever_runs_it_and_purge_does_not() {
    let f = fixture().await;
    f.done(10, 48).await;
    let Taken::Ours(turn) = Turn::take(&f.conn, &f.store, Job::Purge).await.unwrap() else {
        panic!("nobody else is there")
    };
    let both = config(f.db.settings(), Some("@daily"), Some("@hourly"));
    let round = run_once(&both, &Stop::never()).await.unwrap();
    assert_eq!(round.held.len(), 1, "{round:?}");
    assert_eq!((round.held[0].job, round.done.len()), (Job::Purge, 1));
    assert_eq!(f.number("select count(*) from idempotency").await, 10);

    let once = idemctl(&["janitor", "--once", "-o", "json"])
        .on(&f.db.url)
        .run()
        .await
        .ok();
    assert!(once.contains("left to another: "), "{once}");
    assert_eq!(f.number("select count(*) from idempotency").await, 10);

    let purge = idemctl(&["purge"]).on(&f.db.url).run().await;
    assert_eq!(purge.code, 0, "{}", purge.transcript());
    assert!(
        purge.stderr.contains("runs the job purge since"),
        "{}",
        purge.stderr
    );
    assert!(purge.stdout.contains("deleted  10 rows"), "{}", purge.stdout);
    assert!(
        turn.finish(&f.conn, &f.store, Outcome::Ok, "ours").await.unwrap(),
        "it took nothing away"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_table_or_the_privilege_it_says_what_to_do() {
    let _private = crate::support::privately("it makes roles");
    let f = fixture().await;
    let role = format!("old_{}", f.db.name);
    f.execute(&format!(
        "create role {role} login; grant usage on schema public to {role};
         grant select, update, delete on idempotency to {role}; grant select, insert, delete on idempotency_event to {role}"
    ))
    .await;
    let url = f.db.url.replacen("idemctl@", &format!("{role}@"), 1);
    let once = idemctl(&["janitor", "--once"]).on(&url).run().await;
    assert_eq!(once.code, 1, "{}", once.transcript());
    for part in ["idempotency_job", "permission denied", "migrate --roles"] {
        assert!(once.stderr.contains(part), "{}", once.transcript());
    }
    // What somebody wants now is done all the same.
    f.done(10, 48).await;
    let purge = idemctl(&["purge"]).on(&url).run().await;
    assert_eq!(purge.code, 0, "{}", purge.transcript());
    assert!(
        purge.stdout.contains("deleted  10 rows") && purge.stderr.contains("migrate --roles"),
        "{}",
        purge.transcript()
    );
    f.execute("drop table idempotency_job; delete from idempotency_migration where version = 6")
        .await;
    for command in [&["purge"][..], &["janitor", "--once"]] {
        let old = idemctl(command).on(&f.db.url).run().await;
        assert_eq!(old.code, 9, "{}", old.transcript());
        assert!(
            old.stderr.contains("idempotency_job") && old.stderr.contains("idemctl migrate"),
            "{}",
            old.transcript()
        );
    }
    idemctl(f.db.migrate_command()).on(&f.db.url).run().await.ok();
    idemctl(&["janitor", "--once"]).on(&f.db.url).run().await.ok();
}
