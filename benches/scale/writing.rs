//! What the janitor asks and does, and the purge of a tenth.

use std::time::{Duration, Instant};

use idemctl::connect::{Connection, Settings};
use idemctl::ops::gauges::{self, Question};
use idemctl::ops::purge::Retention;

use crate::goal::Goal;
use crate::reading::grows;
use crate::report::{Table, ms, ratio};
use crate::watch::Watch;
use crate::{Base, Result, program};

const TTL: Duration = Duration::from_hours(24);

pub(crate) async fn run(bases: [&Base; 2], watch: &mut Watch) -> Result<Vec<Goal>> {
    let mut gauged = Vec::new();
    let mut released = Vec::new();
    let mut purged = Vec::new();
    for base in bases {
        gauged.push(metrics(base, watch).await?);
        released.push(
            command(
                base,
                watch,
                &["release", "--expired", "--yes", "--reason", "bench"],
            )
            .await?,
        );
        purged.push(command(base, watch, &["purge"]).await?);
    }
    let mut table = Table::new(
        "The janitor's questions, and what writes: pages touched on a tenth of the table and on all of it",
        ["what", "pages, tenth", "pages", "", "time", "memory", "plan"],
    );
    let mut growing = 0_u32;
    for (what, done) in [
        ("gauges of /metrics", &gauged),
        ("release --expired (100 keys)", &released),
    ] {
        let [less, more] = done.as_slice() else {
            return Err("two tables".into());
        };
        let grows = grows(less.pages, more.pages);
        growing += u32::from(grows);
        table.row(more.cells(what, less, if grows { "grows" } else { "flat" }));
    }
    let [less, more] = purged.as_slice() else {
        return Err("two tables".into());
    };
    table.row(more.cells("purge of a tenth", less, "by rows deleted"));
    table.print();
    let per_row = |done: &Done| pages(done.pages) / pages(done.rows.max(1));
    println!(
        "\npurge: {} rows on the tenth, {} pages a row; {} rows on all, {} pages a row",
        less.rows,
        ratio(per_row(less)),
        more.rows,
        ratio(per_row(more)),
    );
    let memory = pages(more.peak_kb) / pages(less.peak_kb.max(1));
    Ok(vec![
        Goal::of(
            "gauges and releases whose pages grow with the table",
            "0",
            Some(f64::from(growing)),
            |found| Some(found == 0.0),
        ),
        Goal::of(
            "pages per row purged, all of the table : a tenth",
            "<= 1.5",
            Some(per_row(more) / per_row(less)),
            |found| Some(found <= 1.5),
        ),
        Goal::of(
            "peak memory of the purge, all of the table : a tenth",
            "<= 1.2",
            (more.peak_kb > 0).then_some(memory),
            |found| Some(found <= 1.2),
        ),
    ])
}

struct Done {
    pages: u64,
    plan: String,
    took: Duration,
    peak_kb: u64,
    /// Rows that are gone.
    rows: u64,
}

impl Done {
    fn cells(&self, what: &str, less: &Self, verdict: &str) -> [String; 7] {
        [
            what.to_owned(),
            less.pages.to_string(),
            self.pages.to_string(),
            verdict.to_owned(),
            ms(self.took),
            format!("{} MB", self.peak_kb / 1024),
            self.plan.clone(),
        ]
    }
}

fn pages(n: u64) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

/// Through the library, as the daemon asks.
async fn metrics(base: &Base, watch: &mut Watch) -> Result<Done> {
    let request = gauges::Request {
        older_than: Duration::from_mins(10),
        retention: Retention {
            done: TTL,
            failed: TTL,
            events: None,
        },
        jobs: vec!["purge", "expired"],
        cleared_before: None,
    };
    watch.start(&base.admin, base.database).await?;
    let mut connection = Connection::open(&Settings::from_dsn(&base.url)?).await?;
    let started = Instant::now();
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    let found = gauges::read(&mut connection, &base.store, &request, deadline).await;
    let took = started.elapsed();
    connection.close().await;
    let seen = watch.stop(&base.admin, base.database).await?;
    if let Some(failed) = found
        .failed
        .iter()
        .find(|failed| failed.question != Question::Jobs)
    {
        return Err(format!("the gauge {} was not answered: {}", failed.question, failed.why).into());
    }
    Ok(Done {
        pages: seen.pages,
        plan: seen.plan,
        took,
        peak_kb: 0,
        rows: 0,
    })
}

async fn command(base: &Base, watch: &mut Watch, args: &[&str]) -> Result<Done> {
    let before = base.count().await?;
    watch.start(&base.admin, base.database).await?;
    let run = program::run(&base.url, args)?;
    let seen = watch.stop(&base.admin, base.database).await?;
    Ok(Done {
        pages: seen.pages,
        plan: seen.plan,
        took: run.took,
        peak_kb: run.peak_kb,
        rows: before - base.count().await?,
    })
}
