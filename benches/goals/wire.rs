//! Ways to send the same statements: prepared or unnamed, a connection each or one for all (the driver sends the next
//! request without waiting for the answer to the last), and commits that wait for company.
//!
//! CPU time is what busy neighbours disturb least: the server's is read from its backends, the client's is this
//! process's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idemctl::connect::Settings;
use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::ops::migrate;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::response::Response;
use idemctl::store::{Cached, Executor};
use tokio_postgres::{Client, NoTls};

use crate::servers::Servers;
use crate::{Effort, Result};

/// Requests in flight.
const CLIENTS: usize = 16;
/// Keys that are replayed.
const DONE: u64 = 100;
const SCHEMA: &str = "wire";

/// One way.
#[derive(Debug, Clone, Copy)]
struct Way {
    name: &'static str,
    connections: usize,
    prepared: bool,
    /// What every connection is told first.
    setting: &'static str,
}

const fn way(name: &'static str, connections: usize, prepared: bool, setting: &'static str) -> Way {
    Way {
        name,
        connections,
        prepared,
        setting,
    }
}

const WAYS: &[Way] = &[
    way("prepared, a connection each", CLIENTS, true, ""),
    way(
        "unnamed, a connection each (what any pooler passes)",
        CLIENTS,
        false,
        "",
    ),
    way("prepared, four connections shared", 4, true, ""),
    way("prepared, one connection for all", 1, true, ""),
    way(
        "prepared, a connection each, commit_delay 200 us",
        CLIENTS,
        true,
        "set commit_delay = 200; set commit_siblings = 4",
    ),
];

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Claim,
    Replay,
}

/// Sums over a way's turns.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    answers: u64,
    elapsed: Duration,
    client: Duration,
    server: Duration,
}

pub(crate) async fn run(servers: &Servers, effort: Effort) -> Result<()> {
    let url = servers.postgres.url("idemctl");
    let settings = Settings::from_dsn(&url)?;
    migrate::run(&settings, Some(SCHEMA), &migrate::Options::default()).await?;
    let keys = Idempotency::open(&connect(&url, "").await?, Some(SCHEMA), Options::default()).await?;
    let (rounds, turn) = if effort.trial {
        (1, Duration::from_millis(50))
    } else {
        (5, effort.duration / 50)
    };
    for question in [Question::Claim, Question::Replay] {
        let mut sums = vec![Sum::default(); WAYS.len()];
        for _ in 0..rounds {
            for (way, sum) in WAYS.iter().zip(&mut sums) {
                one_turn(&url, &keys, *way, question, turn, sum).await?;
            }
        }
        print(question, &sums);
    }
    Ok(())
}

async fn connect(url: &str, setting: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // It ends with its client.
    tokio::spawn(connection);
    client.batch_execute(setting).await?;
    Ok(client)
}

async fn one_turn(
    url: &str,
    keys: &Idempotency,
    way: Way,
    question: Question,
    turn: Duration,
    sum: &mut Sum,
) -> Result<()> {
    let (mut clients, mut backends) = (Vec::new(), Vec::new());
    for _ in 0..way.connections {
        let client = connect(url, way.setting).await?;
        let pid: i32 = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
        backends.push(pid);
        clients.push(client);
    }
    if way.prepared {
        let clients = clients.into_iter().map(Cached::new).collect();
        ask(clients, &backends, keys, question, turn, sum).await
    } else {
        ask(clients, &backends, keys, question, turn, sum).await
    }
}

async fn ask<E: Executor + 'static>(
    clients: Vec<E>,
    backends: &[i32],
    keys: &Idempotency,
    question: Question,
    turn: Duration,
    sum: &mut Sum,
) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let clients: Vec<Arc<E>> = clients.into_iter().map(Arc::new).collect();
    if let Some(client) = clients.first() {
        for n in 0..DONE {
            answer(keys, client, n).await?;
        }
    }
    let (client_before, server_before) = (of_this_process()?, of(backends)?);
    let since = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..CLIENTS {
        let (client, keys) = (Arc::clone(&clients[number % clients.len()]), keys.clone());
        tasks.spawn(async move {
            let mut answers = 0;
            while since.elapsed() < turn {
                let n = match question {
                    Question::Claim => DONE + NEXT.fetch_add(1, Ordering::Relaxed),
                    Question::Replay => answers % DONE,
                };
                let replayed = answer(&keys, &client, n).await?;
                if replayed != (question == Question::Replay) {
                    return Err("a new key was known, or a known one new".into());
                }
                answers += 1;
            }
            Ok::<u64, crate::Error>(answers)
        });
    }
    while let Some(done) = tasks.join_next().await {
        sum.answers += done??;
    }
    sum.elapsed += since.elapsed();
    sum.client += of_this_process()?.saturating_sub(client_before);
    sum.server += of(backends)?.saturating_sub(server_before);
    Ok(())
}

/// Reserves the key with this number, and completes it if it is one of those to be replayed; whether it was done before.
async fn answer<E: Executor>(keys: &Idempotency, client: &Arc<E>, n: u64) -> Result<bool> {
    // An odd factor maps no two numbers to one; keys lie anywhere in the index, as clients' random keys do.
    let key = format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let body: &[u8] = br#"{"amount":1250,"currency":"EUR"}"#;
    let request = Request::new(KeyId::new("shop-1", key)?, Fingerprint::of_json(body)?);
    match keys.reserve(client, &request).await? {
        Reservation::Replay(_) => Ok(true),
        Reservation::Acquired(mut lease) if n < DONE => {
            let response = Response::new(201, r#"{"charge_id":"pay_6A9"}"#)?;
            lease.complete(client, &response).await?;
            Ok(false)
        }
        Reservation::Acquired(lease) => {
            // Stays in progress: the row that a claim leaves. The warning about it goes nowhere.
            drop(lease);
            Ok(false)
        }
        other => Err(format!("not to be expected: {other:?}").into()),
    }
}

/// CPU time of the server's backends: the first figure of `schedstat` is nanoseconds on a processor.
fn of(backends: &[i32]) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for pid in backends {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        let nanos = text.split(' ').next().unwrap_or_default().parse()?;
        sum += Duration::from_nanos(nanos);
    }
    Ok(sum)
}

/// CPU time of every thread of this process that lives.
fn of_this_process() -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // A thread may end meanwhile.
        let text = std::fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        let nanos = text.split(' ').next().unwrap_or_default().parse().unwrap_or(0);
        sum += Duration::from_nanos(nanos);
    }
    Ok(sum)
}

fn print(question: Question, sums: &[Sum]) {
    let what = match question {
        Question::Claim => "claims of new keys",
        Question::Replay => "replays",
    };
    println!(
        "\n| ways to send {what} ({CLIENTS} in flight) | a second | of the first | client's CPU | server's CPU |"
    );
    println!("| --- | --- | --- | --- | --- |");
    let pace = |sum: &Sum| count(sum.answers) / sum.elapsed.as_secs_f64();
    for (way, sum) in WAYS.iter().zip(sums) {
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / count(sum.answers.max(1));
        println!(
            "| {} | {:.0} | {:.2} | {:.0} us | {:.0} us |",
            way.name,
            pace(sum),
            pace(sum) / pace(&sums[0]),
            micros(sum.client),
            micros(sum.server),
        );
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a count that is printed with four digits"
)]
fn count(answers: u64) -> f64 {
    answers as f64
}
