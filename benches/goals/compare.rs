//! The ways to claim against their floors.

use std::time::Duration;

use idemctl::connect::Settings;
use idemctl::ops::bench::{self, Figure, RedisUrl, Report, Request, Scenario, Strategy, Way};
use idemctl::stop::Stop;

use crate::goal::Goal;
use crate::servers::Servers;
use crate::{Effort, Result};

pub(crate) async fn run(servers: &Servers, effort: Effort) -> Result<Vec<Goal>> {
    let settings = Settings::from_dsn(&servers.postgres.url("idemctl"))?;
    let request = Request {
        duration: effort.duration,
        keys: effort.keys,
        strategies: Strategy::ALL.to_vec(),
        redis: Some(RedisUrl::new(&servers.redis_url)),
        ..Request::default()
    };
    let report = bench::run(&settings, &request, &mut |_| {}, &Stop::never()).await?;
    print(&report);
    let cpu = cpu(servers, &settings, effort).await?;
    let lease = |scenario| figure(&report, scenario, Strategy::Lease).and_then(|figure| figure.ratio);
    let times = |scenario| {
        let upsert = figure(&report, scenario, Strategy::SeedUpsert)?.ratio?;
        Some(lease(scenario)? / upsert)
    };
    let replay = figure(&report, Scenario::Replay, Strategy::Lease);
    let wal = replay.and_then(|figure| figure.wal_bytes);
    Ok(vec![
        Goal::of(
            "first claim : one INSERT",
            ">= 0.95",
            lease(Scenario::Claim),
            |found| Some(found >= 0.95),
        ),
        Goal::of(
            "replay : one SELECT",
            ">= 0.7",
            lease(Scenario::Replay),
            |found| Some(found >= 0.7),
        ),
        Goal::of(
            "the same for a key of another process",
            "(no goal)",
            lease(Scenario::ReplayCold),
            |_| None,
        ),
        Goal::of("replay : seed-upsert", ">= 5", times(Scenario::Replay), |found| {
            Some(found >= 5.0)
        }),
        Goal::of(
            "one hot key : seed-upsert",
            ">= 30",
            times(Scenario::Hot),
            |found| Some(found >= 30.0),
        ),
        Goal::of(
            "reserve + complete : INSERT + UPDATE",
            ">= 0.9",
            lease(Scenario::Complete),
            |found| Some(found >= 0.9),
        ),
        // The server writes a record of its own now and then.
        Goal::of("WAL of a replay, in bytes", "0", wal, |bytes| Some(bytes < 1.0)),
        Goal::of(
            "CPU of client : server, claims and completions",
            "< 1",
            cpu,
            |cpu| Some(cpu < 1.0),
        ),
    ])
}

fn figure(report: &Report, scenario: Scenario, strategy: Strategy) -> Option<&Figure> {
    let way = Way::Strategy(strategy);
    report
        .figures
        .iter()
        .find(|figure| (figure.scenario, figure.way) == (scenario, way))
}

fn print(report: &Report) {
    println!(
        "{} clients, {} connections, {} keys; {} rounds of {} ms",
        report.clients,
        report.pool,
        report.keys,
        report.rounds,
        report.turn.as_millis()
    );
    for warning in &report.warnings {
        println!("note: {warning}");
    }
    println!("\n| scenario | way | per second | of floor | from | to | p50 | p99 | losers | twice | WAL |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let ratio = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    for figure in &report.figures {
        println!(
            "| {} | {} | {:.0} | {} | {} | {} | {} | {} | {:.1} % | {} | {} |",
            figure.scenario.as_str(),
            figure.way.as_str(),
            figure.per_second,
            ratio(figure.ratio),
            ratio(figure.ratio_range.map(|(least, _)| least)),
            ratio(figure.ratio_range.map(|(_, most)| most)),
            ms(figure.claim.p50),
            ms(figure.claim.p99),
            figure.losers() * 1e2,
            figure.doubles,
            figure
                .wal_bytes
                .map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0} B")),
        );
    }
}

/// Processor time of this process to that of the server, over a run of claims and completions with their floor. `None`
/// where there is no /proc.
async fn cpu(servers: &Servers, settings: &Settings, effort: Effort) -> Result<Option<f64>> {
    let request = Request {
        duration: effort.duration / 6,
        keys: 100,
        scenarios: vec![Scenario::Complete],
        strategies: vec![Strategy::Lease],
        ..Request::default()
    };
    let pids = (std::process::id(), servers.postgres.pid());
    let before = (ticks(pids.0), ticks(pids.1));
    bench::run(settings, &request, &mut |_| {}, &Stop::never()).await?;
    let ours = ticks(pids.0).zip(before.0).map(|(now, then)| now - then);
    // The postmaster is told of its children's time when it waits for them, which it does at once.
    let theirs = ticks(pids.1).zip(before.1).map(|(now, then)| now - then);
    Ok(ours
        .zip(theirs)
        .filter(|(_, theirs)| *theirs > 0.0)
        .map(|(ours, theirs)| ours / theirs))
}

/// User and system time of a process and of its children that have ended: fields 14 to 17 of `stat` in proc(5).
fn ticks(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything; the third field comes behind it.
    let (_, fields) = text.rsplit_once(") ")?;
    let times = fields.split(' ').skip(11).take(4);
    times.map(|field| field.parse::<f64>().ok()).sum()
}
