//! The queue consumer: whatever is delivered again, and wherever it is killed, each message counts once.

use nix::sys::signal::Signal;

use crate::protocol::Table;
use crate::support::{Output, Spawned, example};

const MESSAGES: &str = r#"{"id":"m-1","account":"alice","amount":500}
{"id":"m-2","account":"alice","amount":1}
{"id":"m-1","account":"alice","amount":500}
{"id":"m-3","account":"bob","amount":7}
"#;

async fn consume(table: &Table, messages: &str) -> Output {
    let consumer = example("consumer", &["--database-url", &table.db.url]);
    consumer.stdin(messages).spawn().wait().await
}

async fn balance(table: &Table, name: &str) -> i64 {
    let query = "select balance from account where name = $1";
    table.db.client.query_one(query, &[&name]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_delivered_again_counts_once() {
    let table = Table::new().await;
    let first = consume(&table, MESSAGES).await.ok();
    assert_eq!(
        first,
        "ack m-1 balance 500\nack m-2 balance 501\nack m-1 balance 500 (done before)\nack m-3 balance 7\n"
    );
    let again = consume(&table, MESSAGES).await.ok();
    assert_eq!(again.matches("(done before)").count(), 4, "{again}");
    let other = consume(
        &table,
        "{\"id\":\"m-1\",\"account\":\"mallory\",\"amount\":500}\n",
    )
    .await
    .ok();
    assert_eq!(
        other,
        "reject m-1 another message with this id was delivered before\n"
    );
    assert_eq!(
        (balance(&table, "alice").await, balance(&table, "bob").await),
        (501, 7)
    );
    let claimed = "select count(*) = 0 from idempotency where status <> 'done'";
    table.until(claimed).await;
}

/// Two consumers get the same message at the same time, one of them stopped in mid-transaction: the other waits,
/// and does the work when the first one dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_dies_in_the_middle_leaves_the_message_to_the_next() {
    let table = Table::new().await;
    consume(&table, "").await.ok();
    // Held by us, so that the first consumer stands still between its claim and its commit.
    let blocker = table.db.connect().await;
    blocker
        .batch_execute("insert into account values ('alice', 0)")
        .await
        .unwrap();
    blocker
        .batch_execute("begin; select * from account for update")
        .await
        .unwrap();
    let consumer = || -> Spawned {
        example("consumer", &["--database-url", &table.db.url])
            .stdin(MESSAGES.lines().next().unwrap())
            .spawn()
    };
    let waiting = |number: i64| {
        format!(
            "select count(*) = {number} from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        )
    };
    let first = consumer();
    table.until(&waiting(1)).await;
    let second = consumer();
    table.until(&waiting(2)).await;
    first.signal(Signal::SIGKILL);
    first.kill9().await;
    // The server notices that a client is gone when it next talks to it.
    table
        .execute(
            "select pg_terminate_backend(pid) from pg_stat_activity
              where datname = current_database() and query like '%insert into account%' and wait_event_type = 'Lock'
              order by query_start limit 1",
        )
        .await;
    blocker.batch_execute("commit").await.unwrap();
    assert_eq!(second.wait().await.ok(), "ack m-1 balance 500\n");
    assert_eq!(balance(&table, "alice").await, 500);
}

/// Committed, and dead before the acknowledgement: the queue sends it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_acknowledgement_is_recognised() {
    let table = Table::new().await;
    consume(&table, "").await.ok();
    let many: Vec<String> = (0..400)
        .map(|number| format!("{{\"id\":\"m-{number}\",\"account\":\"alice\",\"amount\":1}}"))
        .collect();
    let messages = many.join("\n");
    for round in 1..=3 {
        let mut consumer = example("consumer", &["--database-url", &table.db.url])
            .stdin(messages.as_str())
            .spawn();
        consumer.wait_for_line(&format!("ack m-{} ", round * 60)).await;
        consumer.kill9().await;
    }
    let last = consume(&table, &messages).await.ok();
    assert_eq!(last.lines().count(), 400);
    assert!(last.contains("(done before)"), "an earlier run had got somewhere");
    assert_eq!(balance(&table, "alice").await, 400);
}
