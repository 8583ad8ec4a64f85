//! A table that is away, leases that are lost, clients that hang up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Got, Service, fixture, layer, layer_of, service, unreachable};
use crate::protocol::{Table, open};
use crate::support::until;

const PAY: &str = r#"{"amount": 4990}"#;
const WAIT: &str = r#"{"amount": 4990, "do": "wait"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn without_the_table_nothing_runs_and_no_answer_is_given_that_nobody_kept() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let keys = open(&connection).await;
    let away = Arc::new(AtomicBool::new(true));
    let switch = Arc::clone(&away);
    let layer = layer_of(keys, move || {
        if switch.load(Ordering::SeqCst) {
            return Err(unreachable());
        }
        Ok(Arc::clone(&connection))
    });
    let service = service(layer).await;
    let got = service.post("shop-1", Some("k"), PAY).await;
    assert_eq!(
        (got.status, got.problem.as_str(), service.runs()),
        (503, "unavailable", 0)
    );
    assert_eq!(got.header("retry-after"), Some("1"));
    // It goes away while the handler works, and comes back: the answer is stored after all.
    away.store(false, Ordering::SeqCst);
    let call = service.post("shop-1", Some("k"), WAIT);
    let storm = async {
        service.begun().await;
        away.store(true, Ordering::SeqCst);
        service.work.gate.add_permits(1);
        tokio::time::sleep(Duration::from_millis(300)).await;
        away.store(false, Ordering::SeqCst);
    };
    let (got, ()) = tokio::join!(call, storm);
    assert_eq!(got.status, 201);
    assert!(service.post("shop-1", Some("k"), WAIT).await.replayed);
    // It does not come back: this client is not told what no repeat would be told.
    let call = service.post("shop-1", Some("lost"), WAIT);
    let storm = async {
        service.begun().await;
        away.store(true, Ordering::SeqCst);
        service.work.gate.add_permits(1);
    };
    let (got, ()) = tokio::join!(call, storm);
    assert_eq!((got.status, got.problem.as_str()), (503, "outcome-unknown"));
}

/// What two services answer when the quick one takes over from the slow one, whose lease of `k` ran out at work.
async fn overtaken(table: &Table, slow: &Service, quick: &Service, body: &str) -> (Got, Got) {
    let late = slow.post("shop-1", Some("k"), body);
    let takeover = async {
        slow.begun().await;
        table.over("k").await;
        quick.work.gate.add_permits(1);
        let taken = quick.post("shop-1", Some("k"), body).await;
        slow.work.gate.add_permits(1);
        taken
    };
    tokio::join!(late, takeover)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_lost_its_lease_answers_with_what_is_stored() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let keys = open(&connection).await;
    let layer = layer(keys, connection).lease(Duration::from_secs(1));
    let slow = service(layer.clone()).await;
    let quick = service(layer).await;
    let body = r#"{"do": "wait"}"#;
    let (late, taken) = overtaken(&table, &slow, &quick, body).await;
    assert_eq!((taken.status, taken.replayed), (201, false));
    assert!(taken.body.contains("\"attempt\": 2"), "{taken:?}");
    assert_eq!((late.status, late.replayed, &late.body), (201, true, &taken.body));
    // Taken over by somebody who is still at work: 409.
    let late = slow.post("shop-1", Some("j"), body);
    let takeover = async {
        slow.begun().await;
        table.over("j").await;
        let other = quick.post("shop-1", Some("j"), body);
        let release = async {
            quick.begun().await;
            quick.begun().await;
            slow.work.gate.add_permits(1);
        };
        // The first permit of `begun` is of the takeover before.
        tokio::join!(other, release).0
    };
    let gate = async {
        until("the late one was told", async || {
            slow.work.gate.available_permits() == 0
        })
        .await;
    };
    let late = async {
        let got = late.await;
        quick.work.gate.add_permits(1);
        got
    };
    let (late, taken, ()) = tokio::join!(late, takeover, gate);
    assert_eq!((late.status, late.problem.as_str()), (409, "in-progress"));
    assert_eq!(taken.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_kept_alive_outlasts_its_length() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let keys = open(&connection).await;
    let service = service(layer(keys, connection).lease(Duration::from_secs(1))).await;
    let body = r#"{"do": "keep"}"#;
    let call = service.post("shop-1", Some("k"), body);
    let look = async {
        service.begun().await;
        let began = "select now() - created_at > interval '2 s' from idempotency";
        table.until(began).await;
        let busy = service.post("shop-1", Some("k"), body).await;
        service.work.gate.add_permits(1);
        busy
    };
    let (done, busy) = tokio::join!(call, look);
    assert_eq!((busy.status, done.status), (409, 201));
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_does_not_stop_the_work() {
    let (table, service) = fixture().await;
    let call = service.post("shop-1", Some("k"), WAIT);
    let hang_up = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::select! {
            _ = call => panic!("it waits"),
            () = service.begun() => {}
        }
    });
    hang_up.await.unwrap();
    service.work.gate.add_permits(1);
    table
        .until("select exists (select from idempotency where status = 'done')")
        .await;
    let again = service.post("shop-1", Some("k"), WAIT).await;
    assert_eq!((again.status, again.replayed, service.runs()), (201, true, 1));
}

/// Between the look at the provider and the charge: is the key still ours?
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_finds_out_in_time_that_its_lease_is_lost() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let keys = open(&connection).await;
    let layer = layer(keys, connection).lease(Duration::from_secs(1));
    let slow = service(layer.clone()).await;
    let quick = service(layer).await;
    let body = r#"{"do": "renew"}"#;
    let (late, taken) = overtaken(&table, &slow, &quick, body).await;
    assert_eq!(taken.status, 201);
    assert_eq!(late.status, 502);
    let said = "the lease on shop-1 k is lost: the row is done, attempt 2, owner ";
    assert!(late.body.starts_with(said), "{late:?}");
    // Over, but nobody else has it: from here on it is ours for its whole length again.
    let call = slow.post("shop-1", Some("over"), body);
    let storm = async {
        slow.begun().await;
        table.over("over").await;
        slow.work.gate.add_permits(1);
    };
    let (got, ()) = tokio::join!(call, storm);
    assert_eq!(got.status, 201, "{got:?}");
}

/// A task that the handler left behind when it answered "unknown": it must not wake the lease, and must not charge.
#[tokio::test(flavor = "multi_thread")]
async fn what_outlives_its_handler_may_not_renew() {
    let (table, service) = fixture().await;
    let got = service
        .post("shop-1", Some("k"), r#"{"do": "leave-behind"}"#)
        .await;
    assert_eq!(got.status, 504);
    service.begun().await;
    service.work.gate.add_permits(1);
    until("the task has asked", async || {
        service.work.begun.available_permits() > 0
    })
    .await;
    assert_eq!(service.work.begun.available_permits(), 7, "it was refused");
    let over = "select locked_until <= now() from idempotency";
    assert!(
        table
            .db
            .client
            .query_one(over, &[])
            .await
            .unwrap()
            .get::<_, bool>(0)
    );
}
