//! What repeats cost: no transaction id, no WAL, one round trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idemctl::protocol::Reservation;
use idemctl::store::{Cached, Executor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixStream};
use tokio_postgres::Client;

use super::{Table, acquire, replay, request, response};
use crate::support::{Cluster, ClusterOptions, connect};

/// A cluster in which nothing happens by itself.
async fn idle_cluster() -> Cluster {
    let settings = [
        ("autovacuum", "off"),
        ("wal_level", "minimal"),
        ("max_wal_senders", "0"),
        ("checkpoint_timeout", "1h"),
    ];
    Cluster::start(ClusterOptions {
        settings: settings.map(|(name, value)| (name, value.to_owned())).to_vec(),
        ..ClusterOptions::default()
    })
    .await
}

/// The WAL's end, and the next transaction id.
async fn written(client: &Client) -> (String, String) {
    let row = client
        .query_one(
            "select pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text",
            &[],
        )
        .await
        .unwrap();
    (row.get(0), row.get(1))
}

/// The first repeats come to a process that has not met the keys.
async fn repeats(table: &Table, executor: &impl Executor, count: usize) {
    for repeat in 0..count {
        let fresh;
        let keys = if repeat % 10 == 0 {
            fresh = super::open(&table.db.client).await;
            &fresh
        } else {
            &table.keys
        };
        let outcome = keys.reserve(executor, &request("busy")).await.unwrap();
        assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
        assert_eq!(replay(keys, executor, &request("done")).await.body(), b"{}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repeats_write_nothing() {
    let cluster = idle_cluster().await;
    for sql in ["", super::OLD_TABLE] {
        let table = Table::in_database(cluster.database().await, sql).await;
        let (keys, client) = (&table.keys, &table.db.client);
        let mut done = acquire(keys, client, &request("done")).await;
        done.complete(client, &response("{}")).await.unwrap();
        let long = request("busy").lease(std::time::Duration::from_hours(1)).unwrap();
        let _busy = acquire(keys, client, &long).await;
        let cached = Cached::new(table.db.connect().await);
        client.batch_execute("vacuum").await.unwrap();
        client.batch_execute("checkpoint").await.unwrap();
        repeats(&table, client, 2).await;
        repeats(&table, &cached, 20).await;
        let before = written(client).await;
        repeats(&table, client, 500).await;
        repeats(&table, &cached, 500).await;
        assert_eq!(written(client).await, before);
        // The measure does see a write.
        let _claim = acquire(keys, client, &request("new")).await;
        let after = written(client).await;
        assert_ne!(after.0, before.0);
        assert_ne!(after.1, before.1);
    }
}

/// Forwards one connection and counts the client's Sync messages: each asks for one answer of the server.
async fn counted(table: &Table) -> (Client, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = table.db.socket_dir.join(format!(".s.PGSQL.{}", table.db.port));
    let syncs = Arc::new(AtomicUsize::new(0));
    let counter = syncs.clone();
    tokio::spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_server, mut to_server) = UnixStream::connect(socket).await.unwrap().into_split();
        let (mut from_client, mut to_client) = client.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        // The first message has no type byte (PostgreSQL manual, 55.7: StartupMessage).
        let mut has_type = false;
        loop {
            let mut head = vec![0; if has_type { 5 } else { 4 }];
            if from_client.read_exact(&mut head).await.is_err() {
                return;
            }
            let length = u32::from_be_bytes(head[head.len() - 4..].try_into().unwrap());
            let mut rest = vec![0; usize::try_from(length).unwrap() - 4];
            from_client.read_exact(&mut rest).await.unwrap();
            if has_type && (head[0] == b'S' || head[0] == b'Q') {
                counter.fetch_add(1, Ordering::SeqCst);
            }
            has_type = true;
            to_server.write_all(&head).await.unwrap();
            to_server.write_all(&rest).await.unwrap();
        }
    });
    let url = format!("postgresql://idemctl@127.0.0.1:{port}/{}", table.db.name);
    (connect(&url).await, syncs)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_outcome_takes_one_round_trip_and_one_more_where_only_others_have_met_the_key() {
    let _private = crate::support::privately("it reads the bytes on the server's socket");
    let table = Table::new().await;
    let keys = &table.keys;
    let (client, syncs) = counted(&table).await;
    let taken = || syncs.swap(0, Ordering::SeqCst);
    taken();
    let mut lease = acquire(keys, &client, &request("k")).await;
    assert_eq!(taken(), 1, "a claim");
    let _ = keys.reserve(&client, &request("k")).await.unwrap();
    assert_eq!(taken(), 1, "in progress");
    let _ = keys
        .reserve(
            &client,
            &idemctl::protocol::Request::new(super::id("k"), super::print("pay 2")),
        )
        .await
        .unwrap();
    assert_eq!(taken(), 1, "mismatch");
    lease.outcome_unknown(&client, "x").await.unwrap();
    assert_eq!(taken(), 1, "outcome unknown");
    let mut lease = acquire(keys, &client, &request("k")).await;
    assert_eq!(taken(), 2, "a takeover");
    lease.complete(&client, &response("x")).await.unwrap();
    assert_eq!(taken(), 1, "complete");
    replay(keys, &client, &request("k")).await;
    assert_eq!(taken(), 1, "replay");

    let other = super::open(&table.db.client).await;
    replay(&other, &client, &request("k")).await;
    assert_eq!(taken(), 2, "replay of a key that only another process has met");
    replay(&other, &client, &request("k")).await;
    assert_eq!(taken(), 1, "and again");
    // Known, and gone meanwhile.
    table.execute("delete from idempotency").await;
    drop(acquire(keys, &client, &request("k")).await);
    assert_eq!(taken(), 2, "a claim of a key that was released");
}
