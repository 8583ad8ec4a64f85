//! Where a purge stops.

use std::time::Duration;

use idemctl::error::Error;
use idemctl::ops::purge::{self, Stopped};
use idemctl::stop::{Stop, channel};

use super::{fixture, request};

#[tokio::test(flavor = "multi_thread")]
async fn max_rows_is_exact() {
    let mut f = fixture().await;
    f.done(500, 48).await;
    for (max, batch, left) in [
        (0, 100, 500),
        (1, 100, 499),
        (150, 100, 349),
        (100, 100, 249),
        (400, 7, 0),
    ] {
        let mut wanted = request();
        (wanted.max_rows, wanted.batch_size) = (Some(max), batch);
        let report = f.purge(&wanted).await;
        let now = f.number("select count(*) from idempotency").await;
        assert_eq!(now, left, "max_rows {max} in batches of {batch}");
        let stopped = if left == 0 {
            Stopped::Done
        } else {
            Stopped::MaxRows
        };
        assert_eq!(report.stopped, stopped);
        assert_eq!(report.backlog.unwrap().rows, u64::try_from(left).unwrap());
    }
    assert_eq!(f.logged().await, 500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_soft_stop_ends_it_between_two_batches() {
    let mut f = fixture().await;
    f.done(100, 48).await;
    let (stopper, stop) = channel();
    let mut wanted = request();
    wanted.batch_size = 10;
    // Without the stop it would sleep for an hour.
    wanted.pause = Duration::from_hours(1);
    let mut seen = Vec::new();
    let mut progress = |p: &purge::Progress| {
        seen.push(p.deleted);
        stopper.soft();
    };
    let report = purge::run(&mut f.conn, &f.store, &wanted, &mut progress, &stop)
        .await
        .unwrap();
    assert_eq!(
        (report.deleted, report.batches, report.stopped),
        (10, 1, Stopped::Interrupted)
    );
    assert_eq!(seen, [10]);
    assert_eq!(f.logged().await, 10);
    assert!(!f.conn.is_closed(), "nothing was cut off");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_stop_gives_the_batch_up() {
    let mut f = fixture().await;
    let activity = f.db.activity();
    f.done(20, 48).await;
    let locker = f.db.connect().await;
    locker
        .batch_execute("begin; lock table idempotency in share mode")
        .await
        .unwrap();
    let (stopper, stop) = channel();
    let watcher = f.db.connect().await;
    let wanted = request();
    let mut silent = |_: &purge::Progress| {};
    let purge = purge::run(&mut f.conn, &f.store, &wanted, &mut silent, &stop);
    let hard = async {
        let sql = format!(
            "select count(*) from {activity} where wait_event_type = 'Lock' and query ilike '%delete from%'
                and datname = current_database()"
        );
        while watcher.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stopper.hard();
    };
    let (report, ()) = tokio::join!(purge, hard);
    let report = report.unwrap();
    assert_eq!((report.deleted, report.stopped), (0, Stopped::Interrupted));
    locker.batch_execute("rollback").await.unwrap();
    // The statement does not go on without us.
    while watcher
        .query_one("select count(*) from pg_stat_activity where query like '%purge_range%' and datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()", &[])
        .await
        .unwrap()
        .get::<_, i64>(0)
        > 0
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(f.number("select count(*) from idempotency").await, 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn max_duration_starts_no_further_batch() {
    let mut f = fixture().await;
    f.done(100, 48).await;
    let mut wanted = request();
    (wanted.batch_size, wanted.max_duration) = (10, Some(Duration::ZERO));
    let report = f.purge(&wanted).await;
    assert_eq!((report.deleted, report.stopped), (0, Stopped::MaxDuration));
    (wanted.max_duration, wanted.pause) = (Some(Duration::from_millis(200)), Duration::from_hours(1));
    let report = f.purge(&wanted).await;
    assert_eq!(
        (report.deleted, report.stopped),
        (10, Stopped::MaxDuration),
        "the pause ends with the time"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_rule_sends_nothing() {
    let mut f = fixture().await;
    f.done(1, 48).await;
    let mut wanted = request();
    wanted.retention.done = Duration::from_secs(59);
    let failure = purge::run(&mut f.conn, &f.store, &wanted, &mut |_| {}, &Stop::never())
        .await
        .unwrap_err();
    assert!(
        matches!(
            failure.cause,
            Error::Invalid {
                field: "retention.done",
                ..
            }
        ),
        "{failure}"
    );
    assert_eq!(f.number("select count(*) from idempotency").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_before_an_error_is_told() {
    let mut f = fixture().await;
    f.done(100, 48).await;
    let mut wanted = request();
    wanted.batch_size = 10;
    let pid = f.conn.facts().backend;
    let admin = f.db.connect().await;
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    wanted.pause = Duration::from_millis(300);
    let mut progress = |p: &purge::Progress| send.send(p.deleted).unwrap();
    let stop = Stop::never();
    let purge = purge::run(&mut f.conn, &f.store, &wanted, &mut progress, &stop);
    let kill = async {
        while receive.recv().await.unwrap() < 30 {}
        admin
            .execute("select pg_terminate_backend($1::int4)", &[&pid])
            .await
            .unwrap();
    };
    let (result, ()) = tokio::join!(purge, kill);
    let failure = result.unwrap_err();
    assert!(failure.cause.needs_reconnect(), "{failure}");
    assert_eq!(
        (failure.report.deleted, failure.report.unknown),
        (30, 0),
        "{failure}"
    );
    assert!(
        failure.to_string().contains("deleted 30 rows in 3 batches"),
        "{failure}"
    );
    assert_eq!(f.number("select count(*) from idempotency").await, 70);
    assert_eq!(f.logged().await, 30);
}
