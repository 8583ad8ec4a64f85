//! Claims whose answer is lost or whose client hangs up, and storms of equal requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use idemctl::error::Result;
use idemctl::http::IdempotencyLayer;
use idemctl::protocol::{Reservation, SingleFlight};
use idemctl::response::Response;
use idemctl::store::{Answer, Executor, Params, Statement};
use tokio_postgres::Client;

use super::{client, fixture, service, unreachable};
use crate::protocol::{Table, acquire, open, request};

const PAY: &str = r#"{"amount": 4990}"#;

/// Runs the statement; of the first one the answer never arrives.
struct Lossy {
    client: Arc<Client>,
    statements: Arc<AtomicUsize>,
}

impl Executor for Lossy {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        let answer = self.client.run(statement, params).await?;
        match self.statements.fetch_add(1, Ordering::SeqCst) {
            0 => Err(unreachable()),
            _ => Ok(answer),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_was_lost_is_recognised() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let keys = open(&connection).await;
    let statements = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&statements);
    let connections = move || {
        let lossy = Lossy {
            client: Arc::clone(&connection),
            statements: Arc::clone(&count),
        };
        async move { Ok(lossy) }
    };
    let service = service(IdempotencyLayer::new(keys, connections, client)).await;
    let got = service.post("shop-1", Some("k"), PAY).await;
    assert_eq!(
        (got.status, got.replayed, service.runs()),
        (201, false, 1),
        "{got:?}"
    );
    assert!(
        got.body.contains("\"attempt\": 1"),
        "no takeover of itself: {got:?}"
    );
}

/// The claim waits for a lock when the client goes away: the key must not be left claimed by nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_over_the_claim_does_not_leave_it_to_nobody() {
    let (table, service) = fixture().await;
    let blocker = table.db.connect().await;
    blocker
        .batch_execute("begin; lock table idempotency in exclusive mode")
        .await
        .unwrap();
    let call = service.post("shop-1", Some("k"), PAY);
    let waits = format!(
        "select count(*) > 0 from {} where wait_event_type = 'Lock'",
        table.db.activity()
    );
    tokio::select! {
        got = call => panic!("it waits for the lock: {got:?}"),
        () = table.until(&waits) => {}
    }
    blocker.batch_execute("commit").await.unwrap();
    let done = "select exists (select from idempotency where status = 'done')";
    table.until(done).await;
    let again = service.post("shop-1", Some("k"), PAY).await;
    assert_eq!((again.status, again.replayed, service.runs()), (201, true, 1));
}

/// Counts statements.
struct Counted<'a> {
    client: &'a Client,
    statements: AtomicUsize,
}

impl Executor for Counted<'_> {
    async fn run(&self, statement: &Statement, params: &Params<'_>) -> Result<Answer> {
        self.statements.fetch_add(1, Ordering::SeqCst);
        self.client.run(statement, params).await
    }
}

/// On one thread: all fifty have asked before the database can have answered the first.
#[tokio::test]
async fn a_storm_of_equal_requests_asks_once() {
    let table = Table::new().await;
    let counted = Counted {
        client: &table.db.client,
        statements: AtomicUsize::new(0),
    };
    let flight = SingleFlight::new(table.keys.clone());
    let storm = || async {
        let wishes: Vec<_> = (0..50).map(|_| request("hot")).collect();
        let answers = wishes.iter().map(|wish| flight.reserve(&counted, wish));
        let answers: Vec<_> = join_all(answers).await.into_iter().map(Result::unwrap).collect();
        (answers, counted.statements.swap(0, Ordering::SeqCst))
    };
    let (answers, statements) = storm().await;
    assert_eq!(statements, 1);
    let mut won = Vec::new();
    let mut waits = Vec::new();
    for answer in answers {
        match answer {
            Reservation::Acquired(lease) => won.push(lease),
            Reservation::InProgress(busy) => waits.push(busy.retry_after),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((won.len(), waits.len()), (1, 49));
    assert!(
        waits
            .iter()
            .all(|wait| (Duration::from_secs(5)..Duration::from_secs(7)).contains(wait))
    );
    waits.dedup();
    assert!(waits.len() > 40, "each has a jitter of its own");

    let answer = Response::new(201, "done").unwrap();
    won[0].complete(&table.db.client, &answer).await.unwrap();
    let (answers, statements) = storm().await;
    assert_eq!(statements, 1);
    for found in answers {
        let Reservation::Replay(replay) = found else {
            panic!("{found:?}")
        };
        assert_eq!(replay.response, answer);
    }
    // Another body is another question, and one after the other each asks.
    let other = idemctl::protocol::Request::new(request("hot").id().clone(), crate::protocol::print("pay 2"));
    let same = request("hot");
    let (one, two) = tokio::join!(flight.reserve(&counted, &same), flight.reserve(&counted, &other));
    assert!(matches!(
        (one, two),
        (Ok(Reservation::Replay(_)), Ok(Reservation::Mismatch(_)))
    ));
    assert_eq!(counted.statements.swap(0, Ordering::SeqCst), 2);
}

/// The first is given up before its answer comes: the next one asks, and nobody waits for ever.
#[tokio::test]
async fn when_the_first_is_given_up_another_one_asks() {
    let table = Table::new().await;
    let flight = SingleFlight::new(table.keys.clone());
    let wish = request("k");
    let _lease = acquire(&table.keys, &table.db.client, &wish).await;
    let (first, second) = (request("k"), request("k"));
    let mut given_up = Box::pin(flight.reserve(&table.db.client, &first));
    assert!((&mut given_up).now_or_never().is_none());
    let next = flight.reserve(&table.db.client, &second);
    let drop_first = async { drop(given_up) };
    let (answer, ()) = tokio::join!(next, drop_first);
    assert!(matches!(answer, Ok(Reservation::InProgress(_))), "{answer:?}");
}

/// Takes the statement and never answers.
struct Mute;

impl Executor for Mute {
    async fn run(&self, _: &Statement, _: &Params<'_>) -> Result<Answer> {
        std::future::pending().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_never_answers_is_given_up() {
    let table = Table::new().await;
    let connections = || async { Ok(Mute) };
    let layer = IdempotencyLayer::new(table.keys.clone(), connections, client)
        .statement_timeout(Duration::from_millis(200))
        .single_flight();
    let service = service(layer.clone()).await;
    let started = std::time::Instant::now();
    let calls = (0..5).map(|_| service.post("shop-1", Some("k"), PAY));
    for got in join_all(calls).await {
        assert_eq!(
            (got.status, got.problem.as_str()),
            (503, "unavailable"),
            "{got:?}"
        );
    }
    // Three seconds of patience for the one that asked; nobody waits behind it for ever.
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(service.runs(), 0);
    layer.idle().await;
}

/// The answer to the claim is lost, and the database away for longer than the client is kept waiting: the claim does
/// not stay with nobody for a whole lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_given_up_is_given_back() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let away = Arc::new(AtomicUsize::new(0));
    let switch = Arc::clone(&away);
    let connections = move || {
        let lossy = Lossy {
            client: Arc::clone(&connection),
            statements: Arc::clone(&switch),
        };
        let first = switch.load(Ordering::SeqCst) == 0;
        let back = switch.load(Ordering::SeqCst) > 10;
        async move {
            if first || back {
                Ok(lossy)
            } else {
                Err(unreachable())
            }
        }
    };
    let layer = IdempotencyLayer::new(table.keys.clone(), connections, client).lease(Duration::from_hours(1));
    let service = service(layer).await;
    let got = service.post("shop-1", Some("k"), PAY).await;
    assert_eq!(
        (got.status, got.problem.as_str(), service.runs()),
        (503, "unavailable", 0)
    );
    assert!(table.row("k").await.is_some(), "it was committed");
    away.store(11, Ordering::SeqCst);
    table.until("select count(*) = 0 from idempotency").await;
    let got = service.post("shop-1", Some("k"), PAY).await;
    assert_eq!((got.status, got.replayed), (201, false), "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_do_not_fit_a_request_are_said_not_to() {
    let table = Table::new().await;
    let connection = Arc::new(table.db.connect().await);
    let layer = super::layer(table.keys.clone(), connection).order_id(|_, _| "x".repeat(300));
    let service = service(layer).await;
    let got = service.post("shop-1", Some("k"), PAY).await;
    assert_eq!(
        (got.status, got.problem.as_str()),
        (500, "misconfigured"),
        "{got:?}"
    );
    assert_eq!(got.header("retry-after"), None, "a repeat fares no better");
}
