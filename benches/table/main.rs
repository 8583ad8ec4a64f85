//! What claims, replays and the purge cost on a big table: times, WAL, and ratios against the bare statement that does the
//! least that could be done.
//!
//! `cargo bench --bench table [-- --rows N] [-- --partitions N]`; 1,000,000 rows unless told, in a plain table and then
//! in 16 partitions (`--partitions 1`: only a plain one). It starts a private server, fills a table, prints what it
//! measures and removes everything. It asserts no times: the machine decides them. It fails when something cannot be
//! measured at all. What grows with the table and what does not is the matter of `cargo bench --bench scale`.

#![expect(clippy::print_stdout, reason = "the table that it prints is what it is for")]

mod beside;
#[path = "../support/fill.rs"]
mod fill;
#[path = "../support/goal.rs"]
mod goal;
mod hot;
mod purge;
#[path = "../support/report.rs"]
mod report;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/size.rs"]
mod size;
mod storm;

use std::sync::Arc;
use std::time::Duration;

use idemctl::dev::Server;
use idemctl::store::{Cached, Store};
use tokio_postgres::Client;

use size::Size;

/// Age of the oldest row: as a table has it whose purge has not run for a while.
const SPAN: Duration = Duration::from_hours(240);

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// What every part needs.
struct Bench {
    url: String,
    rows: u32,
    partitions: Option<u32>,
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
        Ok(Cached::new(fill::connect(&self.url).await?))
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

fn main() -> Result<()> {
    let size = Size::from_args(1_000_000)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        for partitions in size.variants() {
            // A new server, so that neither finds anything of the other in the caches or on the disk.
            let server = server::start(fill::SETTINGS).await?;
            let measured = measure(&server, size.rows, partitions).await;
            server.stop().await?;
            measured?;
        }
        Ok(())
    })
}

async fn measure(server: &Server, rows: u32, partitions: Option<u32>) -> Result<()> {
    let load = fill::Load {
        rows,
        partitions,
        span: SPAN,
        in_progress: 100,
        expired: 1_000,
    };
    let fill::Filled { url, admin, store } = fill::fill(server, "bench", load).await?;
    let bench = Bench {
        url,
        rows,
        partitions,
        admin,
        store,
    };
    hot::run(&bench).await?;
    storm::run(&bench).await?;
    let goals = purge::run(&bench).await?;
    goal::print(&goals, bench.is_trial());
    Ok(())
}

/// `n / d`, where both are small enough for a double to be exact.
#[expect(
    clippy::cast_precision_loss,
    reason = "byte counts of one run stay far below 2^53"
)]
pub(crate) fn per(n: i64, d: usize) -> f64 {
    n as f64 / d as f64
}
