//! `migrate` on a table that has only the columns which services in other languages know, while such a service writes.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Client;

use crate::goal::Goal;
use crate::report::{Table, ms};
use crate::{Base, Result, fill, program};

/// The table as it was before idemctl.
const CREATE: &str = "
create schema old;
create table old.idempotency (
    client_id text not null,
    key text not null,
    fingerprint text not null,
    status text not null default 'in_progress',
    locked_until timestamptz not null default now() + interval '30 seconds',
    status_code int,
    response jsonb,
    created_at timestamptz not null default now(),
    primary key (client_id, key)
)";

const COPY: &str = "
insert into old.idempotency
select client_id, key, fingerprint, status, locked_until, status_code, response::jsonb, created_at
  from public.idempotency";

/// A lock that keeps a service from claiming.
const BLOCKED: &str = "
select exists (select from pg_locks l
                 join pg_class c on c.oid = l.relation
                 join pg_namespace n on n.oid = c.relnamespace
                where n.nspname = 'old' and c.relkind in ('r', 'p') and l.granted
                  and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'))";

/// Files of the table.
const FILES: &str = "
select array_agg(c.relfilenode::int8 order by c.oid)
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = 'old' and c.relkind = 'r' and c.relname ~ '^idempotency(_p[0-9]+)?$'";

/// What an adoption was like.
struct Adopted {
    took: Duration,
    locked: Duration,
    claim: Duration,
    claims: usize,
    peak_kb: u64,
    rewritten: bool,
}

pub(crate) async fn run(bases: [&Base; 2]) -> Result<Vec<Goal>> {
    let mut table = Table::new(
        "`migrate` of a table with the old columns, in use by a service that claims one key after the other",
        [
            "rows",
            "time",
            "longest lock seen",
            "longest claim",
            "claims",
            "memory",
            "rewritten",
        ],
    );
    let mut all = Vec::new();
    for base in bases {
        let adopted = adopt(base).await?;
        table.row([
            base.rows.to_string(),
            ms(adopted.took),
            ms(adopted.locked),
            ms(adopted.claim),
            adopted.claims.to_string(),
            format!("{} MB", adopted.peak_kb / 1024),
            if adopted.rewritten { "yes" } else { "no" }.to_owned(),
        ]);
        all.push(adopted);
    }
    table.print();
    let rewritten = all.iter().filter(|adopted| adopted.rewritten).count();
    let locked = all.iter().map(|adopted| adopted.locked).max();
    Ok(vec![
        Goal::of(
            "adoptions that rewrote the table",
            "0",
            Some(f64::from(u32::try_from(rewritten)?)),
            |found| Some(found == 0.0),
        ),
        Goal::of(
            "longest lock of an adoption that stops claims, in seconds",
            "<= 0.5",
            locked.map(|locked| locked.as_secs_f64()),
            |found| Some(found <= 0.5),
        ),
    ])
}

async fn adopt(base: &Base) -> Result<Adopted> {
    let mut create = CREATE.to_owned();
    if let Some(partitions) = base.partitions {
        create.push_str(" partition by hash (client_id)");
        for n in 0..partitions {
            write!(
                create,
                ";\ncreate table old.idempotency_p{n:03} partition of old.idempotency
                     for values with (modulus {partitions}, remainder {n})"
            )?;
        }
    }
    base.admin.batch_execute(&create).await?;
    base.admin.batch_execute(COPY).await?;
    let files = files(&base.admin).await?;
    let over = Arc::new(AtomicBool::new(false));
    let locks = tokio::spawn(watch_locks(fill::connect(&base.url).await?, Arc::clone(&over)));
    let service = tokio::spawn(claim(fill::connect(&base.url).await?, Arc::clone(&over)));
    let url = base.url.clone();
    // Building an index takes longer than a statement may by default.
    let run = tokio::task::spawn_blocking(move || {
        program::run(&url, &["migrate", "--schema", "old", "--statement-timeout", "2h"])
    })
    .await??;
    over.store(true, Ordering::Relaxed);
    let locked = locks.await??;
    let (claim, claims) = service.await??;
    let rewritten = files != self::files(&base.admin).await?;
    base.admin.batch_execute("drop schema old cascade").await?;
    Ok(Adopted {
        took: run.took,
        locked,
        claim,
        claims,
        peak_kb: run.peak_kb,
        rewritten,
    })
}

async fn files(admin: &Client) -> Result<Vec<i64>> {
    Ok(admin.query_one(FILES, &[]).await?.get(0))
}

/// The longest time over which such a lock was seen again and again.
async fn watch_locks(client: Client, over: Arc<AtomicBool>) -> Result<Duration> {
    let statement = client.prepare(BLOCKED).await?;
    let (mut since, mut longest) = (None, Duration::ZERO);
    while !over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let locked: bool = client.query_one(&statement, &[]).await?.get(0);
        if locked {
            // Asking takes time, and the lock may have come at once.
            let since = *since.get_or_insert(asked);
            longest = longest.max(since.elapsed());
        } else {
            since = None;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(longest)
}

/// A service that knows the old columns alone: its longest claim, and how many it made.
async fn claim(client: Client, over: Arc<AtomicBool>) -> Result<(Duration, usize)> {
    let statement = client
        .prepare("insert into old.idempotency (client_id, key, fingerprint) values ('shop-1', $1, '')")
        .await?;
    let (mut longest, mut count) = (Duration::ZERO, 0);
    while !over.load(Ordering::Relaxed) {
        let key = format!("claimed-meanwhile-{count}");
        let started = Instant::now();
        client.execute(&statement, &[&key]).await?;
        longest = longest.max(started.elapsed());
        count += 1;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok((longest, count))
}
