//! Locks and time limits: smaller batches, stepping over, and an end in any case.

use std::time::Duration;

use idemctl::connect::Connection;
use idemctl::ops::purge::{self, Stopped};
use idemctl::stop::Stop;

use super::{fixture, request};

#[tokio::test(flavor = "multi_thread")]
async fn locked_rows_are_stepped_over_and_counted() {
    let mut f = fixture().await;
    f.done(300, 48).await;
    let locker = f.db.connect().await;
    locker
        .batch_execute(
            "begin; update idempotency set owner = owner where client_id = 'shop-2' and key = 'k100';
             update idempotency set owner = owner where client_id = 'shop-4' and key = 'k200'",
        )
        .await
        .unwrap();
    let mut wanted = request();
    wanted.batch_size = 32;
    let report = f.purge(&wanted).await;
    let left = f.number("select count(*) from idempotency").await;
    assert_eq!(report.stopped, Stopped::Done);
    assert_eq!(report.refused, 0, "they go once they are free");
    assert_eq!(
        (report.deleted, report.skipped),
        (300 - left.unsigned_abs(), left.unsigned_abs())
    );
    assert!(
        (2..=32).contains(&left),
        "only the slices with the locked rows: {left}"
    );
    assert_eq!(report.backlog.unwrap().rows, left.unsigned_abs());
    locker.batch_execute("rollback").await.unwrap();
    let report = f.purge(&wanted).await;
    assert_eq!((report.deleted, report.skipped), (left.unsigned_abs(), 0));
    assert_eq!(f.logged().await, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_by_itself_when_everything_is_locked() {
    let mut f = fixture().await;
    f.done(200, 48).await;
    let locker = f.db.connect().await;
    locker
        .batch_execute("begin; update idempotency set owner = owner")
        .await
        .unwrap();
    let mut wanted = request();
    wanted.batch_size = 100;
    let report = tokio::time::timeout(Duration::from_secs(30), f.purge(&wanted))
        .await
        .expect("an end");
    assert_eq!(
        (report.deleted, report.skipped, report.stopped),
        (0, 200, Stopped::Done)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_timeout_makes_the_batches_smaller() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let mut f = fixture().await;
    f.done(400, 48).await;
    // Each row takes 5 ms to delete, so that 400 never fit into half a second and 64 do.
    f.execute(
        "create function slow() returns trigger language plpgsql as
         $$ begin perform pg_sleep(0.005); return old; end $$;
         create trigger slow before delete on idempotency for each row execute function slow()",
    )
    .await;
    let mut settings = f.db.settings();
    settings.timeouts.statement = Duration::from_millis(500);
    f.conn = Connection::open(&settings).await.unwrap();
    let mut wanted = request();
    wanted.batch_size = 400;
    let mut sizes = Vec::new();
    let mut progress = |p: &purge::Progress| sizes.push(p.batch_size);
    let report = purge::run(&mut f.conn, &f.store, &wanted, &mut progress, &Stop::never())
        .await
        .unwrap();
    assert_eq!((report.deleted, report.skipped), (400, 0));
    assert!(sizes.iter().all(|size| *size < 400), "{sizes:?}");
    assert_eq!(f.logged().await, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_never_ends_in_time_is_an_error_and_not_a_loop() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let mut f = fixture().await;
    f.done(200, 48).await;
    f.execute(
        "create function slow() returns trigger language plpgsql as
         $$ begin perform pg_sleep(1); return old; end $$;
         create trigger slow before delete on idempotency for each row execute function slow()",
    )
    .await;
    let mut settings = f.db.settings();
    settings.timeouts.statement = Duration::from_millis(50);
    f.conn = Connection::open(&settings).await.unwrap();
    let mut wanted = request();
    wanted.batch_size = 16;
    let stop = Stop::never();
    let mut silent = |_: &purge::Progress| {};
    let purge = purge::run(&mut f.conn, &f.store, &wanted, &mut silent, &stop);
    let failure = tokio::time::timeout(Duration::from_secs(30), purge)
        .await
        .expect("an end")
        .unwrap_err();
    assert_eq!(failure.cause.sqlstate(), Some("57014"), "{failure}");
    assert_eq!(failure.report.deleted, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serializable_database_is_no_obstacle() {
    let mut f = fixture().await;
    f.done(1_000, 48).await;
    let alter = format!(
        "alter database {} set default_transaction_isolation = 'serializable'",
        f.db.name
    );
    f.execute(&alter).await;
    f.conn = Connection::open(&f.db.settings()).await.unwrap();
    let mut other = super::Fixture {
        conn: Connection::open(&f.db.settings()).await.unwrap(),
        store: idemctl::store::Store::open(&f.conn, None).await.unwrap(),
        db: crate::support::database().await,
    };
    let mut wanted = request();
    wanted.batch_size = 20;
    let (one, two) = tokio::join!(f.purge(&wanted), other.purge(&wanted));
    let left = f.number("select count(*) from idempotency").await.unsigned_abs();
    assert_eq!(one.deleted + two.deleted + left, 1_000);
    assert_eq!(f.logged().await.unsigned_abs(), one.deleted + two.deleted);
    assert_eq!(f.purge(&wanted).await.deleted, left);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_refuse_to_go_do_not_keep_the_rest() {
    let _private = crate::support::not_on_citus("no foreign key to a distributed table holds there").await;
    let mut f = fixture().await;
    f.done(300, 48).await;
    f.execute(
        "create table pay (c text, k text, foreign key (c, k) references idempotency);
         insert into pay select client_id, key from idempotency order by created_at offset 7 limit 1;
         insert into pay select client_id, key from idempotency order by created_at offset 200 limit 1",
    )
    .await;
    let mut wanted = request();
    wanted.batch_size = 50;
    let report = f.purge(&wanted).await;
    assert_eq!(
        (report.deleted, report.skipped, report.refused),
        (298, 2, 2),
        "{report:?}"
    );
    assert_eq!(f.number("select count(*) from idempotency").await, 2);
    let events =
        "select sum((details->>'deleted')::int8)::int8 from idempotency_event where action = 'purge'";
    assert_eq!(f.number(events).await, 298);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_the_server_swallows_is_no_success() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    for trick in [
        "create rule r as on delete to idempotency do instead nothing",
        "create function no() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger no before delete on idempotency for each row execute function no()",
    ] {
        let mut f = fixture().await;
        f.done(10, 48).await;
        f.execute(trick).await;
        let failure = purge::run(&mut f.conn, &f.store, &request(), &mut |_| {}, &Stop::never())
            .await
            .unwrap_err();
        assert!(
            failure.cause.to_string().contains("does not delete 10 rows"),
            "{failure}"
        );
        // Neither is a release a lost race then.
        f.execute("insert into idempotency (client_id, key, fingerprint, locked_until) values ('s', 'stuck', '', '2020-01-01')")
            .await;
        let output = crate::support::idemctl(&["release", "s", "stuck", "--yes"])
            .on(&f.db.url)
            .run()
            .await;
        assert_eq!(output.code, 1, "{}", output.transcript());
        assert!(output.stderr.contains("swallowed"), "{}", output.stderr);
    }
}
