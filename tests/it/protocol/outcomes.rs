//! What a caller can get, and what beats what.

use std::sync::Arc;
use std::time::Duration;

use idemctl::error::Error;
use idemctl::protocol::{Abandoned, Difference, OnExpired, Request, Reservation};
use tokio::sync::Barrier;

use super::{Table, acquire, id, print, replay, request, response};

fn other_body(key: &str) -> Request {
    Request::new(id(key), print("pay 2"))
}

fn post(request: Request) -> Request {
    request.operation("POST /payments").unwrap()
}

/// One key's life with every outcome, in each kind of table.
async fn walk(table: &Table) {
    let (keys, client) = (&table.keys, &table.db.client);
    let mut lease = acquire(keys, client, &post(request("k"))).await;
    assert_eq!((lease.attempt(), lease.is_takeover()), (1, false));
    let provider_key = lease.provider_key();
    let outcome = keys.reserve(client, &post(request("k"))).await.unwrap();
    let Reservation::InProgress(busy) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(busy.attempt, 1);
    assert!(busy.owner.is_some());
    assert!((5.0..6.3).contains(&busy.retry_after.as_secs_f64()), "{busy:?}");

    // Mismatch beats in progress, expired and replay; the operation is told before the body.
    let delete = || other_body("k").operation("DELETE /payments").unwrap();
    for stage in ["in progress", "expired", "done"] {
        match stage {
            "expired" => table.lapse("k").await,
            "done" => {
                lease = acquire(keys, client, &post(request("k"))).await;
                assert_eq!((lease.attempt(), lease.is_takeover()), (2, true));
                assert_eq!(lease.provider_key(), provider_key);
                lease.complete(client, &response("{\"id\": 1}")).await.unwrap();
            }
            _ => {}
        }
        for (request, expected) in [
            (post(other_body("k")), Difference::Body),
            (other_body("k"), Difference::Body),
            (delete(), Difference::Operation),
        ] {
            let before = table.row("k").await;
            let outcome = keys.reserve(client, &request).await.unwrap();
            assert!(
                matches!(&outcome, Reservation::Mismatch(found) if *found == expected),
                "{stage}: {outcome:?}"
            );
            assert_eq!(table.row("k").await, before, "{stage}");
        }
    }
    let stored = replay(keys, client, &post(request("k"))).await;
    assert_eq!(stored, response("{\"id\": 1}"));
    // The pair is the key: another shop has its own.
    let other = idemctl::key::KeyId::new("shop-2", "k").unwrap();
    let mut lease = acquire(keys, client, &Request::new(other, print("pay 3"))).await;
    assert_eq!(lease.abandon(client).await.unwrap(), Abandoned::Deleted);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_on_every_kind_of_table() {
    for table in [
        Table::new().await,
        Table::jsonb().await,
        Table::partitioned().await,
    ] {
        walk(&table).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_rule_for_the_fingerprint_still_counts() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut lease = acquire(keys, client, &Request::new(id("k"), print("old rule"))).await;
    let changed = || request("k").or_any_of([print("older"), print("old rule")]);
    let outcome = keys.reserve(client, &changed()).await.unwrap();
    assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
    lease.outcome_unknown(client, "timeout").await.unwrap();
    let mut lease = acquire(keys, client, &changed()).await;
    assert_eq!(lease.attempt(), 2);
    lease.complete(client, &response("x")).await.unwrap();
    assert_eq!(replay(keys, client, &changed()).await.body(), b"x");
    // A new row gets the current one.
    let _lease = acquire(keys, client, &request("new").or_any_of([print("old rule")])).await;
    let row = table.row("new").await.unwrap();
    assert!(row.contains(print("pay 1").as_str()), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_row_is_returned_untouched_to_those_who_ask_first() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let first = request("k").provider("acme").unwrap().order_id("o-1").unwrap();
    let mut lease = acquire(keys, client, &first).await;
    let token = lease.token();
    lease.outcome_unknown(client, "504").await.unwrap();
    let before = table.row("k").await;
    let asking = request("k").on_expired(OnExpired::Return);
    let Reservation::Expired(found) = keys.reserve(client, &asking).await.unwrap() else {
        panic!("not expired")
    };
    assert_eq!(found.token, Some(token));
    assert_eq!(found.last_error.as_deref(), Some("504"));
    assert_eq!(
        (found.provider.as_deref(), found.order_id.as_deref()),
        (Some("acme"), Some("o-1"))
    );
    assert_eq!(table.row("k").await, before);
    // A retry that would go to another provider, or under another id, is not protected by the provider key.
    for retry in [
        request("k").provider("other").unwrap(),
        request("k").order_id("o-2").unwrap(),
    ] {
        let outcome = keys.reserve(client, &retry).await.unwrap();
        assert!(matches!(outcome, Reservation::Expired(_)), "{outcome:?}");
        assert_eq!(table.row("k").await, before);
    }
    // One that leaves it open takes over, and is told what the row says.
    let lease = acquire(keys, client, &request("k")).await;
    assert_eq!((lease.provider(), lease.order_id()), (Some("acme"), "o-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_judgement_of_the_provider_holds_only_for_the_attempt_that_was_judged() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut first = acquire(keys, client, &request("k")).await;
    first.outcome_unknown(client, "504").await.unwrap();
    let judged = match keys
        .reserve(client, &request("k").on_expired(OnExpired::Return))
        .await
        .unwrap()
    {
        Reservation::Expired(found) => found,
        other => panic!("{other:?}"),
    };
    // While the provider was asked, another retry took the key over, and its outcome is unknown too.
    let mut second = acquire(keys, client, &request("k")).await;
    second.outcome_unknown(client, "504 again").await.unwrap();
    let late = request("k").take_over_only(judged);
    let Reservation::Expired(now) = keys.reserve(client, &late).await.unwrap() else {
        panic!("taken over on a judgement that does not hold any more")
    };
    assert_eq!((now.attempt, now.last_error.as_deref()), (2, Some("504 again")));
    let lease = acquire(keys, client, &request("k").take_over_only(now)).await;
    assert_eq!(lease.attempt(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_have_reached_the_provider_is_never_abandoned_away() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut lease = acquire(keys, client, &request("k")).await;
    lease.outcome_unknown(client, "504").await.unwrap();
    assert_eq!(
        lease.abandon(client).await.unwrap(),
        Abandoned::Kept,
        "a clean-up that comes behind it"
    );
    let mut retry = acquire(keys, client, &request("k")).await;
    assert_eq!(retry.abandon(client).await.unwrap(), Abandoned::Kept);
    let record = keys.store().get(client, &id("k")).await.unwrap().unwrap();
    assert_eq!(record.last_error.as_deref(), Some("504"), "the only fact is kept");
    // An answer that comes late is still taken, as long as nobody else has the key.
    retry.complete(client, &response("late")).await.unwrap();
    assert_eq!(replay(keys, client, &request("k")).await.body(), b"late");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_retries_of_an_expired_row_one_wins() {
    for table in [Table::new().await, Table::partitioned().await] {
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(Arc::new(table.db.connect().await));
        }
        for round in 0..25 {
            let key = format!("k{round}");
            let mut lease = acquire(&table.keys, &table.db.client, &request(&key)).await;
            lease.outcome_unknown(&table.db.client, "gone").await.unwrap();
            let barrier = Arc::new(Barrier::new(clients.len()));
            let mut racers = Vec::new();
            for client in &clients {
                let (keys, client, key, barrier) =
                    (table.keys.clone(), client.clone(), key.clone(), barrier.clone());
                racers.push(tokio::spawn(async move {
                    barrier.wait().await;
                    keys.reserve(&client, &request(&key)).await.unwrap()
                }));
            }
            let mut winners = Vec::new();
            for racer in racers {
                match racer.await.unwrap() {
                    Reservation::Acquired(lease) => winners.push(lease),
                    Reservation::InProgress(busy) => assert_eq!(busy.attempt, 2),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(winners.len(), 1);
            assert_eq!(winners[0].attempt(), 2);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_sent_away_for_longer_than_the_lease_and_a_few_seconds() {
    let table = Table::new().await;
    for (rest, least, most) in [
        ("2 s", 1.5, 2.6),
        ("1 hour", 5.0, 6.3),
        ("10 ms", 0.0, 0.1),
        ("infinity", 5.0, 6.3),
    ] {
        let _lease = acquire(&table.keys, &table.db.client, &request(rest)).await;
        let end = if rest == "infinity" {
            "'infinity'".to_owned()
        } else {
            format!("now() + interval '{rest}'")
        };
        table
            .execute(&format!(
                "update idempotency set locked_until = {end} where key = '{rest}'"
            ))
            .await;
        match table
            .keys
            .reserve(&table.db.client, &request(rest))
            .await
            .unwrap()
        {
            Reservation::InProgress(busy) => {
                let wait = busy.retry_after.as_secs_f64();
                assert!((least..most).contains(&wait), "{rest}: {wait}");
            }
            // 10 ms may be over already.
            Reservation::Acquired(lease) => assert_eq!((rest, lease.attempt()), ("10 ms", 2)),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_vanishes_is_neither_an_error_nor_a_claim_without_a_row() {
    let table = Table::new().await;
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let janitor = {
        let (client, stop) = (table.db.connect().await, stop.clone());
        tokio::spawn(async move {
            let mut deleted = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                deleted += client
                    .execute("delete from idempotency where status = 'done'", &[])
                    .await
                    .unwrap();
            }
            deleted
        })
    };
    let mut workers = Vec::new();
    for _ in 0..4 {
        let (keys, client) = (table.keys.clone(), table.db.connect().await);
        workers.push(tokio::spawn(async move {
            let mut claims = 0_u64;
            for _ in 0..250 {
                if let Reservation::Acquired(mut lease) = keys.reserve(&client, &request("k")).await.unwrap()
                {
                    // Fresh means that there is a row, and that it is ours.
                    lease.complete(&client, &response("x")).await.unwrap();
                    claims += 1;
                }
            }
            claims
        }));
    }
    let mut claims = 0;
    for worker in workers {
        claims += worker.await.unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let deleted = janitor.await.unwrap();
    assert!(deleted > 20, "the rows did vanish: {deleted}");
    let left = u64::from(table.row("k").await.is_some());
    assert_eq!(claims, deleted + left, "each claim had a row of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_with_an_unknown_status_is_never_touched() {
    let table = Table::new().await;
    let mut lease = acquire(&table.keys, &table.db.client, &request("k")).await;
    table
        .execute("update idempotency set status = 'parked', locked_until = now() - interval '1 h'")
        .await;
    let before = table.row("k").await;
    let error = table
        .keys
        .reserve(&table.db.client, &request("k"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Inconsistent { .. }), "{error:?}");
    let error = lease
        .complete(&table.db.client, &response("x"))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Inconsistent { .. }), "{error:?}");
    assert_eq!(table.row("k").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_the_arguments() {
    for length in [
        Duration::ZERO,
        Duration::from_millis(999),
        Duration::from_secs(86_401),
    ] {
        let error = request("k").lease(length).unwrap_err();
        assert!(
            matches!(error, Error::Invalid { field: "lease", .. }),
            "{error:?}"
        );
    }
    let table = Table::new().await;
    let lease = acquire(&table.keys, &table.db.client, &request("k")).await;
    let error = lease.renew(&table.db.client, Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(error, Error::Invalid { field: "lease", .. }),
        "{error:?}"
    );
}
