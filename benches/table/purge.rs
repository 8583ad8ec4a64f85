//! Writing by operators: releases, and the purge against one bare DELETE.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use idemctl::connect::{Connection, Settings};
use idemctl::ops::actor::Actor;
use idemctl::ops::end::End;
use idemctl::ops::{purge, release, stuck};
use idemctl::stop::Stop;

use crate::goal::Goal;
use crate::report::{Table, median, ms, quantile, ratio};
use crate::{Bench, Result, beside, per};

/// The purge's own condition with the same retention for both kinds, in one statement.
const BARE: &str = "
delete from bench_copy
 where status in ('done', 'failed')
   and coalesce(completed_at, greatest(created_at, locked_until)) < now() - make_interval(secs => $1)";

const DAY: Duration = Duration::from_hours(24);

pub(crate) async fn run(bench: &Bench) -> Result<Vec<Goal>> {
    let mut connection = Connection::open(&Settings::from_dsn(&bench.url)?).await?;
    releases(bench, &mut connection).await?;
    copy(bench).await?;
    bench.admin.batch_execute("vacuum (analyze) bench_copy").await?;
    bench.admin.batch_execute("vacuum (analyze) idempotency").await?;
    let mut table = Table::new(
        "Purging a tenth of the table at a time, in batches of 5,000, against one bare DELETE on a copy",
        [
            "keep",
            "rows",
            "dry run",
            "purge",
            "DELETE",
            "ratio",
            "WAL purge",
            "WAL DELETE",
        ],
    );
    let mut ratios = Vec::new();
    for days in [9, 8, 7, 6] {
        // Whoever comes second finds more in the caches.
        ratios.push(pair(bench, &mut connection, days, days % 2 == 0, &mut table).await?);
    }
    table.print();
    println!(
        "\npurge / DELETE, median of {}: {}",
        ratios.len(),
        median(&ratios, ratio)
    );
    Ok(vec![
        Goal::of(
            "purge : one bare DELETE",
            "<= 1.5",
            quantile(&ratios, 50),
            |found| Some(found <= 1.5),
        ),
        beside::run(bench, &mut connection, DAY * 6).await?,
    ])
}

/// The same table again, in as many partitions.
async fn copy(bench: &Bench) -> Result<()> {
    let mut create = "create table bench_copy (like idempotency including all)".to_owned();
    if let Some(partitions) = bench.partitions {
        create.push_str(" partition by hash (client_id)");
        for n in 0..partitions {
            write!(
                create,
                "; create table bench_copy_p{n} partition of bench_copy
                       for values with (modulus {partitions}, remainder {n})"
            )?;
        }
    }
    bench.admin.batch_execute(&create).await?;
    let fill = "insert into bench_copy select * from idempotency order by created_at";
    bench.admin.batch_execute(fill).await?;
    Ok(())
}

async fn pair(
    bench: &Bench,
    connection: &mut Connection,
    days: u32,
    bare_first: bool,
    table: &mut Table,
) -> Result<f64> {
    let keep = purge::Retention {
        done: DAY * days,
        failed: DAY * days,
        events: None,
    };
    let mut request = purge::Request::new(keep, Actor::default());
    request.dry_run = true;
    let dry = purge::run(connection, &bench.store, &request, &mut |_| {}, &Stop::never()).await?;
    request.dry_run = false;
    let mut bare = None;
    if bare_first {
        bare = Some(delete(bench, keep.done).await?);
    }
    let before = bench.wal().await?;
    let started = Instant::now();
    let report = purge::run(connection, &bench.store, &request, &mut |_| {}, &Stop::never()).await?;
    let ours = (started.elapsed(), bench.wal().await? - before);
    let bare = match bare {
        Some(bare) => bare,
        None => delete(bench, keep.done).await?,
    };
    // A release may have taken a row of the one table only, and time goes on between the two.
    let rows = usize::try_from(report.deleted)?.max(1);
    let slower = ours.0.as_secs_f64() / bare.0.as_secs_f64();
    table.row([
        format!("{days} d"),
        report.deleted.to_string(),
        ms(dry.elapsed),
        ms(ours.0),
        ms(bare.0),
        ratio(slower),
        format!("{:.0} B/row", per(ours.1, rows)),
        format!("{:.0} B/row", per(bare.1, rows)),
    ]);
    Ok(slower)
}

/// Time and bytes of WAL.
async fn delete(bench: &Bench, keep: Duration) -> Result<(Duration, i64)> {
    let before = bench.wal().await?;
    let started = Instant::now();
    bench.admin.execute(BARE, &[&keep.as_secs_f64()]).await?;
    Ok((started.elapsed(), bench.wal().await? - before))
}

async fn releases(bench: &Bench, connection: &mut Connection) -> Result<()> {
    let most = if bench.is_trial() { 10 } else { 200 };
    let rows = stuck::page(connection, &bench.store, Duration::ZERO, None, None, most)
        .await?
        .rows;
    if rows.is_empty() {
        return Err("no key is stuck, so there is nothing to release".into());
    }
    let before = bench.wal().await?;
    let mut times = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let request = release::Request {
            seen: row,
            end: if n % 2 == 0 {
                &End::Release
            } else {
                &End::Fail(None)
            },
            steal: false,
            evidence: serde_json::Value::Null,
            dry_run: false,
            actor: Actor::default(),
        };
        let started = Instant::now();
        let outcome = release::run(connection, &bench.store, &request).await?;
        times.push(started.elapsed());
        if !matches!(outcome, release::Outcome::Released | release::Outcome::Failed) {
            return Err(format!("release of {} ended with {outcome:?}", row.id).into());
        }
    }
    println!(
        "\nrelease of one key, with its event, in its transaction: median {}, p99 {}, {:.0} bytes of WAL",
        median(&times, ms),
        quantile(&times, 99).map_or_else(String::new, ms),
        per(bench.wal().await? - before, times.len())
    );
    Ok(())
}
