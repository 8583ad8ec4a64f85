//! What grows with the table: every question of operators and of the janitor on a big table and on one of a tenth of
//! its rows, through the program; the pages that each touched, by which plan; its time and memory. Then the purge of a
//! tenth and the adoption of a table that services in other languages made.
//!
//! `cargo bench --bench scale [-- --rows N] [-- --partitions N]`; 10,000,000 rows unless told, in a plain table and then
//! in 16 partitions (`--partitions 1`: only a plain one), which takes about 20 GB below /tmp for half an hour. It asserts
//! no times: the machine decides them. It fails when something cannot be measured at all.

#![expect(clippy::print_stdout, reason = "the table that it prints is what it is for")]

mod adopt;
#[path = "../support/fill.rs"]
mod fill;
#[path = "../support/goal.rs"]
mod goal;
mod program;
mod reading;
#[path = "../support/report.rs"]
mod report;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/size.rs"]
mod size;
mod watch;
mod writing;

use std::sync::Arc;
use std::time::Duration;

use idemctl::dev::Server;
use idemctl::store::Store;
use size::Size;
use tokio_postgres::Client;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// A tenth of this is over 24 hours, the retention unless told.
const SPAN: Duration = Duration::from_mins(1_600);

/// One of the two tables.
struct Base {
    database: &'static str,
    url: String,
    rows: u32,
    partitions: Option<u32>,
    /// For the questions of the benchmark itself.
    admin: Client,
    store: Arc<Store>,
    /// Where the second page of `list` begins.
    cursor: String,
}

impl Base {
    async fn new(server: &Server, database: &'static str, load: fill::Load) -> Result<Self> {
        let fill::Filled { url, admin, store } = fill::fill(server, database, load).await?;
        let list = program::run(&url, &["list"])?;
        let (_, cursor) = list
            .stderr
            .split_once("--cursor ")
            .ok_or("`list` names no cursor")?;
        let cursor = cursor.split([',', ' ']).next().unwrap_or_default().to_owned();
        Ok(Self {
            database,
            url,
            rows: load.rows,
            partitions: load.partitions,
            admin,
            store,
            cursor,
        })
    }

    /// A key from the middle that is done, as `inspect` takes it: rows 600 n + 2 keep their plain names.
    fn id(&self) -> String {
        format!("shop-1 order-{}", self.rows / 1_200 * 600 + 2)
    }

    async fn count(&self) -> Result<u64> {
        let row = self
            .admin
            .query_one("select count(*) from idempotency", &[])
            .await?;
        Ok(u64::try_from(row.get::<_, i64>(0))?)
    }
}

fn main() -> Result<()> {
    let size = Size::from_args(10_000_000)?;
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
    let trial = rows < 1_000_000;
    let load = |rows, times: u32| fill::Load {
        rows,
        partitions,
        span: SPAN,
        in_progress: 100 * times,
        expired: 1_000 * times,
    };
    // As many keys are in progress and expired in both: that is a matter of the traffic, not of the table.
    let small = Base::new(server, "tenth", load(rows / 10, 1)).await?;
    let big = Base::new(server, "whole", load(rows, 10)).await?;
    let mut watch = watch::Watch::new(server);
    let bases = [&small, &big];
    let mut goals = reading::run(bases, &mut watch, trial).await?;
    goals.extend(adopt::run(bases).await?);
    goals.extend(writing::run(bases, &mut watch).await?);
    goal::print(&goals, trial);
    Ok(())
}
