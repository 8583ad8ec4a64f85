//! A holder that lost its lease changes nothing; one that has it keeps it.

use std::sync::Arc;
use std::time::Duration;

use idemctl::error::Found;
use idemctl::protocol::{Abandoned, Lease, Reservation};
use idemctl::record::State;
use tokio_postgres::Client;

use super::{Table, acquire, lost, replay, request, response, short};

/// How a handler that knows only the eight old columns claims.
pub(super) const OLD_CLAIM: &str =
    "insert into idempotency as held (client_id, key, fingerprint, locked_until)
     values ($1, $2, $3, now() + interval '30 seconds')
     on conflict (client_id, key) do update set locked_until = excluded.locked_until
      where held.status = 'in_progress' and held.fingerprint = excluded.fingerprint
        and held.locked_until < excluded.created_at
     returning true";

async fn old_handler_claims(client: &Client, key: &str) -> bool {
    let print = super::print("pay 1");
    client
        .query_opt(OLD_CLAIM, &[&"shop-1", &key, &print.as_str()])
        .await
        .unwrap()
        .is_some()
}

/// Everything that a holder may do fails and leaves the row as it is, byte for byte.
async fn changes_nothing(table: &Table, lease: &mut Lease, key: &str) -> Found {
    let client = &table.db.client;
    let before = table.row(key).await;
    let found = lost(lease.complete(client, &response("late")).await);
    assert_eq!(lost(lease.renew(client, Duration::from_hours(1)).await), found);
    assert_eq!(lost(lease.abandon(client).await), found);
    assert_eq!(lost(lease.outcome_unknown(client, "late").await), found);
    assert_eq!(table.row(key).await, before);
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_takeover_the_first_holder_changes_nothing() {
    for table in [Table::new().await, Table::partitioned().await] {
        let client = &table.db.client;
        let mut first = acquire(&table.keys, client, &request("k")).await;
        table.lapse("k").await;
        let mut second = acquire(&table.keys, client, &request("k")).await;
        assert_ne!(first.token(), second.token());
        let found = changes_nothing(&table, &mut first, "k").await;
        assert!(
            matches!(
                found,
                Found::Other {
                    state: State::InProgress,
                    attempt: 2,
                    ..
                }
            ),
            "{found:?}"
        );
        second.complete(client, &response("second")).await.unwrap();
        changes_nothing(&table, &mut first, "k").await;
        // Released and claimed anew: the attempt is 1 again, the token is another.
        table.execute("delete from idempotency").await;
        assert_eq!(changes_nothing(&table, &mut first, "k").await, Found::Gone);
        let _third = acquire(&table.keys, client, &request("k")).await;
        changes_nothing(&table, &mut first, "k").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_knows_only_the_old_columns_is_fenced_off_and_fences() {
    let table = Table::jsonb().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut leases = Vec::new();
    for key in ["complete", "renew", "abandon", "unknown"] {
        leases.push(acquire(keys, client, &short(key)).await);
        assert!(!old_handler_claims(client, key).await, "our lease is respected");
    }
    for lease in &mut leases {
        let key = lease.id().key().to_owned();
        table.over(&key).await;
        assert!(old_handler_claims(client, &key).await, "it takes over");
        // It changed neither token nor attempt, and still we are out.
        changes_nothing(&table, lease, &key).await;
        let outcome = keys.reserve(client, &request(&key)).await.unwrap();
        assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
    }
    let done = "update idempotency set status = 'done', status_code = 202, response = '{\"a\": 1}'
                 where client_id = 'shop-1' and key = 'complete' and status = 'in_progress'";
    assert_eq!(table.execute(done).await, 1);
    let stored = replay(keys, client, &request("complete")).await;
    assert_eq!((stored.status_code(), stored.body()), (202, &b"{\"a\": 1}"[..]));

    // And the other way round: we take its expired row over, and it sees our lease and our result.
    assert!(old_handler_claims(client, "theirs").await);
    let outcome = keys.reserve(client, &request("theirs")).await.unwrap();
    assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
    table.lapse("theirs").await;
    let mut lease = acquire(keys, client, &request("theirs").operation("POST /x").unwrap()).await;
    assert_eq!(lease.attempt(), 2);
    assert!(!old_handler_claims(client, "theirs").await);
    lease.complete(client, &response("{\"b\": 2}")).await.unwrap();
    assert!(!old_handler_claims(client, "theirs").await);
    let row = client
        .query_one(
            "select status, status_code, response::text from idempotency where key = 'theirs'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "done");
    assert_eq!(row.get::<_, i32>(1), 201);
    assert_eq!(row.get::<_, &str>(2), "{\"b\": 2}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_holder_whom_nobody_replaced_may_still_finish() {
    let table = Table::new().await;
    let client = &table.db.client;
    let mut lease = acquire(&table.keys, client, &short("k")).await;
    table.over("k").await;
    lease.complete(client, &response("late")).await.unwrap();
    assert_eq!(replay(&table.keys, client, &request("k")).await.body(), b"late");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_first_attempt_is_given_back() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut lease = acquire(keys, client, &request("k")).await;
    assert_eq!(lease.abandon(client).await.unwrap(), Abandoned::Deleted);
    assert_eq!(table.row("k").await, None);
    // Another body may have the key now.
    let other = idemctl::protocol::Request::new(super::id("k"), super::print("pay 2"));
    let mut lease = acquire(keys, client, &other).await;
    lease.outcome_unknown(client, "504").await.unwrap();
    // The same request as a value: its earlier attempt may have reached the provider, so this is a takeover.
    let mut lease = acquire(keys, client, &other).await;
    assert!(lease.is_takeover());
    assert_eq!(lease.abandon(client).await.unwrap(), Abandoned::Kept);
    let mut lease = acquire(keys, client, &other).await;
    assert_eq!(lease.attempt(), 3);
    lease.complete(client, &response("x")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_outcome_ends_the_lease_whatever_the_reason_holds() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    for (key, reason) in [
        ("nul", "a\0b".to_owned()),
        ("long", "\u{1f4b6}".repeat(1_000_000)),
    ] {
        let mut lease = acquire(keys, client, &request(key)).await;
        lease.outcome_unknown(client, &reason).await.unwrap();
        let record = keys.store().get(client, lease.id()).await.unwrap().unwrap();
        assert_eq!(record.state, Some(State::Expired));
        let kept = record.last_error.unwrap();
        assert!(
            kept == "a\u{fffd}b" || kept == "\u{1f4b6}".repeat(2_000),
            "{kept}"
        );
        // A repetition, because the answer got lost, changes nothing and is no error.
        lease.outcome_unknown(client, &reason).await.unwrap();
        assert_eq!(acquire(keys, client, &request(key)).await.attempt(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_never_shortens() {
    let table = Table::new().await;
    let client = &table.db.client;
    let hour = request("k").lease(Duration::from_hours(1)).unwrap();
    let lease = acquire(&table.keys, client, &hour).await;
    let before = table.row("k").await;
    lease.renew(client, Duration::from_secs(1)).await.unwrap();
    assert_eq!(table.row("k").await, before);
    lease.renew(client, Duration::from_hours(2)).await.unwrap();
    table
        .until("select locked_until > now() + interval '110 minutes' from idempotency")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_lease_lives_and_its_loss_is_told() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, Arc::new(table.db.connect().await));
    let mut lease = acquire(keys, &client, &short("k")).await;
    let mut guard = lease.keep_alive(Arc::clone(&client));
    let long = "select now() > created_at + interval '3 s' from idempotency where key = 'k'";
    loop {
        // A retry at any moment finds it held.
        let outcome = keys.reserve(&table.db.client, &request("k")).await.unwrap();
        assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
        if table.db.client.query_one(long, &[]).await.unwrap().get(0) {
            break;
        }
    }
    assert!(!guard.is_lost());
    // A renewal may come between the two steps and win; then they are taken again.
    let retry = request("k");
    let second = loop {
        table.lapse("k").await;
        match keys.reserve(&table.db.client, &retry).await.unwrap() {
            Reservation::Acquired(lease) => break lease,
            other => assert!(matches!(other, Reservation::InProgress(_)), "{other:?}"),
        }
    };
    tokio::time::timeout(Duration::from_secs(20), guard.lost())
        .await
        .expect("the loss is told");
    assert!(guard.is_lost());
    lost(lease.complete(&*client, &response("x")).await);
    drop(second);

    // The guard and its holder at the same time, for longer than the first lease: the fence lets both through.
    let mut lease = acquire(keys, &client, &short("both")).await;
    let guard = lease.keep_alive(Arc::clone(&client));
    table
        .until(
            "select clock_timestamp() > created_at + interval '1500 ms' from idempotency where key = 'both'",
        )
        .await;
    for _ in 0..50 {
        lease
            .renew(&table.db.client, Duration::from_secs(1))
            .await
            .unwrap();
    }
    lease.complete(&table.db.client, &response("x")).await.unwrap();
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_without_a_connection_tells_when_the_lease_has_run_out() {
    let table = Table::new().await;
    let client = Arc::new(table.db.connect().await);
    let lease = acquire(&table.keys, &client, &short("k")).await;
    let mut guard = lease.keep_alive(Arc::clone(&client));
    // Once with an error at each renewal, once with an answer that never comes.
    table
        .execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
                     and pid <> pg_backend_pid()",
        )
        .await;
    tokio::time::timeout(Duration::from_secs(20), guard.lost())
        .await
        .expect("it is told");
    table.over("k").await;

    let client = Arc::new(table.db.connect().await);
    let lease = acquire(&table.keys, &client, &short("hangs")).await;
    let mut locker = table.db.connect().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("lock table idempotency in exclusive mode")
        .await
        .unwrap();
    let mut guard = lease.keep_alive(Arc::clone(&client));
    tokio::time::timeout(Duration::from_secs(20), guard.lost())
        .await
        .expect("it is told");
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_guard_leaves_the_connection_usable() {
    let table = Table::new().await;
    let connection = idemctl::connect::Connection::open(&table.db.settings())
        .await
        .unwrap();
    let connection = Arc::new(connection);
    let mut lease = acquire(&table.keys, &connection, &short("k")).await;
    let mut locker = table.db.connect().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("lock table idempotency in exclusive mode")
        .await
        .unwrap();
    let guard = lease.keep_alive(Arc::clone(&connection));
    table
        .until("select exists (select from pg_locks where not granted and database = (select oid from pg_database
                                where datname = current_database()))")
        .await;
    drop(guard);
    lock.commit().await.unwrap();
    lease.complete(&connection, &response("x")).await.unwrap();
}
