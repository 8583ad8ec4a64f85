//! A queue consumer under at-least-once delivery: the message's id is the key, and because its work lies in the
//! same database, claim, work and result are one transaction. There is no lease, and no redelivery does harm.
//!
//! The queue is standard input, one message a line, for example
//! `{"id":"m-1","account":"alice","amount":500}`; `ack m-1` on standard output tells the queue that it may forget the
//! message. Whatever was not acknowledged is sent again, by another run if need be:
//!
//! ```text
//! cargo run --example consumer < messages.jsonl
//! cargo run --example consumer < messages.jsonl    # the same once more: nothing is credited twice
//! ```

#![expect(clippy::print_stdout, reason = "acknowledgements go to standard output")]

use std::io::Write as _;

use clap::Parser;
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

/// What became of a delivery.
#[derive(Debug)]
enum Delivery {
    /// The account was credited now.
    Done { balance: String },
    /// An earlier delivery did it; this is what it stored.
    DoneBefore { balance: String },
    /// Another message has this id.
    Refused(String),
}

/// One delivery: claim, work and result, all or nothing.
async fn deliver(
    client: &mut Client,
    keys: &Idempotency,
    queue: &str,
    line: &str,
) -> Result<(String, Delivery)> {
    let message: Message = serde_json::from_str(line)?;
    let fingerprint = Fingerprint::of_json(line.as_bytes())?;
    let request = Request::new(KeyId::new(queue, message.id.clone())?, fingerprint).operation("credit")?;
    let tx = client.transaction().await?;
    // While another consumer works on the same message, this waits for it to commit or roll back.
    let delivery = match keys.reserve_in(&tx, &request).await? {
        TransactionReservation::Fresh(mut claim) => {
            let credit = "insert into account (name, balance) values ($1, $2)
                on conflict (name) do update set balance = account.balance + excluded.balance
                returning balance::text";
            let balance: String = tx
                .query_one(credit, &[&message.account, &message.amount])
                .await?
                .get(0);
            claim.finish(&tx, &Response::new(200, balance.clone())?).await?;
            Delivery::Done { balance }
        }
        TransactionReservation::Replay(stored) => Delivery::DoneBefore {
            balance: String::from_utf8_lossy(stored.response.body()).into_owned(),
        },
        TransactionReservation::Mismatch(_) => {
            Delivery::Refused("another message with this id was delivered before".to_owned())
        }
        // Only where somebody claims this queue's keys with a lease as well.
        TransactionReservation::InProgress(_) | TransactionReservation::Expired(_) => {
            return Err("the key is held by a lease; not acknowledged".into());
        }
    };
    tx.commit().await?;
    Ok((message.id, delivery))
}

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let (mut client, connection) = tokio_postgres::connect(&args.database_url, NoTls).await?;
    tokio::spawn(connection);
    let account = "create table if not exists account (name text primary key, balance bigint not null)";
    client.batch_execute(account).await?;
    let keys = Idempotency::open(&client, None, Options::default()).await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        // An error ends the consumer before it acknowledges: the queue delivers the message again.
        let (id, delivery) = deliver(&mut client, &keys, &args.queue, &line).await?;
        match delivery {
            Delivery::Done { balance } => println!("ack {id} balance {balance}"),
            Delivery::DoneBefore { balance } => println!("ack {id} balance {balance} (done before)"),
            Delivery::Refused(why) => println!("reject {id} {why}"),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}
