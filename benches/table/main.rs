//! What the statements cost on a big table: plans, times, WAL, and ratios against the bare statement that does the
//! least that could be done.
//!
//! `cargo bench --bench table [-- --rows N]`, or the environment variable `IDEMCTL_BENCH_ROWS`; 1,000,000 rows
//! unless told. It starts a private server, fills a table, prints what it measures and removes everything.
//! It asserts no times: the machine decides them. It fails when something cannot be measured at all.

#![expect(clippy::print_stdout, reason = "the table that it prints is what it is for")]

mod beside;
mod fill;
mod hot;
mod plans;
mod purge;
mod report;
mod storm;
mod stream;

use std::sync::Arc;

use idemctl::dev::Server;
use idemctl::store::{Cached, Store};
use tokio_postgres::{Client, NoTls};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// What every part needs.
struct Bench {
    url: String,
    rows: u32,
    /// For the questions of the benchmark itself.
    admin: Client,
    store: Arc<Store>,
}

impl Bench {
    /// Below this the figures mean nothing, and the run only shows that everything still works.
    fn is_trial(&self) -> bool {
        self.rows < 100_000
    }

    /// A new connection of the driver, as a service has it.
    async fn connect(&self) -> Result<Cached<Client>> {
        Ok(Cached::new(connect(&self.url).await?))
    }

    /// Bytes of WAL written so far.
    async fn wal(&self) -> Result<i64> {
        let row = self
            .admin
            .query_one("select (pg_current_wal_insert_lsn() - '0/0')::int8", &[])
            .await?;
        Ok(row.get(0))
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn main() -> Result<()> {
    let rows = rows()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let server = fill::start().await?;
        let measured = measure(&server, rows).await;
        server.stop().await?;
        measured
    })
}

async fn measure(server: &Server, rows: u32) -> Result<()> {
    let bench = fill::fill(server, rows).await?;
    plans::run(&bench).await?;
    stream::run(&bench)?;
    hot::run(&bench).await?;
    storm::run(&bench).await?;
    purge::run(&bench).await
}

/// From `--rows N`, or else from the environment. Cargo adds `--bench`.
fn rows() -> Result<u32> {
    let mut rows = std::env::var("IDEMCTL_BENCH_ROWS").ok();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--rows" => rows = Some(args.next().ok_or("--rows needs a number")?),
            "--bench" => {}
            other => return Err(format!("unknown argument {other:?}; only --rows N is known").into()),
        }
    }
    let rows: u32 = rows.map_or(Ok(1_000_000), |text| text.replace('_', "").parse())?;
    if !(1_000..=100_000_000).contains(&rows) {
        return Err(format!("--rows is {rows}; 1,000 to 100,000,000 are allowed").into());
    }
    Ok(rows)
}
