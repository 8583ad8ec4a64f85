//! A queue consumer under at-least-once delivery: the message's id is the key, and because its work lies in the
//! same database, claim, work and result are one transaction. There is no lease, and no redelivery does harm.
//!
//! The queue is standard input, one message a line, for example
//! `{"id":"m-1","account":"alice","amount":500}`; `ack m-1` on standard output tells the queue that it may forget the
//! message. Whatever was not acknowledged is sent again, by another run if need be. `reject m-1 WHY` gives a message
//! to whoever looks after those that can never succeed (`reject line 7 WHY` where it has no id), and the next one
//! gets its turn; `retry m-1 WHY` asks for it later. Only a broken connection ends the consumer.
//!
//! ```text
//! cargo run --example consumer < messages.jsonl
//! cargo run --example consumer < messages.jsonl    # the same once more: nothing is credited twice
//! ```

#![expect(clippy::print_stdout, reason = "acknowledgements go to standard output")]

use std::io::Write as _;
use std::time::Duration;

use clap::Parser;
use idemctl::error::Error;
use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, Request, TransactionReservation};
use idemctl::response::Response;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio_postgres::{Client, NoTls};

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A queue consumer for trials.
#[derive(Debug, Parser)]
struct Args {
    /// The database that `idemctl migrate` was run on
    #[arg(long, env = "IDEMCTL_DATABASE_URL")]
    database_url: String,
    /// Name of the queue: the client of its messages' keys
    #[arg(long, default_value = "queue:credits")]
    queue: String,
}

#[derive(Debug, Deserialize)]
struct Message {
    id: String,
    account: String,
    amount: i64,
}

/// How often a message is tried while it collides with others, before the queue is asked to bring it again.
const TRIES: u32 = 10;

/// What became of a delivery.
#[derive(Debug)]
enum Delivery {
    /// The account was credited now.
    Done { balance: String },
    /// An earlier delivery did it; this is what it stored.
    DoneBefore { balance: String },
    /// It can never succeed, however often it is delivered.
    Rejected(String),
    /// Nothing was done, and not for the message's sake: later it may go well.
    Later(String),
}

/// A message that was understood.
#[derive(Debug)]
struct Credit {
    message: Message,
    request: Request,
}

/// What cannot be read now cannot be read ever: the reason to reject it with, and the id if there is one.
fn read(queue: &str, line: &[u8]) -> Result<Credit, (Option<String>, String)> {
    let message: Message = serde_json::from_slice(line).map_err(|error| (None, error.to_string()))?;
    let request = || -> idemctl::error::Result<Request> {
        // An id with control characters is refused here, and so never gets into what the queue reads.
        let id = KeyId::new(queue, message.id.as_str())?;
        Request::new(id, Fingerprint::of_json(line)?).operation("credit")
    };
    match request() {
        Ok(request) => Ok(Credit { message, request }),
        Err(error) => {
            let id = KeyId::new(queue, message.id.as_str()).ok();
            Err((id.map(|id| id.key().to_owned()), error.to_string()))
        }
    }
}

/// One delivery: claim, work and result, all or nothing.
async fn deliver(client: &mut Client, keys: &Idempotency, credit: &Credit) -> Result<Delivery, Error> {
    let tx = client.transaction().await?;
    // While another consumer works on the same message, this waits for it to commit or roll back.
    let delivery = match keys.reserve_in(&tx, &credit.request).await? {
        TransactionReservation::Fresh(mut claim) => {
            let statement = "insert into account (name, balance) values ($1, $2)
                on conflict (name) do update set balance = account.balance + excluded.balance
                returning balance::text";
            let Message { account, amount, .. } = &credit.message;
            let balance: String = tx.query_one(statement, &[account, amount]).await?.get(0);
            claim.finish(&tx, &Response::new(200, balance.clone())?).await?;
            Delivery::Done { balance }
        }
        TransactionReservation::Replay(stored) => Delivery::DoneBefore {
            balance: String::from_utf8_lossy(stored.response.body()).into_owned(),
        },
        TransactionReservation::Mismatch(_) => {
            Delivery::Rejected("another message with this id was delivered before".to_owned())
        }
        // Only where somebody claims this queue's keys with a lease as well.
        TransactionReservation::InProgress(_) | TransactionReservation::Expired(_) => {
            Delivery::Later("the key is held by a lease".to_owned())
        }
    };
    tx.commit().await?;
    Ok(delivery)
}

/// Delivers until there is something to tell the queue. An error means that the connection is of no more use, and
/// that nobody knows what was committed: the message must not be acknowledged.
async fn settle(client: &mut Client, keys: &Idempotency, credit: &Credit) -> Result<Delivery, Error> {
    let mut tried = 0;
    loop {
        tried += 1;
        let error = match deliver(client, keys, credit).await {
            Ok(delivery) => return Ok(delivery),
            Err(error) if error.needs_reconnect() => return Err(error),
            Err(error) => error,
        };
        // Whatever the error was, the transaction is rolled back.
        let collided = error.is_retryable() || matches!(error, Error::Contended { .. });
        if collided && tried < TRIES {
            // Those that collided must not meet again at once.
            tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=20) * u64::from(tried))).await;
            continue;
        }
        // Classes 22 and 23 (PostgreSQL manual, appendix A): the values are at fault, for instance an amount that
        // the balance has no room for. They will be the same the next time.
        let never = error
            .sqlstate()
            .is_some_and(|state| state.starts_with("22") || state.starts_with("23"));
        let what = error.to_string();
        return Ok(if never {
            Delivery::Rejected(what)
        } else {
            Delivery::Later(what)
        });
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let (mut client, connection) = tokio_postgres::connect(&args.database_url, NoTls).await?;
    tokio::spawn(connection);
    let account = "create table if not exists account (name text primary key, balance bigint not null)";
    client.batch_execute(account).await?;
    let keys = Idempotency::open(&client, None, Options::default()).await?;
    // Bytes, since a message that is no text is to be rejected like any other that cannot be read.
    let mut lines = BufReader::new(tokio::io::stdin()).split(b'\n');
    let mut number = 0_u64;
    while let Some(line) = lines.next_segment().await? {
        number += 1;
        let told = match read(&args.queue, &line) {
            Ok(credit) => {
                let id = &credit.message.id;
                match settle(&mut client, &keys, &credit).await? {
                    Delivery::Done { balance } => format!("ack {id} balance {balance}"),
                    Delivery::DoneBefore { balance } => format!("ack {id} balance {balance} (done before)"),
                    Delivery::Rejected(why) => format!("reject {id} {}", why.escape_debug()),
                    Delivery::Later(why) => format!("retry {id} {}", why.escape_debug()),
                }
            }
            Err((Some(id), why)) => format!("reject {id} {}", why.escape_debug()),
            Err((None, why)) => format!("reject line {number} {}", why.escape_debug()),
        };
        println!("{told}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
