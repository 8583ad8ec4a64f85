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

/// The ids of the messages that the queue may forget.
fn acknowledged(said: &str) -> Vec<String> {
    let acks = said.lines().filter_map(|line| line.strip_prefix("ack "));
    acks.map(|ack| ack.split(' ').next().unwrap().to_owned())
        .collect()
}

/// Committed, and dead before the acknowledgement: the queue sends it again. What was acknowledged it never sends
/// again, so an acknowledgement that came too early would be missing in the balance.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_acknowledgement_is_recognised() {
    let table = Table::new().await;
    consume(&table, "").await.ok();
    let mut queue: Vec<(String, String)> = (0..400)
        .map(|number| {
            let id = format!("m-{number}");
            let message = format!("{{\"id\":\"{id}\",\"account\":\"alice\",\"amount\":1}}\n");
            (id, message)
        })
        .collect();
    let batch = |queue: &[(String, String)]| -> String {
        queue.iter().map(|(_, message)| message.as_str()).collect()
    };
    let mut killed = 0;
    while queue.len() > 100 && killed < 5 {
        let mut consumer = example("consumer", &["--database-url", &table.db.url])
            .stdin(batch(&queue))
            .spawn();
        consumer.wait_for_line(&format!("ack {} ", queue[40].0)).await;
        let acks = acknowledged(&consumer.kill9().await.stdout);
        assert!(acks.len() > 40);
        queue.retain(|(id, _)| !acks.contains(id));
        killed += 1;
    }
    assert!(killed > 0);
    let last = consume(&table, &batch(&queue)).await.ok();
    assert_eq!(acknowledged(&last).len(), queue.len());
    assert_eq!(balance(&table, "alice").await, 400);
}

/// The commit itself stands still: nothing is acknowledged before it is over. The consumer dies right there, the
/// commit comes to its end, and the queue, which heard nothing, sends the message again.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_before_its_commit() {
    let table = Table::new().await;
    consume(&table, "").await.ok();
    let blocker = table.db.connect().await;
    let gate = "create table gate (); grant all on gate to public;
        create function pass() returns trigger language plpgsql as
            $$ begin lock table gate in share mode; return null; end $$;
        create constraint trigger at_commit after insert or update on account
            deferrable initially deferred for each row execute function pass()";
    blocker.batch_execute(gate).await.unwrap();
    let hold = "begin; lock table gate in exclusive mode";
    blocker.batch_execute(hold).await.unwrap();
    let message = MESSAGES.lines().next().unwrap();
    let consumer = example("consumer", &["--database-url", &table.db.url])
        .stdin(message)
        .spawn();
    let committing = "select count(*) = 1 from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query ilike 'commit%'";
    table.until(committing).await;
    let killed = consumer.kill9().await;
    assert_eq!(killed.stdout, "", "acknowledged before the commit");
    // The server does not notice that nobody waits for its commit any more.
    blocker.batch_execute("commit").await.unwrap();
    table.until("select count(*) = 1 from account").await;
    let again = consume(&table, message).await.ok();
    assert_eq!(again, "ack m-1 balance 500 (done before)\n");
    assert_eq!(balance(&table, "alice").await, 500);
}

/// Messages that can never succeed are given away, each with its reason, and those behind them get their turn.
#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_succeed_is_rejected_and_stops_nobody() {
    let table = Table::new().await;
    let mut messages = Vec::new();
    for line in [
        "no json",
        r#"{"id":"m-1"}"#,
        r#"{"id":"a\nack m-9","account":"alice","amount":1}"#,
        r#"{"id":"","account":"alice","amount":1}"#,
        r#"{"id":"m-2","account":"alice","amount":9223372036854775808}"#,
        r#"{"id":"m-3","account":"alice","amount":9223372036854775807}"#,
        r#"{"id":"m-4","account":"alice","amount":1}"#,
        r#"{"id":"m-5","account":"nul\u0000","amount":1}"#,
        r#"{"id":"m-6","account":"bob","amount":7}"#,
    ] {
        messages.extend_from_slice(line.as_bytes());
        messages.push(b'\n');
    }
    messages.extend_from_slice(b"\xff\xfe\n");
    let consumer = example("consumer", &["--database-url", &table.db.url]).stdin(messages);
    let said = consumer.spawn().wait().await.ok();
    let heads = [
        "reject line 1 expected",
        "reject line 2 missing field",
        "reject line 3 key has the control character U+000A",
        "reject line 4 key is empty",
        "reject line 5 ",
        "ack m-3 balance 9223372036854775807",
        "reject m-4 ",
        "reject m-5 ",
        "ack m-6 balance 7",
        "reject line 10 ",
    ];
    assert_eq!(said.lines().count(), heads.len(), "{said}");
    for (line, head) in said.lines().zip(heads) {
        assert!(line.starts_with(head), "{head:?} in\n{said}");
    }
    assert!(said.contains("out of range"), "{said}");
    assert_eq!(balance(&table, "bob").await, 7);
    table.until("select count(*) = 2 from idempotency").await;
}

/// A collision that PostgreSQL ends (SQLSTATE 40001) is the transaction's bad luck: it is simply run again. Anything
/// else that is not the message's fault is left to the queue, unacknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_collision_is_run_again_and_other_trouble_is_left_to_the_queue() {
    let table = Table::new().await;
    consume(&table, "").await.ok();
    // A sequence is not rolled back, so the function knows how often it was called.
    let unlucky = "create sequence calls;
        create function collide() returns trigger language plpgsql as $$ begin
            if nextval('calls') <= 3 then raise exception 'collided' using errcode = '40001'; end if;
            return new;
        end $$;
        create trigger unlucky before insert on account for each row execute function collide()";
    table.db.client.batch_execute(unlucky).await.unwrap();
    let message = MESSAGES.lines().next().unwrap();
    assert_eq!(consume(&table, message).await.ok(), "ack m-1 balance 500\n");
    table.until("select last_value = 4 from calls").await;

    table
        .db
        .client
        .batch_execute("alter sequence calls minvalue -1000 restart with -1000")
        .await
        .unwrap();
    let said = consume(&table, MESSAGES.lines().nth(1).unwrap()).await.ok();
    assert!(said.starts_with("retry m-2 "), "{said}");
    table.until("select last_value = -991 from calls").await;

    table
        .db
        .client
        .batch_execute("drop trigger unlucky on account; alter table account rename to elsewhere")
        .await
        .unwrap();
    table
        .db
        .client
        .batch_execute(
            "create view account as select name, balance from elsewhere where false union all select 'x', 1",
        )
        .await
        .unwrap();
    let said = consume(&table, MESSAGES).await.ok();
    let words: Vec<_> = said
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(words, ["ack m-1", "retry m-2", "ack m-1", "retry m-3"], "{said}");
}
