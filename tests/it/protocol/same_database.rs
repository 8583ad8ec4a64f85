//! Claim, work and result in one transaction of the application, which has its own pool.

use deadpool_postgres::{Manager, Pool};
use idemctl::error::Error;
use idemctl::protocol::{Difference, Idempotency, Request, TransactionReservation};
use tokio_postgres::NoTls;

use super::{Table, acquire, id, print, replay, request, response};

async fn shop() -> (Table, Pool) {
    let table = Table::new().await;
    table
        .db
        .client
        .batch_execute("create table charge (id bigint generated always as identity, amount int)")
        .await
        .unwrap();
    let manager = Manager::new(table.db.url.parse().unwrap(), NoTls);
    (table, Pool::builder(manager).max_size(8).build().unwrap())
}

/// One request as an application handles it; `commit` says how it ends.
async fn pay(keys: &Idempotency, pool: &Pool, request: &Request, commit: bool) -> Result<Vec<u8>, Error> {
    let mut client = pool.get().await.unwrap();
    let tx = client.transaction().await?;
    match keys.reserve_in(&*tx, request).await? {
        TransactionReservation::Fresh(mut claim) => {
            let row = tx
                .query_one("insert into charge (amount) values (1) returning id", &[])
                .await?;
            let body = format!("{{\"charge\": {}}}", row.get::<_, i64>(0)).into_bytes();
            claim.finish(&*tx, &response(body.clone())).await?;
            if commit {
                tx.commit().await?;
                Ok(body)
            } else {
                tx.rollback().await?;
                Ok(b"rolled back".to_vec())
            }
        }
        TransactionReservation::Replay(replay) => Ok(replay.response.body().to_vec()),
        other => panic!("{other:?}"),
    }
}

async fn charges(table: &Table) -> i64 {
    table
        .db
        .client
        .query_one("select count(*) from charge", &[])
        .await
        .unwrap()
        .get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_waits_and_gets_the_result_or_does_the_work() {
    for commit in [true, false] {
        let (table, pool) = shop().await;
        let mut client = pool.get().await.unwrap();
        let tx = client.transaction().await.unwrap();
        let TransactionReservation::Fresh(mut claim) =
            table.keys.reserve_in(&*tx, &request("k")).await.unwrap()
        else {
            panic!("not fresh")
        };
        let duplicate = {
            let (keys, pool) = (table.keys.clone(), pool.clone());
            tokio::spawn(async move { pay(&keys, &pool, &request("k"), true).await.unwrap() })
        };
        table
            .until(&format!(
                "select count(*) > 0 from {} where datname = current_database() and wait_event_type = 'Lock'",
                table.db.activity()
            ))
            .await;
        assert!(!duplicate.is_finished());
        claim.finish(&*tx, &response("the first")).await.unwrap();
        if commit {
            tx.commit().await.unwrap();
            assert_eq!(duplicate.await.unwrap(), b"the first");
            assert_eq!(charges(&table).await, 0);
        } else {
            tx.rollback().await.unwrap();
            assert_eq!(duplicate.await.unwrap(), b"{\"charge\": 1}");
            assert_eq!(charges(&table).await, 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_duplicates_make_one_charge() {
    let (table, pool) = shop().await;
    for round in 0..20 {
        let mut tasks = Vec::new();
        for n in 0..8 {
            let (keys, pool) = (table.keys.clone(), pool.clone());
            // One of them rolls back if it comes first.
            tasks.push(tokio::spawn(async move {
                pay(&keys, &pool, &request(&format!("k{round}")), n > 0)
                    .await
                    .unwrap()
            }));
        }
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        answers.retain(|answer| answer != b"rolled back");
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
        assert_eq!(charges(&table).await, round + 1);
    }
    let stored = replay(&table.keys, &table.db.client, &request("k0")).await;
    assert!(stored.body().starts_with(b"{\"charge\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_outcomes() {
    let _private = crate::support::not_on_citus("a node has no snapshot before its first statement").await;
    let (table, pool) = shop().await;
    let (keys, client) = (&table.keys, &table.db.client);
    pay(keys, &pool, &request("k"), true).await.unwrap();
    let mut own = table.db.connect().await;
    let tx = own.transaction().await.unwrap();
    let outcome = keys
        .reserve_in(&tx, &Request::new(id("k"), print("pay 2")))
        .await
        .unwrap();
    assert!(
        matches!(outcome, TransactionReservation::Mismatch(Difference::Body)),
        "{outcome:?}"
    );
    tx.rollback().await.unwrap();
    let mut lease = acquire(keys, client, &request("leased")).await;
    let tx = own.transaction().await.unwrap();
    let outcome = keys.reserve_in(&tx, &request("leased")).await.unwrap();
    assert!(
        matches!(outcome, TransactionReservation::InProgress(_)),
        "{outcome:?}"
    );
    tx.rollback().await.unwrap();
    lease.outcome_unknown(client, "504").await.unwrap();
    let tx = own.transaction().await.unwrap();
    let outcome = keys.reserve_in(&tx, &request("leased")).await.unwrap();
    assert!(
        matches!(outcome, TransactionReservation::Expired(_)),
        "{outcome:?}"
    );
    // A claim that is not in this transaction cannot be finished in it.
    tx.rollback().await.unwrap();
    let tx = own.transaction().await.unwrap();
    let TransactionReservation::Fresh(mut claim) = keys.reserve_in(&tx, &request("gone")).await.unwrap()
    else {
        panic!("not fresh")
    };
    tx.rollback().await.unwrap();
    let tx = own.transaction().await.unwrap();
    let error = claim.finish(&tx, &response("x")).await.unwrap_err();
    assert!(matches!(error, Error::Inconsistent { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serialization_failure_says_that_it_may_be_tried_again() {
    let _private = crate::support::not_on_citus("a node has no snapshot before its first statement").await;
    let (table, pool) = shop().await;
    for level in ["repeatable read", "serializable"] {
        let key = request(level);
        let mut own = table.db.connect().await;
        let tx = own.transaction().await.unwrap();
        tx.batch_execute(&format!(
            "set transaction isolation level {level}; select count(*) from charge"
        ))
        .await
        .unwrap();
        pay(&table.keys, &pool, &request(level), true).await.unwrap();
        let error = table.keys.reserve_in(&tx, &key).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        assert_eq!(error.sqlstate(), Some("40001"));
        tx.rollback().await.unwrap();
        // The whole transaction again.
        assert!(
            pay(&table.keys, &pool, &key, true)
                .await
                .unwrap()
                .starts_with(b"{\"charge\"")
        );
    }
    assert_eq!(charges(&table).await, 2);
}
