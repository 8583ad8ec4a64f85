//! Losers that wait for the first request's result.

use std::time::{Duration, Instant};

use idemctl::protocol::{Reservation, WaitLimit};

use super::{Table, acquire, request, response};

fn limit(duration: Duration) -> WaitLimit {
    WaitLimit::new(duration).unwrap()
}

/// Starts a waiter, and gives it once it has asked for the first time.
async fn waiter(table: &Table, key: &'static str) -> tokio::task::JoinHandle<Reservation> {
    let (keys, client) = (table.keys.clone(), table.db.connect().await);
    let pid: i32 = client
        .query_one("select pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    let task = tokio::spawn(async move {
        keys.reserve_or_wait(&client, &request(key), limit(Duration::from_mins(1)))
            .await
            .unwrap()
    });
    table
        .until(&format!(
            "select query like '-- idemctl:look_at%' and state = 'idle' from pg_stat_activity where pid = {pid}"
        ))
        .await;
    assert!(!task.is_finished());
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn gets_the_result_when_it_is_there() {
    let table = Table::new().await;
    let mut lease = acquire(&table.keys, &table.db.client, &request("k")).await;
    let waiting = waiter(&table, "k").await;
    lease.complete(&table.db.client, &response("x")).await.unwrap();
    let started = Instant::now();
    let Reservation::Replay(replay) = waiting.await.unwrap() else {
        panic!("no replay")
    };
    assert_eq!(replay.response.body(), b"x");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn gets_the_key_when_it_was_given_back_or_ran_out() {
    let table = Table::new().await;
    let mut lease = acquire(&table.keys, &table.db.client, &request("k")).await;
    let waiting = waiter(&table, "k").await;
    lease.abandon(&table.db.client).await.unwrap();
    let Reservation::Acquired(mut lease) = waiting.await.unwrap() else {
        panic!("not acquired")
    };
    assert_eq!(lease.attempt(), 1);
    let waiting = waiter(&table, "k").await;
    lease.outcome_unknown(&table.db.client, "504").await.unwrap();
    let Reservation::Acquired(lease) = waiting.await.unwrap() else {
        panic!("not acquired")
    };
    assert_eq!(lease.attempt(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_no_longer_than_it_was_told_and_asks_once_for_nothing() {
    let table = Table::new().await;
    let client = &table.db.client;
    let _lease = acquire(&table.keys, client, &request("k")).await;
    for wait in [Duration::ZERO, Duration::from_millis(300)] {
        let started = Instant::now();
        let outcome = table
            .keys
            .reserve_or_wait(client, &request("k"), limit(wait))
            .await
            .unwrap();
        assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
        assert!(started.elapsed() >= wait, "{:?}", started.elapsed());
        assert!(
            started.elapsed() < wait + Duration::from_secs(3),
            "{:?}",
            started.elapsed()
        );
    }
    assert!(WaitLimit::new(Duration::from_secs(601)).is_err());
}
