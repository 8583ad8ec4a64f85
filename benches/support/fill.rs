//! A database with a filled table.

use std::sync::Arc;
use std::time::{Duration, Instant};

use idemctl::connect::Settings;
use idemctl::dev::Server;
use idemctl::ops::migrate;
use idemctl::store::Store;
use tokio_postgres::{Client, NoTls};

use crate::Result;

/// What the server of a big table is started with. Commits are not waited for unless a part of the benchmark asks for
/// it; when it does, they really reach the disk. No background worker measures itself into the figures.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("shared_buffers", "512MB"),
    ("work_mem", "4MB"),
    ("maintenance_work_mem", "256MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "off"),
    ("max_parallel_workers_per_gather", "2"),
];

/// What a table is filled with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) rows: u32,
    /// Partitions by a hash of the client; `None`: a plain table.
    pub(crate) partitions: Option<u32>,
    /// Age of the oldest row. Ages are spread evenly.
    pub(crate) span: Duration,
    /// One row of so many is in progress.
    pub(crate) in_progress: u32,
    /// One row of so many is expired: a multiple of `in_progress`.
    pub(crate) expired: u32,
}

/// A database and its table.
pub(crate) struct Filled {
    pub(crate) url: String,
    /// For the questions of the benchmark itself.
    pub(crate) admin: Client,
    pub(crate) store: Arc<Store>,
}

/// Clients at once.
const FILLERS: u32 = 2;

/// Rows `$2` to `$3` of `$1`, the oldest first. 1,000 clients: one has a half of all rows, ten a hundredth each, the
/// others what is left. One row of 5,000 failed.
const FILL: &str = "
insert into idempotency (client_id, key, fingerprint, status, locked_until, status_code, response, created_at,
                         lease_token, owner, operation, provider, order_id, completed_at, response_headers,
                         last_error)
select case when n % 2 = 0 then 'shop-1' when n % 8 = 1 then 'shop-' || 2 + (n / 8) % 10
            else 'shop-' || 12 + (n / 8) % 989 end,
       case when n % 3 = 0 then md5(n::text) when n % 50 = 1 then 'refund-' || n else 'order-' || n end,
       encode(sha256(n::text::bytea), 'hex'),
       status,
       case when status = 'in_progress' and n % $6 <> 7 then now() + interval '2 hours'
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
  from (select n,
               case when n % $5 = 7 then 'in_progress' when n % 5000 = 9 then 'failed' else 'done' end as status,
               now() - make_interval(secs => $4 * (1 - n::float8 / $1)) - interval '1 minute' as created
          from generate_series($2::int4, $3::int4) n) made";

pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// A database whose text is not in byte order, as most are: there no index serves a prefix.
async fn create_database(server: &Server, database: &str) -> Result<&'static str> {
    let admin = connect(&server.url("postgres")).await?;
    let create = format!("create database {database} template template0 encoding 'UTF8'");
    for locale in ["en_US.UTF-8", "C.UTF-8", "C"] {
        let with_locale = format!("{create} lc_collate '{locale}' lc_ctype '{locale}'");
        match admin.batch_execute(&with_locale).await {
            Ok(()) => return Ok(locale),
            // 42809: the machine does not have it.
            Err(e) if e.code().is_some_and(|code| code.code() == "42809") => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err("no locale of this machine will do".into())
}

/// Creates a database, migrates it, fills the table and analyses it.
pub(crate) async fn fill(server: &Server, database: &str, load: Load) -> Result<Filled> {
    let locale = create_database(server, database).await?;
    let url = server.url(database);
    let options = migrate::Options {
        partitions: load.partitions,
        ..migrate::Options::default()
    };
    migrate::run(&Settings::from_dsn(&url)?, None, &options).await?;
    let started = Instant::now();
    let mut fillers = Vec::new();
    for filler in 0..FILLERS {
        let client = connect(&url).await?;
        fillers.push(tokio::spawn(async move {
            // They take turns, so that rows lie in the table by age, as they would have come.
            let turn = (load.rows / 100).max(1_000);
            let int = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
            let mut from = 1 + filler * turn;
            while from <= load.rows {
                let upto = load.rows.min(from + turn - 1);
                client
                    .execute(
                        FILL,
                        &[
                            &f64::from(load.rows),
                            &int(from),
                            &int(upto),
                            &load.span.as_secs_f64(),
                            &int(load.in_progress),
                            &int(load.expired),
                        ],
                    )
                    .await?;
                from += FILLERS * turn;
            }
            Ok::<_, crate::Error>(())
        }));
    }
    for filler in fillers {
        filler.await??;
    }
    let admin = connect(&url).await?;
    // Statements cannot share a transaction with VACUUM.
    admin.batch_execute("vacuum (analyze) idempotency").await?;
    let size: String = admin
        .query_one(
            "select pg_size_pretty(sum(pg_table_size(oid))) || ', indexes '
                    || pg_size_pretty(sum(pg_indexes_size(oid)))
               from pg_class where relkind = 'r' and relname ~ '^idempotency(_p[0-9]+)?$'",
            &[],
        )
        .await?
        .get(0);
    println!(
        "{} rows in {} {size}; {locale}; filled in {:.0} s; {} build; {} processors",
        load.rows,
        load.partitions
            .map_or_else(|| "one table,".to_owned(), |n| format!("{n} partitions,")),
        started.elapsed().as_secs_f64(),
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "optimised"
        },
        std::thread::available_parallelism()?
    );
    let store = Arc::new(Store::open(&admin, None).await?);
    Ok(Filled { url, admin, store })
}
