//! The server and the rows.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use idemctl::connect::Settings;
use idemctl::dev::{Binaries, Identity, Lifetime, Options, Server};
use idemctl::ops::migrate;
use idemctl::store::Store;

use crate::{Bench, Result, connect};

const DATABASE: &str = "bench";

/// Commits are not waited for unless a part of the benchmark asks for it; when it does, they really reach the
/// disk. No background worker measures itself into the figures.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "512MB"),
    ("work_mem", "4MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "off"),
    ("max_parallel_workers_per_gather", "2"),
];

/// Fixed ages, clients and states for row `n` of `$1`, the oldest first: 10 days, as a table has it whose purge
/// has not run for a while. A half of the rows belongs to one client, a hundredth to each of fifty more. One
/// row in a hundred is in progress, one in a thousand expired, one in fifty failed.
const FILL: &str = "
insert into idempotency (client_id, key, fingerprint, status, locked_until, status_code, response, created_at,
                         lease_token, owner, operation, provider, order_id, completed_at, response_headers,
                         last_error)
select case when n % 2 = 0 then 'shop-1' else 'shop-' || 2 + (n / 2) % 50 end,
       case when n % 3 = 0 then md5(n::text) when n % 50 = 1 then 'refund-' || n else 'order-' || n end,
       encode(sha256(n::text::bytea), 'hex'),
       status,
       case when status = 'in_progress' and n % 1000 <> 7 then now() + interval '1 hour'
            else created + interval '30 seconds' end,
       case status when 'done' then 201 when 'failed' then 500 end,
       case when status <> 'in_progress' then json_build_object('charge_id', 'pay_' || n, 'amount', n % 10000,
            'note', repeat('x', case n % 10 when 0 then 2000 when 1 then 500 else 40 end)) end,
       created, gen_random_uuid(), 'pay-7f9c:' || n % 8 || ':9d2c', 'POST /payments',
       case when n % 5000 = 11 then 'rare' when n % 3 = 1 then 'acme' end,
       case when n % 3 = 1 then 'po-' || n end,
       case when status <> 'in_progress' then created + interval '2 seconds' end,
       case when status <> 'in_progress' then '[[\"content-type\", \"application/json\"]]'::jsonb end,
       case when status = 'failed' then 'outcome unknown' end
  from (select n, case when n % 100 = 7 then 'in_progress' when n % 50 = 9 then 'failed' else 'done' end as status,
               now() - interval '10 days' * (1 - n::float8 / $1) - interval '1 minute' as created
          from generate_series(1, $1::int4) n) made";

/// Starts a server that ends with this process, whatever happens, and leaves nothing behind.
pub(crate) async fn start() -> Result<Server> {
    let binaries = Binaries::find(None)?;
    let guard = tempfile::Builder::new()
        .prefix("idemctl-bench-")
        // Socket paths are short, and a server that does not run as root must reach it.
        .tempdir_in("/tmp")?;
    let dir: PathBuf = guard.path().to_owned();
    Identity::for_dir(&dir.join("pg"))?.own(&dir)?;
    let version = binaries.version().to_owned();
    let mut options = Options::new(dir.join("pg"), binaries);
    options.throwaway = true;
    options.remove = Some(dir);
    options.databases.clear();
    options.settings = SETTINGS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let server = Server::start(&options, Lifetime::Tied).await?;
    // From now on the server's supervisor removes it.
    let _kept = guard.keep();
    println!("PostgreSQL {version}");
    for (name, value) in SETTINGS {
        println!("  {name} = {value}");
    }
    Ok(server)
}

/// A database whose text is not in byte order, as most are: there no index serves a prefix.
async fn create_database(server: &Server) -> Result<()> {
    let admin = connect(&server.url("postgres")).await?;
    let create = format!("create database {DATABASE} template template0 encoding 'UTF8'");
    for locale in ["en_US.UTF-8", "C.UTF-8", "C"] {
        let with_locale = format!("{create} lc_collate '{locale}' lc_ctype '{locale}'");
        match admin.batch_execute(&with_locale).await {
            Ok(()) => {
                println!("  lc_collate = {locale}");
                return Ok(());
            }
            // 42809: the machine does not have it.
            Err(e) if e.code().is_some_and(|code| code.code() == "42809") => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err("no locale of this machine will do".into())
}

/// Migrates, fills and analyses.
pub(crate) async fn fill(server: &Server, rows: u32) -> Result<Bench> {
    create_database(server).await?;
    let url = server.url(DATABASE);
    let settings = Settings::from_dsn(&url)?;
    migrate::run(&settings, None, &migrate::Options::default()).await?;
    let admin = connect(&url).await?;
    let started = Instant::now();
    admin.execute(FILL, &[&i32::try_from(rows)?]).await?;
    // Statements cannot share a transaction with VACUUM.
    admin.batch_execute("vacuum (analyze) idempotency").await?;
    let size: String = admin
        .query_one(
            "select pg_size_pretty(pg_table_size('idempotency')) || ', indexes '
                    || pg_size_pretty(pg_indexes_size('idempotency'))",
            &[],
        )
        .await?
        .get(0);
    let build = if cfg!(debug_assertions) {
        "debug"
    } else {
        "optimised"
    };
    println!(
        "{rows} rows, {size}, filled in {:.0} s; {build} build; {} processors",
        started.elapsed().as_secs_f64(),
        std::thread::available_parallelism()?
    );
    let store = Arc::new(Store::open(&admin, None).await?);
    Ok(Bench {
        url,
        rows,
        admin,
        store,
    })
}
