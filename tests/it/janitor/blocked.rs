//! What keeps a run from beginning, and what a run meanwhile must not do.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idemctl::janitor::Job;
use idemctl::janitor::clock::Clock;
use idemctl::janitor::turn::{Taken, Turn, WhenLost};
use idemctl::pulse::Pulse;
use idemctl::stop::Stop;

use super::{Running, clock, config};
use crate::purge::fixture;
use crate::support::{settings, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_comes_in_mid_run_is_the_next_runs_database_too() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let (old, new) = (fixture().await, fixture().await);
    // Some four seconds of work: the new configuration comes at once.
    old.done(40, 48).await;
    old.execute(
        "create function slow() returns trigger language plpgsql as
         $$ begin perform pg_sleep(0.1); return null; end $$;
         create trigger slow after delete on idempotency for each row execute function slow()",
    )
    .await;
    let (clock, seconds) = clock();
    let daily = |settings| {
        let mut config = config(settings, Some("0 3 * * *"), None);
        config.purge.as_mut().unwrap().request.batch_size = 4;
        config
    };
    let mut janitor = Running::start(daily(old.db.settings()), clock);
    janitor.wait_for("scheduled purge 2026-11-29").await;
    seconds.fetch_add(2, Ordering::SeqCst);
    janitor.wait_for("started").await;
    janitor.config.send_replace(Arc::new(daily(new.db.settings())));
    assert_eq!(janitor.count("finished"), 0, "the run is under way");
    janitor.wait_for("finished purge deleted 40 rows").await;
    old.done(7, 48).await;
    new.done(10, 48).await;
    janitor.wait_for("scheduled purge 2026-11-30").await;
    seconds.fetch_add(86_400, Ordering::SeqCst);
    let finished = janitor.wait_for("finished purge").await;
    assert!(finished.contains("deleted 10 rows"), "{finished}");
    janitor.stop().await;
    assert_eq!(old.number("select count(*) from idempotency").await, 7);
    assert_eq!(new.number("select count(*) from idempotency").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_or_a_grant_that_is_missing_delays_a_run_and_skips_none() {
    let _private = crate::support::privately("it makes roles");
    let f = fixture().await;
    f.done(10, 48).await;
    let role = format!("janitor_{}", f.db.name);
    f.execute(&format!(
        "create role {role} login; grant usage on schema public to {role};
         grant select, update, delete on idempotency to {role}; grant select, insert, delete on idempotency_event to {role};
         grant select, insert, update on idempotency_job to {role}"
    ))
    .await;
    let url = f.db.url.replacen("idemctl@", &format!("{role}@"), 1);
    let (clock, seconds) = clock();
    let mut daily = config(settings(&url), Some("0 3 * * *"), None);
    daily.connection.timeouts.lock = Duration::from_millis(100);
    let mut janitor = Running::start(daily, clock);
    janitor.wait_for("scheduled purge 2026-11-29").await;
    f.execute("begin; lock table idempotency_job in access exclusive mode")
        .await;
    seconds.fetch_add(2, Ordering::SeqCst);
    let why = janitor.wait_for("not run purge").await;
    assert!(why.contains("55P03"), "{why}");
    f.execute("rollback").await;
    // The clock stands still: its next time is tomorrow, so this is the run that was due.
    janitor.wait_for("finished purge deleted 10 rows").await;
    janitor.wait_for("scheduled purge 2026-11-30").await;

    f.done(10, 48).await;
    f.execute(&format!("revoke select on idempotency_job from {role}"))
        .await;
    seconds.fetch_add(86_400, Ordering::SeqCst);
    let why = janitor.wait_for("not run purge").await;
    assert!(why.contains("migrate --roles"), "{why}");
    f.execute(&format!("grant select on idempotency_job to {role}"))
        .await;
    janitor.wait_for("finished purge deleted 10 rows").await;
    janitor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_that_nobody_can_have_written_keeps_no_job() {
    let f = fixture().await;
    f.done(10, 48).await;
    f.execute(
        "insert into idempotency_job (job, holder, token, held_until, last_started_at)
         values ('purge', 'nobody', gen_random_uuid(), 'infinity', now())",
    )
    .await;
    let mut janitor = Running::start(config(f.db.settings(), Some("0 0 1 1 *"), None), Clock::system());
    janitor.wait_for("finished purge deleted 10 rows").await;
    assert_eq!(janitor.count("held"), 0);
    janitor.stop().await;
}

/// In a minute: when it was not renewed for a whole term, it is lost.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_hangs_does_not_renew_its_term() {
    let f = fixture().await;
    let Taken::Ours(turn) = Turn::take(&f.conn, &f.store, Job::Purge).await.unwrap() else {
        panic!("nobody else is there")
    };
    let pulse = Pulse::default();
    pulse.expect_within(Duration::ZERO);
    until("a sign is overdue", async || pulse.overdue().is_some()).await;
    let turn = turn.watched(pulse);
    let (settings, stop) = (f.db.settings(), Stop::never());
    let hangs = |stop: Stop| async move { stop.soft().await };
    let kept = turn.keep(&settings, &stop, WhenLost::Stop, hangs);
    let ((), lost) = tokio::time::timeout(Duration::from_secs(90), kept)
        .await
        .expect("the term is not renewed");
    assert!(lost.unwrap().contains("makes no progress"));
    let over = "select count(*) from idempotency_job where held_until <= now()";
    assert_eq!(f.number(over).await, 1);
}
