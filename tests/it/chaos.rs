//! Nothing is charged twice: real processes, killed; a real PostgreSQL, restarted; a provider that fails; and a
//! checker that is shown to find what it looks for.
//!
//! `IDEMCTL_CHAOS_SECONDS` lets the trouble last longer, `IDEMCTL_CHAOS_SEED` makes it another.

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

use tokio::sync::{Mutex, MutexGuard};

use checker::Violation;
use run::run;
use weather::Season;
use world::Setup;

/// The seed of what runs in CI.
const SEED: u64 = 20_261_129;

/// The trouble in CI, in seconds.
const SECONDS: u64 = 20;

/// Runs would only take the machine away from each other.
async fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::const_new(());
    ONE.lock().await
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
    let season = Season {
        crashes: true,
        stops: true,
    };
    let verdict = run(
        "provider with idempotency keys",
        Setup::default(),
        season,
        seed(),
        Duration::from_secs(seconds()),
    )
    .await;
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
    let season = Season {
        crashes: true,
        stops: false,
    };
    let setup = Setup {
        keys: "ignore",
        lease: 6_000,
        lag: 4_000,
        more: &["--look-up"],
        ..Setup::default()
    };
    let time = Duration::from_secs(seconds().div_ceil(2));
    let verdict = run("provider without keys, asked first", setup, season, seed(), time).await;
    println!("{}", verdict.figures);
    verdict.sound();
    assert!(verdict.figures.done.kills > 0 && verdict.figures.takeovers > 0);
}

/// The same without asking: what the look-up is for.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_without_keys_that_is_not_asked_is_caught() {
    let _alone = alone().await;
    let season = Season {
        crashes: true,
        stops: false,
    };
    let setup = Setup {
        keys: "ignore",
        ..Setup::default()
    };
    let verdict = run(
        "provider without keys, not asked",
        setup,
        season,
        seed(),
        Duration::from_secs(3),
    )
    .await;
    println!("{}", verdict.figures);
    assert!(verdict.figures.doubles > 0, "the checker finds nothing");
}

/// A database that says "committed" before it is loses answers that clients have got, when it crashes.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_forgets_is_caught() {
    let _alone = alone().await;
    let season = Season {
        crashes: true,
        stops: false,
    };
    let setup = Setup {
        synchronous_commit: "off",
        ..Setup::default()
    };
    let verdict = run(
        "synchronous_commit = off",
        setup,
        season,
        seed(),
        Duration::from_secs(12),
    )
    .await;
    println!("{}", verdict.figures);
    let lost = |violation: &Violation| matches!(violation, Violation::AnswerLost { .. });
    println!(
        "  answers lost: {}",
        verdict.violations.iter().filter(|v| lost(v)).count()
    );
}

/// The handler that looks first and writes afterwards: the checker must catch it.
#[tokio::test(flavor = "multi_thread")]
async fn the_naive_handler_is_caught() {
    let _alone = alone().await;
    let season = Season {
        crashes: false,
        stops: false,
    };
    let setup = Setup {
        naive: true,
        ..Setup::default()
    };
    let verdict = run("check, then write", setup, season, seed(), Duration::from_secs(3)).await;
    println!("{}", verdict.figures);
    assert!(verdict.figures.doubles > 0, "the checker finds nothing");
}

/// A new key to the provider at each attempt: the layer alone does not help, and the checker must see it.
#[tokio::test(flavor = "multi_thread")]
async fn fresh_provider_keys_are_caught() {
    let _alone = alone().await;
    let season = Season {
        crashes: true,
        stops: false,
    };
    let setup = Setup {
        more: &["--mistake", "fresh-keys"],
        ..Setup::default()
    };
    let verdict = run(
        "fresh provider keys",
        setup,
        season,
        seed(),
        Duration::from_secs(5),
    )
    .await;
    println!("{}", verdict.figures);
    assert!(verdict.figures.doubles > 0, "the checker finds nothing");
}
