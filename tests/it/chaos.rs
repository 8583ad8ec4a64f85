//! Nothing is charged twice: real processes, killed; a real PostgreSQL, restarted; a provider that fails; and a
//! checker that is shown to find what it looks for.
//!
//! `IDEMCTL_CHAOS_SECONDS` lets the trouble last longer, `IDEMCTL_CHAOS_SEED` makes it another.

mod after;
mod checker;
mod checker_tests;
mod client;
mod history;
mod load;
mod naive;
mod postgres;
mod report;
mod run;
mod weather;
mod world;

use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use checker::Violation;
use postgres::Stop;
use run::{Verdict, run};
use weather::Season;
use world::Setup;

/// The seed of what runs in CI.
const SEED: u64 = 20_261_129;

/// The trouble in CI, in seconds.
const SECONDS: u64 = 20;

/// Who may use the machine: one run that has to come out right, or all those that only have to be caught.
static MACHINE: RwLock<()> = RwLock::const_new(());

async fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().await
}

async fn together() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().await
}

/// A number from the environment.
fn option(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => otherwise,
    }
}

fn seed() -> u64 {
    option("IDEMCTL_CHAOS_SEED", SEED)
}

fn seconds() -> u64 {
    option("IDEMCTL_CHAOS_SECONDS", SECONDS)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_charged_twice() {
    let _alone = alone().await;
    let time = Duration::from_secs(seconds());
    let verdict = run("provider with keys", Setup::default(), Season::ALL, seed(), time).await;
    println!("{}", verdict.figures);
    verdict.sound();
    let figures = &verdict.figures;
    assert!(figures.done.kills > 0 && figures.done.stops > 0 && figures.done.cuts > 0);
    assert!(!figures.done.restarts.is_empty());
    assert!(figures.takeovers > 0 && figures.replays > 0 && figures.unanswered > 0);
    assert!(
        [201, 402, 409, 422, 502]
            .iter()
            .all(|status| figures.status(*status) > 0)
    );
    assert!(figures.charges > figures.done.kills, "most of the time it works");
}

/// Without keys at the provider nothing but asking protects. What that cannot do: find a charge that arrives later
/// than the lag says, or stop a holder that stood still between its look and its charge. So the services are not
/// stopped here, and lease and lag are longer than everything that a charge can take:
/// lag > the provider's slowest charge (2 s) and the longest that the network holds it up (1.5 s), and
/// lease + lag > look (1 s), lag, look (1 s), request (1 s) and slowest charge.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_charged_twice_at_a_provider_without_keys() {
    let _alone = alone().await;
    let setup = Setup {
        keys: "ignore",
        lease: 6_000,
        lag: 4_000,
        more: &["--look-up"],
        ..Setup::default()
    };
    let time = Duration::from_secs(seconds().div_ceil(2));
    let verdict = run(
        "provider without keys, asked first",
        setup,
        Season::CRASHES,
        seed(),
        time,
    )
    .await;
    println!("{}", verdict.figures);
    verdict.sound();
    assert!(verdict.figures.done.kills > 0 && verdict.figures.takeovers > 0);
}

/// Only the provider fails, and leases outlast everything: then two holders of one key never are at the provider at
/// the same time.
#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_tells_the_provider() {
    let _alone = alone().await;
    let setup = Setup {
        lease: 10_000,
        ..Setup::default()
    };
    let time = Duration::from_secs(seconds().div_ceil(4));
    let verdict = run("only the provider fails", setup, Season::FAULTS, seed(), time).await;
    println!("{}", verdict.figures);
    verdict.sound();
    assert!(verdict.figures.takeovers > 0 && verdict.figures.calls > verdict.figures.charges);
}

/// A run with something wrong in it: whether the checker sees it.
async fn caught(
    name: &'static str,
    setup: Setup,
    season: Season,
    violation: fn(&Violation) -> bool,
) -> Verdict {
    let _together = together().await;
    let setup = Setup {
        mistake: true,
        ..setup
    };
    // A database that restarts all the time leaves little time in between.
    let seconds = if season.database.is_some() { 8 } else { 4 };
    let verdict = run(name, setup, season, seed(), Duration::from_secs(seconds)).await;
    println!("{}", verdict.figures);
    let found = verdict.violations.iter().filter(|found| violation(found)).count();
    assert!(found > 0, "{name}: the checker finds nothing");
    verdict
}

fn twice(violation: &Violation) -> bool {
    matches!(violation, Violation::ChargedTwice { .. })
}

fn overlapping(violation: &Violation) -> bool {
    matches!(violation, Violation::CallsOverlap { .. })
}

fn too_many(violation: &Violation) -> bool {
    matches!(violation, Violation::TooManyCalls { .. })
}

/// The handler that looks first and writes afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn the_naive_handler_is_caught() {
    let setup = Setup {
        naive: true,
        ..Setup::default()
    };
    caught("mistake: check, then write", setup, Season::FAULTS, twice).await;
}

/// A service to which a lease is good advice. The provider honours keys, so no money moves twice, and every answer is
/// right: only what the provider was told gives it away.
#[tokio::test(flavor = "multi_thread")]
async fn ignored_leases_are_caught() {
    let setup = Setup {
        more: &["--mistake", "ignore-leases"],
        lease: 10_000,
        ..Setup::default()
    };
    let verdict = caught("mistake: ignored leases", setup, Season::FAULTS, overlapping).await;
    assert!(verdict.violations.iter().any(too_many));
    assert!(!verdict.violations.iter().any(twice));
}

/// A new key to the provider at each attempt: the layer alone does not help.
#[tokio::test(flavor = "multi_thread")]
async fn fresh_provider_keys_are_caught() {
    let setup = Setup {
        more: &["--mistake", "fresh-keys"],
        ..Setup::default()
    };
    caught("mistake: fresh provider keys", setup, Season::CRASHES, twice).await;
}

/// What the look-up is for.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_without_keys_that_is_not_asked_is_caught() {
    let setup = Setup {
        keys: "ignore",
        ..Setup::default()
    };
    caught(
        "mistake: provider without keys, not asked",
        setup,
        Season::CRASHES,
        twice,
    )
    .await;
}

/// A database that says "committed" before it is (`synchronous_commit = off`, or a failover to a replica that lags)
/// forgets in a crash that a key was ever used. Where the provider honours keys its answer heals that; elsewhere nobody
/// knows any more that there is something to ask for.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_forgets_is_caught() {
    caught(
        "mistake: synchronous_commit = off",
        restarted("off"),
        RESTARTS,
        twice,
    )
    .await;
}

/// The control: nothing but that one setting is at fault.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_remembers_is_not() {
    let _alone = alone().await;
    let time = Duration::from_secs(8);
    let verdict = run("synchronous_commit = on", restarted("on"), RESTARTS, seed(), time).await;
    println!("{}", verdict.figures);
    verdict.sound();
    assert!(!verdict.figures.done.restarts.is_empty() && verdict.figures.takeovers > 0);
}

/// The database crashes all the time.
const RESTARTS: Season = Season {
    database: Some(Stop::Immediate),
    ..Season::FAULTS
};

/// A provider without keys, asked first (lease and lag as above), and a database that writes late what it may.
fn restarted(synchronous_commit: &'static str) -> Setup {
    let database: &'static [(&str, &str)] = match synchronous_commit {
        "off" => &[
            ("synchronous_commit", "off"),
            ("wal_writer_delay", "10s"),
            ("wal_writer_flush_after", "1GB"),
        ],
        _ => &[
            ("synchronous_commit", "on"),
            ("wal_writer_delay", "10s"),
            ("wal_writer_flush_after", "1GB"),
        ],
    };
    Setup {
        keys: "ignore",
        more: &["--look-up"],
        lease: 6_000,
        lag: 4_000,
        database,
        ..Setup::default()
    }
}
