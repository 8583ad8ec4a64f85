//! Fifty callers, one key: exactly one gets it. And the naive way, shown by the same harness to charge twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idemctl::protocol::{Idempotency, Lease, Request, Reservation};
use tokio::sync::Barrier;
use tokio_postgres::Client;

use crate::protocol::{Table, replay, request, response};
use crate::support::{PgbouncerOptions, connect, pgbouncer};

const CALLERS: usize = 50;

async fn callers(url: &str) -> Vec<Arc<Client>> {
    let mut clients = Vec::new();
    for _ in 0..CALLERS {
        clients.push(Arc::new(connect(url).await));
    }
    clients
}

/// Lets every client do `contend` at the same moment; gives what each got.
async fn race<T, F, Fut>(clients: &[Arc<Client>], contend: F) -> Vec<T>
where
    T: Send + 'static,
    F: Fn(Arc<Client>) -> Fut,
    Fut: Future<Output = T> + Send + 'static,
{
    let barrier = Arc::new(Barrier::new(clients.len()));
    let mut tasks = Vec::with_capacity(clients.len());
    for client in clients {
        let (work, barrier) = (contend(Arc::clone(client)), Arc::clone(&barrier));
        tasks.push(tokio::spawn(async move {
            barrier.wait().await;
            work.await
        }));
    }
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.push(task.await.expect("a caller"));
    }
    results
}

/// The same work as a handler does it: reserve, charge, complete. `true` when it charged.
async fn pay(keys: Idempotency, client: Arc<Client>, request: Request) -> bool {
    match keys.reserve(&client, &request).await.expect("never an error") {
        Reservation::Acquired(mut lease) => {
            let charge = lease.id().key().to_owned();
            // In the simple protocol, which every pooler lets through.
            client
                .batch_execute(&format!("insert into charge values ('{charge}')"))
                .await
                .expect("a charge");
            lease.complete(&client, &response(charge)).await.expect("ours");
            true
        }
        Reservation::InProgress(_) => false,
        Reservation::Replay(replay) => {
            assert_eq!(replay.response.body(), request.id().key().as_bytes());
            false
        }
        other => panic!("{other:?}"),
    }
}

async fn charges(table: &Table, key: &str) -> i64 {
    table
        .db
        .client
        .query_one("select count(*) from charge where key = $1", &[&key])
        .await
        .unwrap()
        .get(0)
}

async fn rounds(table: &Table, clients: &[Arc<Client>], label: &str, count: usize) {
    for round in 0..count {
        let key = format!("{label}-{round}");
        let results = race(clients, |client| pay(table.keys.clone(), client, request(&key))).await;
        let winners = results.into_iter().filter(|charged| *charged).count();
        assert_eq!(winners, 1, "{key}");
        assert_eq!(charges(table, &key).await, 1, "{key}");
        // A retry afterwards gets what the winner stored.
        let stored = replay(&table.keys, &*clients[round % CALLERS], &request(&key)).await;
        assert_eq!(stored.body(), key.as_bytes());
    }
}

async fn table() -> Table {
    with_charges(Table::new().await).await
}

async fn with_charges(table: Table) -> Table {
    table
        .db
        .client
        .batch_execute("create table charge (key text)")
        .await
        .unwrap();
    table
}

const LEVELS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

#[tokio::test(flavor = "multi_thread")]
async fn one_of_fifty_wins() {
    let table = table().await;
    let clients = callers(&table.db.url).await;
    rounds(&table, &clients, "straight", 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_fifty_wins_through_a_transaction_pooler() {
    let _private = crate::support::privately("a pooler stands before its server");
    let table = table().await;
    let options = || PgbouncerOptions {
        pool_size: 12,
        ..PgbouncerOptions::default()
    };
    let pooler = pgbouncer(&table.db, options()).await;
    let clients = callers(&pooler.url).await;
    rounds(&table, &clients, "pooled", 200).await;
    drop(clients);
    for level in LEVELS {
        let sql = format!(
            "alter database \"{}\" set default_transaction_isolation = '{level}'",
            table.db.name
        );
        table.db.client.batch_execute(&sql).await.unwrap();
        // A pooler of its own, whose server connections begin with the new default.
        let pooler = pgbouncer(&table.db, options()).await;
        let clients = callers(&pooler.url).await;
        rounds(&table, &clients, &format!("pooled {level}"), 50).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_fifty_wins_under_every_isolation_level() {
    let table = table().await;
    let clients = callers(&table.db.url).await;
    for level in LEVELS {
        for client in &clients {
            client
                .batch_execute(&format!("set default_transaction_isolation = '{level}'"))
                .await
                .unwrap();
        }
        rounds(&table, &clients, level, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_fifty_wins_on_a_partitioned_table() {
    let table = with_charges(Table::partitioned().await).await;
    let clients = callers(&table.db.url).await;
    rounds(&table, &clients, "partitioned", 25).await;
}

/// Check, then write: what this whole project is against.
async fn pay_naively(client: Arc<Client>, key: String) -> bool {
    let seen = client
        .query("select from idempotency where key = $1", &[&key])
        .await
        .unwrap();
    if !seen.is_empty() {
        return false;
    }
    client
        .execute("insert into charge values ($1)", &[&key])
        .await
        .unwrap();
    client
        .execute(
            "insert into idempotency (client_id, key, fingerprint, status) values ('shop-1', $1, 'f', 'done')
             on conflict do nothing",
            &[&key],
        )
        .await
        .unwrap();
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn check_then_write_charges_twice() {
    let table = table().await;
    let clients = callers(&table.db.url).await;
    for round in 0..200 {
        let key = format!("naive-{round}");
        race(&clients, |client| pay_naively(client, key.clone())).await;
        if charges(&table, &key).await > 1 {
            return;
        }
    }
    panic!("the harness does not race: 200 rounds of check-then-write charged once each");
}

/// Abandoned work, unknown outcomes, takeovers and completions at once: at no moment are two at work on one key,
/// and each replay is what was stored.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_storm_of_everything_no_two_hold_one_key() {
    let table = Table::new().await;
    let holding = Arc::new(Mutex::new(HashSet::new()));
    let mut workers = Vec::new();
    for worker in 0..8_u32 {
        let (keys, client) = (table.keys.clone(), table.db.connect().await);
        let holding = Arc::clone(&holding);
        workers.push(tokio::spawn(async move {
            let mut takeovers = 0;
            for step in 0..120_u32 {
                let key = format!("storm-{}", step % 20);
                match keys
                    .reserve(&client, &request(&key))
                    .await
                    .expect("never an error")
                {
                    Reservation::Acquired(lease) => {
                        assert!(holding.lock().unwrap().insert(key.clone()), "two hold {key}");
                        takeovers += u32::from(lease.is_takeover());
                        settle(&client, lease, (step + worker) % 7, || {
                            holding.lock().unwrap().remove(&key);
                        })
                        .await;
                    }
                    Reservation::InProgress(_) => {}
                    Reservation::Replay(replay) => assert_eq!(replay.response.body(), key.as_bytes()),
                    other => panic!("{other:?}"),
                }
            }
            takeovers
        }));
    }
    let mut takeovers = 0;
    for worker in workers {
        takeovers += worker.await.unwrap();
    }
    assert!(takeovers > 0);
}

async fn settle(client: &Client, mut lease: Lease, how: u32, before: impl FnOnce()) {
    if how == 0 {
        lease.renew(client, Duration::from_mins(1)).await.expect("ours");
    }
    before();
    let body = lease.id().key().to_owned();
    match how {
        1 | 2 => {
            lease.abandon(client).await.expect("ours");
        }
        6 => lease.complete(client, &response(body)).await.expect("ours"),
        _ => lease.outcome_unknown(client, "timeout").await.expect("ours"),
    }
}
