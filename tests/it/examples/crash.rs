//! A service that dies after the charge and before it could write the answer down.

use nix::sys::signal::Signal;

use super::{PAYMENT, Server, calls, charges, faults, order, pay_until_answered, try_pay};
use crate::protocol::Table;
use crate::support::until;

/// What the provider was told, and what the client got, after a crash behind the charge and a retry.
struct Outcome {
    charges: Vec<String>,
    answer: super::Got,
}

async fn crash_after_the_charge(provider: &[&str], service: &[&str]) -> Outcome {
    let table = Table::new().await;
    let provider = Server::start("provider", provider).await;
    let dying = Server::payments(&table, &provider, service).await;
    // The money moves, and the answer never comes: time to die in.
    faults(&provider, &["hang-after"]).await;
    let url = dying.url.clone();
    let first = tokio::spawn(async move { try_pay(&url, "shop-1", "order-1", PAYMENT).await });
    until("the provider has charged", async || {
        !charges(&provider, &order("shop-1", "order-1")).await.is_empty()
    })
    .await;
    dying.process.kill9().await;
    assert_eq!(first.await.unwrap(), None, "the first client got no answer");

    let service = Server::payments(&table, &provider, service).await;
    let early = try_pay(&service.url, "shop-1", "order-1", PAYMENT).await.unwrap();
    assert_eq!(
        early.status, 409,
        "the dead service's lease still holds: {early:?}"
    );
    let answer = pay_until_answered(&service, "order-1").await;
    let again = try_pay(&service.url, "shop-1", "order-1", PAYMENT).await.unwrap();
    assert_eq!((again.status, &again.body), (answer.status, &answer.body));
    assert!(again.replayed);
    Outcome {
        charges: charges(&provider, &order("shop-1", "order-1")).await,
        answer,
    }
}

const ANSWER: &str = r#"{"amount":4990,"charge_id":"ch_1"}"#;

#[tokio::test(flavor = "multi_thread")]
async fn the_derived_key_charges_once() {
    let outcome = crash_after_the_charge(&[], &[]).await;
    assert_eq!(outcome.charges, ["ch_1"]);
    assert_eq!(
        (outcome.answer.status, outcome.answer.body.as_str()),
        (201, ANSWER)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_key_for_each_attempt_charges_twice() {
    let outcome = crash_after_the_charge(&[], &["--mistake", "fresh-keys"]).await;
    assert_eq!(
        outcome.charges,
        ["ch_1", "ch_2"],
        "this is what the harness is there to see"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_without_keys_is_asked_before_it_is_told_again() {
    let outcome = crash_after_the_charge(&["--keys", "ignore"], &["--look-up"]).await;
    assert_eq!(outcome.charges, ["ch_1"]);
    assert_eq!(
        (outcome.answer.status, outcome.answer.body.as_str()),
        (201, ANSWER)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_without_keys_that_is_not_asked_charges_twice() {
    let outcome = crash_after_the_charge(&["--keys", "ignore"], &[]).await;
    assert_eq!(
        outcome.charges,
        ["ch_1", "ch_2"],
        "this is what the harness is there to see"
    );
}

/// The charge comes to light only after the look-up: a miss is no proof until the lag is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_shows_late_is_waited_for() {
    let table = Table::new().await;
    let provider = Server::start("provider", &["--keys", "ignore"]).await;
    // The provider takes two seconds, the service waits for one and a half.
    let service = Server::payments(&table, &provider, &["--look-up", "--lag", "3000"]).await;
    faults(&provider, &["slow"]).await;
    let first = try_pay(&service.url, "shop-1", "order-1", PAYMENT).await.unwrap();
    assert_eq!(first.status, 502, "{first:?}");
    assert_eq!(charges(&provider, &order("shop-1", "order-1")).await.len(), 0);
    let answer = pay_until_answered(&service, "order-1").await;
    assert_eq!((answer.status, answer.body.as_str()), (201, ANSWER));
    assert_eq!(charges(&provider, &order("shop-1", "order-1")).await, ["ch_1"]);
}

/// Each way in which a provider can leave a service in the dark, with the client's repeats: one charge.
#[tokio::test(flavor = "multi_thread")]
async fn every_fault_of_the_provider_ends_in_one_charge_and_one_answer() {
    let table = Table::new().await;
    let provider = Server::start("provider", &[]).await;
    let service = Server::payments(&table, &provider, &[]).await;
    for fault in [
        "hang-after",
        "reset-after",
        "500-after",
        "500-before",
        "503-before",
        "slow",
    ] {
        faults(&provider, &[fault]).await;
        let first = try_pay(&service.url, "shop-1", fault, PAYMENT).await.unwrap();
        assert_eq!(first.status, 502, "{fault}: {first:?}");
        let answer = pay_until_answered(&service, fault).await;
        assert_eq!(answer.status, 201, "{fault}: {answer:?}");
        assert_eq!(
            charges(&provider, &order("shop-1", fault)).await.len(),
            1,
            "{fault}"
        );
        let stuck = "select count(*) = 0 from idempotency where status <> 'done'";
        table.until(stuck).await;
    }
}

/// `systemctl stop` in the middle of a charge: the client gets its answer, and then the process ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_is_told_to_end_brings_its_work_to_an_end() {
    let table = Table::new().await;
    let provider = Server::start("provider", &["--delay", "700"]).await;
    let service = Server::payments(&table, &provider, &[]).await;
    let url = service.url.clone();
    let paying = tokio::spawn(async move { try_pay(&url, "shop-1", "order-1", PAYMENT).await });
    until("the provider is told to charge", async || {
        calls(&provider).await == 1
    })
    .await;
    service.process.signal(Signal::SIGTERM);
    let paid = paying.await.unwrap().expect("an answer");
    assert_eq!((paid.status, paid.body.as_str()), (201, ANSWER));
    service.process.wait().await.ok();
    table.until("select status = 'done' from idempotency").await;
}

/// The same where the client has hung up, so that no connection is left to wait for: the charge that was made is
/// written down all the same.
#[tokio::test(flavor = "multi_thread")]
async fn work_whose_client_has_gone_is_brought_to_an_end_too() {
    let table = Table::new().await;
    let provider = Server::start("provider", &["--delay", "1000"]).await;
    let service = Server::payments(&table, &provider, &[]).await;
    let url = service.url.clone();
    let paying = tokio::spawn(async move { try_pay(&url, "shop-1", "order-1", PAYMENT).await });
    until("the provider is told to charge", async || {
        calls(&provider).await == 1
    })
    .await;
    paying.abort();
    assert!(paying.await.unwrap_err().is_cancelled());
    service.process.signal(Signal::SIGTERM);
    service.process.wait().await.ok();
    assert_eq!(charges(&provider, &order("shop-1", "order-1")).await, ["ch_1"]);
    let status = "select status || ' ' || status_code from idempotency";
    let row: String = table.db.client.query_one(status, &[]).await.unwrap().get(0);
    assert_eq!(row, "done 201");
}
