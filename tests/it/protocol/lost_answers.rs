//! The server committed, and the answer never came.

use idemctl::error::Error;
use idemctl::protocol::{Request, Reservation};
use tokio_postgres::Client;

use super::{Table, acquire, lost, replay, request, response, short};
use crate::support::{Proxy, connect};

async fn proxied(table: &Table) -> (Proxy, String) {
    let proxy = Proxy::start(table.db.target()).await;
    let url = table.db.url_through(proxy.address.port());
    (proxy, url)
}

/// Holds up whatever writes into the table.
const TABLE: &str = "lock table idempotency in exclusive mode";
/// Holds up whatever changes a row that is there.
const ROW: &str = "update idempotency set owner = owner";

/// Runs `work` on a connection whose answer is cut off after the server has committed, which `committed` tells.
async fn cut_off<T>(
    table: &Table,
    lock_with: &str,
    committed: &str,
    work: impl AsyncFnOnce(&Client) -> T,
) -> T {
    let (proxy, url) = proxied(table).await;
    let client = connect(&url).await;
    // The server is held up, so that the question has arrived before the network goes silent.
    let mut locker = table.db.connect().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute(lock_with).await.unwrap();
    let waiting = format!(
        "select count(*) > 0 from {} where datname = current_database() and wait_event_type = 'Lock'",
        table.db.activity()
    );
    let storm = async {
        table.until(&waiting).await;
        proxy.hold();
        lock.commit().await.unwrap();
        table.until(committed).await;
        proxy.cut();
    };
    tokio::join!(work(&client), storm).0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_recognised_by_its_own_request_only() {
    for table in [Table::new().await, Table::partitioned().await] {
        let (keys, client) = (&table.keys, &table.db.client);
        let own = request("k");
        let claimed = "select exists (select from idempotency where key = 'k')";
        let error = cut_off(&table, TABLE, claimed, async |cut| {
            keys.reserve(cut, &own).await.unwrap_err()
        })
        .await;
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        assert!(error.needs_reconnect());

        let outcome = keys.reserve(client, &request("k")).await.unwrap();
        assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
        // Part of the lease is gone by now; its holder gets the whole of it.
        table
            .execute("update idempotency set locked_until = now() + interval '2 s'")
            .await;
        let mut lease = acquire(keys, client, &own).await;
        assert_eq!((lease.attempt(), lease.is_takeover()), (1, false));
        table
            .until("select locked_until > now() + interval '20 s' from idempotency where key = 'k'")
            .await;
        lease.complete(client, &response("x")).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_is_recognised_too() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut first = acquire(keys, client, &request("k")).await;
    table.lapse("k").await;
    let own = request("k");
    let taken = "select attempt = 2 from idempotency where key = 'k'";
    cut_off(&table, ROW, taken, async |cut| {
        keys.reserve(cut, &own).await.unwrap_err()
    })
    .await;
    let outcome = keys.reserve(client, &request("k")).await.unwrap();
    assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
    let mut lease = acquire(keys, client, &own).await;
    assert_eq!((lease.attempt(), lease.is_takeover()), (2, true));
    lost(first.complete(client, &response("first")).await);
    lease.complete(client, &response("second")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_own_claim_that_has_expired_is_a_takeover_with_a_token_of_its_own() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let own: Request = short("k");
    let mut forgotten = acquire(keys, client, &own).await;
    table.over("k").await;
    let mut lease = acquire(keys, client, &own).await;
    assert_eq!(
        lease.attempt(),
        2,
        "whether the work had begun, nobody knows any more"
    );
    assert_ne!(lease.token(), forgotten.token());
    lost(forgotten.complete(client, &response("first")).await);
    lease.complete(client, &response("second")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_is_recognised_by_its_own_lease_only() {
    for body in ["{\"id\":  1}", "no json"] {
        for table in [Table::new().await, Table::jsonb().await] {
            let (keys, client) = (&table.keys, &table.db.client);
            let mut lease = acquire(keys, client, &request("k")).await;
            let answer = response(body)
                .with_header("Content-Type", "application/json")
                .unwrap();
            let done = "select status = 'done' from idempotency where key = 'k'";
            let error = cut_off(&table, ROW, done, async |cut| {
                lease.complete(cut, &answer).await.unwrap_err()
            })
            .await;
            assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
            let before = table.row("k").await;
            // Another response is not what was stored.
            lost(lease.complete(client, &response("other")).await);
            lease.complete(client, &answer).await.unwrap();
            lost(lease.outcome_unknown(client, "x").await);
            assert_eq!(table.row("k").await, before);
            assert_eq!(replay(keys, client, &request("k")).await, answer);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_renewal_without_an_answer_the_token_alone_decides() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut lease = acquire(keys, client, &short("k")).await;
    let renewed = "select locked_until > created_at + interval '1500 ms' from idempotency where key = 'k'";
    let extra = std::time::Duration::from_secs(2);
    cut_off(&table, ROW, renewed, async |cut| {
        lease.renew(cut, extra).await.unwrap_err()
    })
    .await;
    table.over("k").await;
    // The end that the lease knew is past and not the row's; that must not cost the result.
    lease.complete(client, &response("x")).await.unwrap();
}
