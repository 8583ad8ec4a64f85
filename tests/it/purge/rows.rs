//! Which rows go and which stay.

use std::time::Duration;

use idemctl::ops::purge::{Retention, Stopped};
use tokio::task::JoinSet;

use super::{fixture, hours, request};
use crate::support::settings;

/// Rows around the edge of 24 hours: key, status, age at creation, since completion, since the lease's end.
const EDGES: &str = "
    insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at, locked_until)
    select 'c', key, '', status, now() - created::interval, now() - completed::interval, now() - leased::interval
      from (values
        ('done-over', 'done', '24h 1s', '24h 1s', '24h'),
        ('done-under', 'done', '24h 1s', '23h 59m', '24h'),
        ('done-late', 'done', '90 days', '1 minute', '90 days'),
        ('failed-over', 'failed', '49h', '48h 1s', '49h'),
        ('failed-under', 'failed', '49h', '47h 59m', '49h'),
        ('old-over', 'done', '24h 1s', null, '24h 1s'),
        ('old-leased-late', 'done', '30h', null, '23h 59m'),
        ('old-lease-first', 'done', '23h 59m', null, '30h'),
        ('old-failed', 'failed', '30h', null, '30h'),
        ('running', 'in_progress', '90 days', null, '-1h'),
        ('stuck', 'in_progress', '90 days', null, '89 days'),
        ('stuck-with-completion', 'in_progress', '90 days', '90 days', '89 days'),
        ('odd', 'cancelled', '90 days', '90 days', '90 days')
      ) rows (key, status, created, completed, leased)";

#[tokio::test(flavor = "multi_thread")]
async fn the_time_counts_from_completion_and_only_terminal_rows_go() {
    let mut f = fixture().await;
    f.execute(EDGES).await;
    let mut wanted = request();
    wanted.retention = Retention {
        done: hours(24),
        failed: hours(48),
        events: None,
    };
    wanted.dry_run = true;
    let tried = f.purge(&wanted).await;
    assert_eq!((tried.deleted, tried.dry_run), (3, true));
    assert_eq!(f.number("select count(*) from idempotency").await, 13);
    assert_eq!(f.logged().await, 0);
    assert_eq!(
        tried.backlog.unwrap().rows,
        3,
        "the backlog is what a purge would delete"
    );
    wanted.dry_run = false;
    let report = f.purge(&wanted).await;
    assert_eq!(
        (report.deleted, report.stopped, report.skipped),
        (3, Stopped::Done, 0)
    );
    assert_eq!(
        f.keys().await,
        [
            "done-late",
            "done-under",
            "failed-under",
            "odd",
            "old-failed",
            "old-lease-first",
            "old-leased-late",
            "running",
            "stuck",
            "stuck-with-completion"
        ]
    );
    assert_eq!(f.logged().await, 3);
    let backlog = report.backlog.unwrap();
    assert_eq!((backlog.rows, backlog.capped), (0, false));
    assert!(report.oldest_kept.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_session_time_zone_moves_the_edge() {
    for zone in ["Pacific/Kiritimati", "Etc/GMT+12", "Europe/Berlin"] {
        let mut f = fixture().await;
        f.execute(EDGES).await;
        let alter = format!(
            "alter role current_user in database {} set timezone = '{zone}'",
            f.db.name
        );
        f.execute(&alter).await;
        f.conn = idemctl::connect::Connection::open(&settings(&f.db.url))
            .await
            .unwrap();
        let mut wanted = request();
        wanted.retention.failed = hours(48);
        assert_eq!(f.purge(&wanted).await.deleted, 3, "{zone}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pile_of_equal_times_is_cut_by_keys() {
    let mut f = fixture().await;
    // Three and a half batches at one instant, with others before, among and after them that stay.
    f.execute(
        "insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at, locked_until)
         select 'shop-' || i % 3, 'k' || i, '', case when i % 10 = 0 then 'in_progress' else 'done' end, at, at, at
           from generate_series(1, 350) i, (select now() - interval '2 days' as at) t;
         insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at, locked_until)
         select 'shop-1', 'x' || i, '', 'done', at, at, at
           from generate_series(-30, 30) i, lateral (select now() - interval '2 days' + i * interval '1 us' as at) t
          where i <> 0;
         insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at, locked_until)
         select 'shop-1', 'eternal' || i, '', 'done', '-infinity', '-infinity', '-infinity' from generate_series(1, 250) i",
    )
    .await;
    let mut wanted = request();
    wanted.batch_size = 100;
    wanted.dry_run = true;
    assert_eq!(f.purge(&wanted).await.deleted, 315 + 60 + 250);
    wanted.dry_run = false;
    let report = f.purge(&wanted).await;
    assert_eq!(report.deleted, 315 + 60 + 250);
    assert_eq!(
        f.number("select count(*) from idempotency").await,
        35,
        "those in progress"
    );
    assert_eq!(f.logged().await, 315 + 60 + 250);
    let biggest = f
        .number("select max((details->>'deleted')::int8) from idempotency_event")
        .await;
    assert!(biggest <= 100, "a batch of {biggest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_purges_at_once_delete_and_count_each_row_once() {
    let f = fixture().await;
    f.done(4_000, 48).await;
    let mut purges = JoinSet::new();
    for _ in 0..3 {
        let settings = f.db.settings();
        purges.spawn(async move {
            let conn = idemctl::connect::Connection::open(&settings).await.unwrap();
            let store = idemctl::store::Store::open(&conn, None).await.unwrap();
            let mut one = (conn, store);
            let mut wanted = request();
            wanted.batch_size = 50;
            let stop = idemctl::stop::Stop::never();
            idemctl::ops::purge::run(&mut one.0, &one.1, &wanted, &mut |_| {}, &stop)
                .await
                .unwrap()
                .deleted
        });
    }
    let counted: u64 = purges.join_all().await.iter().sum();
    assert_eq!(counted, 4_000);
    assert_eq!(f.number("select count(*) from idempotency").await, 0);
    assert_eq!(f.logged().await, 4_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_changes_under_the_delete_stays() {
    let mut f = fixture().await;
    let activity = f.db.activity();
    f.done(20, 48).await;
    // Somebody makes a new thing of a row while the purge waits for it.
    let mut other = f.db.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.execute(
        "update idempotency set status = 'in_progress', attempt = 2, locked_until = now() + interval '1 minute',
                completed_at = null where key = 'k7'",
        &[],
    )
    .await
    .unwrap();
    let watcher = f.db.connect().await;
    let wanted = request();
    let purge = f.purge(&wanted);
    let release = async {
        // The purge is seen to wait for the row before the row changes.
        loop {
            let sql = format!(
            "select count(*) from {activity} where wait_event_type = 'Lock' and query ilike '%delete from%'
                and datname = current_database()"
        );
            if watcher.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tx.commit().await.unwrap();
    };
    let (report, ()) = tokio::join!(purge, release);
    assert_eq!(report.deleted, 19);
    assert_eq!(f.keys().await, ["k7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn old_events_go_in_the_order_of_their_ids() {
    let mut f = fixture().await;
    f.execute(
        "insert into idempotency_event (at, action)
         select now() - case when i <= 250 then interval '401 days' else interval '399 days' end, 'release'
           from generate_series(1, 300) i",
    )
    .await;
    let mut wanted = request();
    wanted.batch_size = 100;
    wanted.dry_run = true;
    assert_eq!(f.purge(&wanted).await.events_deleted, 250);
    wanted.dry_run = false;
    assert_eq!(f.purge(&wanted).await.events_deleted, 250);
    assert_eq!(
        f.number("select count(*) from idempotency_event where action = 'release'")
            .await,
        50
    );
    let told = f
        .number("select sum((details->>'events_deleted')::int8)::int8 from idempotency_event")
        .await;
    assert_eq!(told, 250, "forgetting is itself remembered");
    wanted.retention.events = None;
    assert_eq!(f.purge(&wanted).await.events_deleted, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_table_loses_what_is_due_and_nothing_else() {
    let db = crate::support::database().await;
    db.client
        .batch_execute(
            "create table idempotency (client_id text, key text, fingerprint text not null,
                 status text not null default 'in_progress', locked_until timestamptz not null default now(),
                 status_code int, response json, created_at timestamptz not null default now(),
                 primary key (client_id, key)) partition by hash (client_id);
             create table idempotency_0 partition of idempotency for values with (modulus 2, remainder 0);
             create table idempotency_1 partition of idempotency for values with (modulus 2, remainder 1)",
        )
        .await
        .unwrap();
    let mut f = super::migrated(db).await;
    f.done(500, 48).await;
    f.execute("update idempotency set status = 'in_progress' where key like '%7'")
        .await;
    // And a pile, so that keys are compared across partitions.
    f.execute("update idempotency set created_at = '2020-01-01' where key like 'k1__'")
        .await;
    let mut wanted = request();
    wanted.batch_size = 30;
    assert_eq!(f.purge(&wanted).await.deleted, 450);
    assert_eq!(
        f.number("select count(*) from idempotency where status = 'in_progress'")
            .await,
        50
    );
    assert_eq!(f.logged().await, 450);
}
