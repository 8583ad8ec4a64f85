//! What is told besides the answer: metrics under their documented names, and warnings.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use idemctl::protocol::{OnExpired, Request, TransactionReservation};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::{Table, acquire, id, print, replay, request, response};
use crate::support::{Run, connect};

/// Every counter and histogram as `name{labels} = value`.
fn told(snapshotter: &Snapshotter) -> BTreeSet<String> {
    snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<String> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            let value = match value {
                DebugValue::Counter(count) => count.to_string(),
                DebugValue::Histogram(values) => {
                    assert!(
                        values
                            .iter()
                            .all(|value| (0.0..60.0).contains(&value.into_inner()))
                    );
                    format!("{} values", values.len())
                }
                DebugValue::Gauge(value) => value.to_string(),
            };
            format!("{}{{{}}} = {value}", key.key().name(), labels.join(","))
        })
        .collect()
}

// The recorder is this thread's own, so the runtime must not have others.
#[tokio::test]
async fn metrics_have_their_documented_names() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut lease = acquire(keys, client, &request("k")).await;
    for _ in 0..3 {
        let _ = keys.reserve(client, &request("k")).await.unwrap();
    }
    let _ = keys
        .reserve(client, &Request::new(id("k"), print("pay 2")))
        .await
        .unwrap();
    lease
        .renew(client, std::time::Duration::from_mins(1))
        .await
        .unwrap();
    lease.outcome_unknown(client, "504").await.unwrap();
    let asking = request("k").on_expired(OnExpired::Return);
    let _ = keys.reserve(client, &asking).await.unwrap();
    let mut second = acquire(keys, client, &request("k")).await;
    lease.complete(client, &response("late")).await.unwrap_err();
    second.complete(client, &response("x")).await.unwrap();
    replay(keys, client, &request("k")).await;
    acquire(keys, client, &request("other"))
        .await
        .abandon(client)
        .await
        .unwrap();
    let broken = connect(&table.db.url).await;
    table
        .execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database()
                     and pid <> pg_backend_pid()",
        )
        .await;
    keys.reserve(&broken, &request("k")).await.unwrap_err();
    let expected = [
        "idemctl_reserve_seconds{outcome=acquired} = 2 values",
        "idemctl_reserve_seconds{outcome=error} = 1 values",
        "idemctl_reserve_seconds{outcome=expired} = 1 values",
        "idemctl_reserve_seconds{outcome=in_progress} = 3 values",
        "idemctl_reserve_seconds{outcome=mismatch} = 1 values",
        "idemctl_reserve_seconds{outcome=replay} = 1 values",
        "idemctl_reserve_seconds{outcome=taken_over} = 1 values",
        "idemctl_reserve_total{outcome=acquired} = 2",
        "idemctl_reserve_total{outcome=error} = 1",
        "idemctl_reserve_total{outcome=expired} = 1",
        "idemctl_reserve_total{outcome=in_progress} = 3",
        "idemctl_reserve_total{outcome=mismatch} = 1",
        "idemctl_reserve_total{outcome=replay} = 1",
        "idemctl_reserve_total{outcome=taken_over} = 1",
        "idemctl_settle_total{action=abandon,outcome=done} = 1",
        "idemctl_settle_total{action=complete,outcome=done} = 1",
        "idemctl_settle_total{action=complete,outcome=lost} = 1",
        "idemctl_settle_total{action=outcome_unknown,outcome=done} = 1",
        "idemctl_settle_total{action=renew,outcome=done} = 1",
    ];
    let expected: BTreeSet<String> = expected.into_iter().map(str::to_owned).collect();
    assert_eq!(told(&snapshotter), expected);
}

/// What was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// In a process of its own: which log statements are on is one decision for all threads of a process.
#[tokio::test]
async fn dropping_a_lease_changes_nothing_and_is_warned_about() {
    let output = Run::test("protocol::told::child_drops_leases").run().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
}

#[tokio::test]
#[ignore = "a child process"]
async fn child_drops_leases() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    let _local = tracing::subscriber::set_default(subscriber);
    let said = || String::from_utf8(std::mem::take(&mut *log.0.lock().unwrap())).unwrap();
    let mut table = Table::new().await;
    let lease = acquire(&table.keys, &table.db.client, &request("dropped")).await;
    let before = table.row("dropped").await;
    assert!(before.is_some());
    said();
    drop(lease);
    let warned = said();
    assert!(
        warned.contains("WARN") && warned.contains("lease dropped") && warned.contains("dropped"),
        "{warned}"
    );
    assert_eq!(table.row("dropped").await, before);

    // Settled in whatever way, there is nothing to warn about.
    let client = &table.db.client;
    acquire(&table.keys, client, &request("a"))
        .await
        .abandon(client)
        .await
        .unwrap();
    let mut lease = acquire(&table.keys, client, &request("b")).await;
    lease.outcome_unknown(client, "x").await.unwrap();
    drop(lease);
    let mut lease = acquire(&table.keys, client, &request("b")).await;
    lease.complete(client, &response("x")).await.unwrap();
    drop(lease);
    assert_eq!(said(), "");

    let tx = table.db.client.transaction().await.unwrap();
    let claim = table.keys.reserve_in(&tx, &request("c")).await.unwrap();
    assert!(matches!(claim, TransactionReservation::Fresh(_)));
    drop(claim);
    assert!(said().contains("claim dropped"));
}
