//! Holders that are real processes: killed, and stopped for a while.

use std::time::Duration;

use idemctl::error::{Error, Result};
use idemctl::protocol::Reservation;
use nix::sys::signal::Signal;

use super::{Table, acquire, open, replay, request, response, short};
use crate::support::{Spawned, connect};

const URL: &str = "TEST_URL";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process"]
async fn child_holder() {
    let client = connect(&std::env::var(URL).unwrap()).await;
    let keys = open(&client).await;
    let mut lease = acquire(&keys, &client, &short("k")).await;
    println!("holding {} {}", lease.provider_key(), lease.token());
    // At work, until the parent (which stops this process meanwhile) lets it go on.
    crate::support::until("the parent lets go", async || {
        client
            .query_one("select to_regclass('go_on') is not null", &[])
            .await
            .unwrap()
            .get(0)
    })
    .await;
    say("complete", &lease.complete(&client, &response("late")).await);
    say("renew", &lease.renew(&client, Duration::from_mins(1)).await);
    say("abandon", &lease.abandon(&client).await);
    say("unknown", &lease.outcome_unknown(&client, "late").await);
    println!("the end");
}

fn say<T>(what: &str, result: &Result<T>) {
    let result = match result {
        Ok(_) => "did it".to_owned(),
        Err(Error::LeaseLost { found, .. }) => format!("lost: {found}"),
        Err(error) => error.to_string(),
    };
    println!("{what}: {result}");
}

fn holder(table: &Table) -> Spawned {
    Spawned::test("protocol::processes::child_holder", &[(URL, &table.db.url)])
}

#[tokio::test(flavor = "multi_thread")]
async fn after_kill_9_the_retry_takes_over_with_the_same_provider_key() {
    for table in [Table::new().await, Table::partitioned().await] {
        let (keys, client) = (&table.keys, &table.db.client);
        let mut child = holder(&table);
        let line = child.wait_for_line("holding ").await;
        let outcome = keys.reserve(client, &request("k")).await.unwrap();
        assert!(matches!(outcome, Reservation::InProgress(_)), "{outcome:?}");
        child.kill9().await;
        table.over("k").await;
        let mut lease = acquire(keys, client, &request("k")).await;
        assert_eq!((lease.attempt(), lease.is_takeover()), (2, true));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[words.len() - 2], lease.provider_key());
        assert_ne!(words[words.len() - 1], lease.token().to_string());
        lease.complete(client, &response("x")).await.unwrap();
        assert_eq!(replay(keys, client, &request("k")).await.body(), b"x");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_holder_comes_back_to_a_lost_lease() {
    for finished in [false, true] {
        let table = Table::new().await;
        let (keys, client) = (&table.keys, &table.db.client);
        let mut child = holder(&table);
        child.wait_for_line("holding ").await;
        child.signal(Signal::SIGSTOP);
        table.over("k").await;
        let mut lease = acquire(keys, client, &request("k")).await;
        let state = if finished {
            lease.complete(client, &response("second")).await.unwrap();
            "done"
        } else {
            "in_progress"
        };
        let before = table.row("k").await.unwrap();
        table
            .db
            .client
            .batch_execute("create table go_on ()")
            .await
            .unwrap();
        child.signal(Signal::SIGCONT);
        let said = child.wait().await.ok();
        for what in ["complete", "renew", "abandon", "unknown"] {
            let line = format!("{what}: lost: the row is {state}, attempt 2, owner ");
            assert!(said.contains(&line), "{said}");
        }
        assert_eq!(table.row("k").await.unwrap(), before);
        if !finished {
            lease.complete(client, &response("second")).await.unwrap();
        }
        assert_eq!(replay(keys, client, &request("k")).await.body(), b"second");
    }
}
