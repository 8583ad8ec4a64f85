//! A small payment provider to try things on: a process of its own with a ledger, which dedups by idempotency key
//! or does not, and misbehaves when it is told to.
//!
//! | request | answer |
//! | --- | --- |
//! | `POST /v1/charges` `{"order_id", "amount", "currency"}`, header `Idempotency-Key` | 201 with the charge; 402 when `"card": "declined"` |
//! | `GET /v1/charges?order_id=ID` | `{"data": [charge, ...]}`, with `--record-declines` the failed ones too (`"status": "failed"`) |
//! | `GET /v1/ledger` | every charge that moved money, with the key that came with it |
//! | `GET /v1/calls` | every time that it was told to charge, also again: order, key, microseconds from the start; without an end where the caller hung up |
//! | `POST /v1/faults` `["hang-after", ...]` | the next charges go wrong in this way, one after the other |
//!
//! Faults: `hang-after` (charges and never answers), `reset-after` (charges and closes the connection), `500-after`,
//! `500-before`, `503-before` (does not charge), `slow` (charges after two seconds, whether or not somebody waits).

#![expect(clippy::print_stdout, reason = "the address goes to standard output")]

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;

/// The money moved.
const SUCCEEDED: &str = "succeeded";

/// It did not, and never will.
const FAILED: &str = "failed";

/// How long a slow charge takes.
const SLOW: Duration = Duration::from_secs(2);

/// A payment provider for trials.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on; port 0 takes any
    #[arg(long, default_value = "127.0.0.1:9080")]
    listen: SocketAddr,
    /// What idempotency keys mean to it
    #[arg(long, value_enum, default_value_t = Keys::Honour)]
    keys: Keys,
    /// Keeps a record of declined charges, and shows it when it is asked for the order
    #[arg(long)]
    record_declines: bool,
    /// How long each charge takes, in milliseconds
    #[arg(long, default_value_t = 0)]
    delay: u64,
    /// How many of a hundred charges go wrong, in one of the ways above
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    faults: u8,
    /// Where the random faults start
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keys {
    /// A repeat of a key gets the first answer, and nothing is charged
    Honour,
    /// Keys are not looked at: whatever arrives is charged
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fault {
    HangAfter,
    ResetAfter,
    #[serde(rename = "500-after")]
    ErrorAfter,
    #[serde(rename = "500-before")]
    ErrorBefore,
    #[serde(rename = "503-before")]
    UnavailableBefore,
    Slow,
}

impl Fault {
    const ALL: [Self; 6] = [
        Self::HangAfter,
        Self::ResetAfter,
        Self::ErrorAfter,
        Self::ErrorBefore,
        Self::UnavailableBefore,
        Self::Slow,
    ];
}

#[derive(Debug, Deserialize)]
#[expect(clippy::struct_field_names, reason = "as it stands in the document")]
struct Order {
    order_id: String,
    amount: u64,
    currency: String,
    #[serde(default)]
    card: String,
}

/// A charge that moved money, or one that failed.
#[derive(Debug, Clone, Serialize)]
struct Charge {
    id: String,
    order_id: String,
    amount: u64,
    currency: String,
    status: &'static str,
    idempotency_key: Option<String>,
}

#[derive(Debug)]
struct Books {
    /// All that is recorded, failed charges included.
    charges: Vec<Charge>,
    /// The first answer to each key.
    answers: HashMap<String, (StatusCode, String)>,
    faults: VecDeque<Fault>,
    random: fastrand::Rng,
    calls: Vec<Call>,
}

/// One time that it was told to charge.
#[derive(Debug, Serialize)]
struct Call {
    order_id: String,
    idempotency_key: Option<String>,
    started_us: u64,
    /// None while it goes on, and for ever where the caller hung up.
    ended_us: Option<u64>,
}

#[derive(Debug)]
struct Provider {
    args: Args,
    books: Mutex<Books>,
    started: Instant,
}

/// Status and body; an error closes the connection without an answer.
type Answer = std::io::Result<(StatusCode, String)>;

impl Provider {
    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        // Whoever panicked did so between two changes, not within one.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, 64 * 1024).collect().await else {
            return Ok((
                StatusCode::BAD_REQUEST,
                problem("the body is broken or too large"),
            ));
        };
        let body = body.to_bytes();
        match (&head.method, head.uri.path()) {
            (&Method::POST, "/v1/charges") => {
                let key = head.headers.get("idempotency-key");
                let key = key.and_then(|key| key.to_str().ok()).map(str::to_owned);
                let order: Order = match serde_json::from_slice(&body) {
                    Ok(order) => order,
                    Err(error) => return Ok((StatusCode::BAD_REQUEST, problem(&error.to_string()))),
                };
                let number = self.note_call(&order.order_id, key.clone());
                // In a task of its own: a caller that hangs up has told it to charge all the same.
                let work = tokio::spawn(Arc::clone(&self).charge(key, order));
                let answer = work.await.unwrap_or_else(|_| Err(reset()));
                // This future is given up when the caller hangs up.
                let ended = self.elapsed();
                self.books().calls[number].ended_us = Some(ended);
                answer
            }
            (&Method::GET, "/v1/calls") => {
                let calls = json!({ "calls": self.books().calls });
                Ok((StatusCode::OK, calls.to_string()))
            }
            (&Method::GET, "/v1/charges") => Ok((StatusCode::OK, self.look_up(head.uri.query()))),
            (&Method::GET, "/v1/ledger") => {
                let books = self.books();
                let moved: Vec<_> = books
                    .charges
                    .iter()
                    .filter(|charge| charge.status == SUCCEEDED)
                    .collect();
                Ok((StatusCode::OK, json!({ "charges": moved }).to_string()))
            }
            (&Method::POST, "/v1/faults") => match serde_json::from_slice::<Vec<Fault>>(&body) {
                Ok(faults) => {
                    self.books().faults.extend(faults);
                    Ok((StatusCode::OK, "{}".to_owned()))
                }
                Err(error) => Ok((StatusCode::BAD_REQUEST, problem(&error.to_string()))),
            },
            _ => Ok((StatusCode::NOT_FOUND, problem("there is nothing here"))),
        }
    }

    /// Microseconds since it was started.
    fn elapsed(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The place of a new call in the log.
    fn note_call(&self, order_id: &str, idempotency_key: Option<String>) -> usize {
        let mut books = self.books();
        books.calls.push(Call {
            order_id: order_id.to_owned(),
            idempotency_key,
            started_us: self.elapsed(),
            ended_us: None,
        });
        books.calls.len() - 1
    }

    async fn charge(self: Arc<Self>, key: Option<String>, order: Order) -> Answer {
        let fault = self.next_fault();
        tokio::time::sleep(Duration::from_millis(self.args.delay)).await;
        match fault {
            Some(Fault::ErrorBefore) => {
                return Ok((
                    StatusCode::INTERNAL_SERVER_ERROR,
                    problem("as asked: not charged"),
                ));
            }
            Some(Fault::UnavailableBefore) => {
                return Ok((StatusCode::SERVICE_UNAVAILABLE, problem("as asked: not charged")));
            }
            Some(Fault::Slow) => tokio::time::sleep(SLOW).await,
            _ => {}
        }
        let answer = self.book(key, order);
        match fault {
            Some(Fault::HangAfter) => std::future::pending().await,
            Some(Fault::ResetAfter) => Err(reset()),
            Some(Fault::ErrorAfter) => Ok((StatusCode::INTERNAL_SERVER_ERROR, problem("as asked: charged"))),
            _ => Ok(answer),
        }
    }

    fn next_fault(&self) -> Option<Fault> {
        let mut books = self.books();
        if let Some(fault) = books.faults.pop_front() {
            return Some(fault);
        }
        let goes_wrong = books.random.u8(0..100) < self.args.faults;
        goes_wrong.then(|| books.random.choice(Fault::ALL)).flatten()
    }

    /// Moves the money, unless this key has moved it before.
    fn book(&self, key: Option<String>, order: Order) -> (StatusCode, String) {
        let mut books = self.books();
        let key_counts = key.clone().filter(|_| self.args.keys == Keys::Honour);
        if let Some(known) = key_counts.as_ref().and_then(|key| books.answers.get(key)) {
            return known.clone();
        }
        let declined = order.card == "declined";
        let charge = Charge {
            id: format!("ch_{}", books.charges.len() + 1),
            order_id: order.order_id,
            amount: order.amount,
            currency: order.currency,
            status: if declined { FAILED } else { SUCCEEDED },
            idempotency_key: key,
        };
        let answer = if declined {
            (StatusCode::PAYMENT_REQUIRED, problem("the card was declined"))
        } else {
            (StatusCode::CREATED, json!(charge).to_string())
        };
        if !declined || self.args.record_declines {
            books.charges.push(charge);
        }
        if let Some(key) = key_counts {
            books.answers.insert(key, answer.clone());
        }
        answer
    }

    fn look_up(&self, query: Option<&str>) -> String {
        let wanted = query.and_then(|query| query.strip_prefix("order_id="));
        let wanted = percent_encoding::percent_decode_str(wanted.unwrap_or_default()).decode_utf8_lossy();
        let books = self.books();
        let found: Vec<_> = books
            .charges
            .iter()
            .filter(|charge| charge.order_id == wanted)
            .collect();
        json!({ "data": found }).to_string()
    }
}

fn problem(what: &str) -> String {
    json!({ "error": what }).to_string()
}

fn reset() -> std::io::Error {
    std::io::ErrorKind::ConnectionReset.into()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let listener = TcpListener::bind(args.listen).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let books = Books {
        charges: Vec::new(),
        answers: HashMap::new(),
        faults: VecDeque::new(),
        random: fastrand::Rng::with_seed(args.seed),
        calls: Vec::new(),
    };
    let books = Mutex::new(books);
    let started = Instant::now();
    let provider = Arc::new(Provider { args, books, started });
    loop {
        let (stream, _) = listener.accept().await?;
        let provider = Arc::clone(&provider);
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = Arc::clone(&provider).answer(request);
                async move {
                    let (status, body) = answer.await?;
                    let response = Response::builder()
                        .status(status)
                        .header("content-type", "application/json");
                    response
                        .body(Full::new(Bytes::from(body)))
                        .map_err(std::io::Error::other)
                }
            });
            // A connection that breaks is its caller's business.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
