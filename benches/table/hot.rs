//! The hot path of a service, through the library and by the bare statements that do the same work without
//! asking anything. Both run on prepared statements of the same connections, in turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::response::Response;
use idemctl::store::{Cached, Executor, Statement};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::report::{Table, median, ratio};
use crate::{Bench, Result, per};

const BODY: &str = r#"{"charge_id":"pay_6A9","amount":1250,"currency":"EUR"}"#;
const OWNER: &str = "pay-7f9c:4121:9d2c";
const OPERATION: &str = "POST /payments";
const PROVIDER: &str = "acme";

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    FirstClaim,
    Replay,
    InProgress,
    ClaimAndComplete,
}

impl Work {
    const ALL: [Self; 4] = [
        Self::FirstClaim,
        Self::Replay,
        Self::InProgress,
        Self::ClaimAndComplete,
    ];

    fn writes(self) -> bool {
        matches!(self, Self::FirstClaim | Self::ClaimAndComplete)
    }

    fn name(self) -> &'static str {
        match self {
            Self::FirstClaim => "first claim / bare INSERT",
            Self::Replay => "replay / bare SELECT",
            Self::InProgress => "in progress / bare SELECT",
            Self::ClaimAndComplete => "reserve + complete / bare INSERT + UPDATE",
        }
    }
}

/// The bare statements.
struct Bare {
    insert: Statement,
    update: Statement,
    select: Statement,
}

impl Bare {
    fn new() -> Self {
        let statement = |name, text: &str, types| Statement {
            name,
            text: Arc::from(text),
            types,
        };
        Self {
            insert: statement(
                "bare_insert",
                "insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at,
                                          lease_token, owner, operation, provider, order_id)
                 values ($1, $2, $3, 'in_progress', now() + make_interval(secs => $4), now(), $5, $6, $7, $8, $9)",
                &[
                    Type::TEXT,
                    Type::TEXT,
                    Type::TEXT,
                    Type::FLOAT8,
                    Type::UUID,
                    Type::TEXT,
                    Type::TEXT,
                    Type::TEXT,
                    Type::TEXT,
                ],
            ),
            update: statement(
                "bare_update",
                "update idempotency
                    set status = 'done', status_code = $3, response = $4::json, completed_at = now()
                  where client_id = $1 and key = $2",
                &[Type::TEXT, Type::TEXT, Type::INT4, Type::TEXT],
            ),
            select: statement(
                "bare_select",
                "select fingerprint, status, status_code, response::text, response_headers::text
                   from idempotency where client_id = $1 and key = $2",
                &[Type::TEXT, Type::TEXT],
            ),
        }
    }
}

/// One connection's worth of work, made ready before the clock runs.
struct Lot {
    connection: Arc<Cached<Client>>,
    requests: Vec<Request>,
}

/// Speed of one side in one round.
struct Speed {
    per_second: f64,
    wal: f64,
}

pub(crate) async fn run(bench: &Bench) -> Result<()> {
    let keys = Idempotency::open(
        &bench.admin,
        None,
        Options {
            owner: OWNER.to_owned(),
            ..Options::default()
        },
    )
    .await?;
    let mut connections = Vec::new();
    for _ in 0..8 {
        connections.push(Arc::new(bench.connect().await?));
    }
    let mut hot = Hot {
        bench,
        keys,
        bare: Arc::new(Bare::new()),
        connections,
        next: 0,
    };
    let mut table = Table::new(
        "The hot path (medians of interleaved rounds; more is better)",
        [
            "what",
            "flush",
            "connections",
            "ratio",
            "from",
            "to",
            "ours/s",
            "bare/s",
            "WAL ours",
            "WAL bare",
        ],
    );
    // Waiting for the disk is what a service does; without it only the processors are compared.
    for flush in [true, false] {
        hot.set_flush(flush).await?;
        for work in Work::ALL {
            if flush && !work.writes() {
                continue;
            }
            for connections in [1, 8] {
                let cells = hot.compare(work, connections, flush).await?;
                table.row(cells);
            }
        }
    }
    table.print();
    Ok(())
}

struct Hot<'a> {
    bench: &'a Bench,
    keys: Idempotency,
    bare: Arc<Bare>,
    connections: Vec<Arc<Cached<Client>>>,
    /// Number of the next new key.
    next: u64,
}

impl Hot<'_> {
    async fn set_flush(&self, flush: bool) -> Result<()> {
        let set = format!("set synchronous_commit = {}", if flush { "on" } else { "off" });
        for connection in &self.connections {
            connection.get().batch_execute(&set).await?;
        }
        Ok(())
    }

    /// Rounds of both sides in turns; the cells of one line.
    async fn compare(&mut self, work: Work, connections: usize, flush: bool) -> Result<[String; 10]> {
        let (rounds, per_round) = match (self.bench.is_trial(), flush) {
            (true, _) => (2, 64),
            (false, true) => (11, 400),
            (false, false) => (11, 2_000),
        };
        // Prepares the statements, and lets the server choose its generic plans.
        self.round(work, connections, 64, true).await?;
        self.round(work, connections, 64, false).await?;
        let (mut ours, mut bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds {
            // Each goes first in every other round.
            let first = self.round(work, connections, per_round, round % 2 == 0).await?;
            let second = self.round(work, connections, per_round, round % 2 == 1).await?;
            let (a, b) = if round % 2 == 0 {
                (first, second)
            } else {
                (second, first)
            };
            ratios.push(a.per_second / b.per_second);
            ours.push(a);
            bare.push(b);
        }
        let speed = |side: &[Speed]| side.iter().map(|s| s.per_second).collect::<Vec<_>>();
        let wal = |side: &[Speed]| side.iter().map(|s| s.wal).collect::<Vec<_>>();
        let whole = |value: f64| format!("{value:.0}");
        let bytes = |value: f64| format!("{value:.0} B");
        Ok([
            work.name().to_owned(),
            if flush { "yes" } else { "no" }.to_owned(),
            connections.to_string(),
            median(&ratios, ratio),
            ratios
                .iter()
                .copied()
                .reduce(f64::min)
                .map_or_else(String::new, ratio),
            ratios
                .iter()
                .copied()
                .reduce(f64::max)
                .map_or_else(String::new, ratio),
            median(&speed(&ours), whole),
            median(&speed(&bare), whole),
            median(&wal(&ours), bytes),
            median(&wal(&bare), bytes),
        ])
    }

    /// `count` operations over so many connections at once.
    async fn round(&mut self, work: Work, connections: usize, count: usize, ours: bool) -> Result<Speed> {
        let used: Vec<_> = self.connections.iter().take(connections).cloned().collect();
        let lots: Vec<Lot> = used
            .into_iter()
            .map(|connection| {
                let requests = (0..count / connections)
                    .map(|_| self.request(work))
                    .collect::<Result<_>>()?;
                Ok(Lot { connection, requests })
            })
            .collect::<Result<_>>()?;
        let count: usize = lots.iter().map(|lot| lot.requests.len()).sum();
        let before = self.bench.wal().await?;
        let started = Instant::now();
        let tasks: Vec<_> = lots
            .into_iter()
            .map(|lot| {
                let (keys, bare) = (self.keys.clone(), Arc::clone(&self.bare));
                tokio::spawn(async move {
                    for request in &lot.requests {
                        if ours {
                            by_library(&keys, &lot.connection, request, work).await?;
                        } else {
                            by_hand(&bare, &lot.connection, request, work).await?;
                        }
                    }
                    Ok::<_, crate::Error>(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        let elapsed: Duration = started.elapsed();
        Ok(Speed {
            per_second: per(i64::try_from(count)?, 1) / elapsed.as_secs_f64(),
            wal: per(self.bench.wal().await? - before, count),
        })
    }

    /// A request for a new key, or for one of the table in the state that is wanted.
    fn request(&mut self, work: Work) -> Result<Request> {
        let rows = u64::from(self.bench.rows);
        // Row n of the table: 100 n + 7 is in progress, and expired where a thousand divides 100 n.
        let (key, row) = match work {
            Work::FirstClaim | Work::ClaimAndComplete => {
                self.next += 1;
                (format!("new-{}-{}", self.next, Uuid::new_v4()), self.next)
            }
            // Rows 600 n + 2 are done and keep their plain names; see the numbers in `fill`.
            Work::Replay => {
                let row = fastrand::u64(0..rows / 600) * 600 + 2;
                (format!("order-{row}"), row)
            }
            // Rows 3000 n + 107 are in progress and alive.
            Work::InProgress => {
                let row = fastrand::u64(0..rows.div_ceil(3_000)) * 3_000 + 107;
                let row = if row > rows { 107 } else { row };
                (format!("order-{row}"), row)
            }
        };
        let client = match row % 8 {
            0 | 2 | 4 | 6 => "shop-1".to_owned(),
            1 => format!("shop-{}", 2 + row / 8 % 10),
            _ => format!("shop-{}", 12 + row / 8 % 989),
        };
        let fingerprint = Fingerprint::of_json(row.to_string().as_bytes())?;
        Ok(Request::new(KeyId::new(client, key)?, fingerprint)
            .operation(OPERATION)?
            .provider(PROVIDER)?)
    }
}

async fn by_library(
    keys: &Idempotency,
    executor: &impl Executor,
    request: &Request,
    work: Work,
) -> Result<()> {
    let reservation = keys.reserve(executor, request).await?;
    match (work, reservation) {
        (Work::FirstClaim, Reservation::Acquired(lease)) => {
            // Dropping it would rightly be warned about.
            std::mem::forget(lease);
        }
        (Work::ClaimAndComplete, Reservation::Acquired(mut lease)) => {
            lease.complete(executor, &Response::new(201, BODY)?).await?;
        }
        (Work::Replay, Reservation::Replay(_)) | (Work::InProgress, Reservation::InProgress(_)) => {}
        (work, other) => return Err(format!("{work:?} of {} ended with {other:?}", request.id()).into()),
    }
    Ok(())
}

async fn by_hand(bare: &Bare, executor: &impl Executor, request: &Request, work: Work) -> Result<()> {
    let (client, key) = (request.id().client_id(), request.id().key());
    if matches!(work, Work::Replay | Work::InProgress) {
        let answer = executor.run(&bare.select, &[&client, &key]).await?;
        return match answer.rows.len() {
            1 => Ok(()),
            n => Err(format!("{n} rows for {}", request.id()).into()),
        };
    }
    let fingerprint = "0".repeat(64);
    let none: Option<&str> = None;
    let inserted = executor
        .run(
            &bare.insert,
            &[
                &client,
                &key,
                &fingerprint,
                &30.0,
                &Uuid::new_v4(),
                &OWNER,
                &OPERATION,
                &PROVIDER,
                &none,
            ],
        )
        .await?;
    if work == Work::ClaimAndComplete {
        executor.run(&bare.update, &[&client, &key, &201, &BODY]).await?;
    }
    match inserted.affected {
        1 => Ok(()),
        n => Err(format!("{n} rows inserted for {}", request.id()).into()),
    }
}
