//! `sd_notify(3)`, seen from the manager's side.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Place, QUIET, terminate};
use crate::purge::fixture;
use crate::support::{Proxy, database};

#[tokio::test(flavor = "multi_thread")]
async fn ready_reloading_stopping() {
    let f = fixture().await;
    let place = Place::new(QUIET);
    let mut daemon = place.janitor(&f.db.url).spawn();
    let before = place.told_until("READY=1").await;
    assert_eq!(before.len(), 1, "nothing is in the way: {before:?}");
    let status = place.told_until(":00Z; expired: no run yet, next ").await;
    assert!(
        status
            .last()
            .unwrap()
            .starts_with("STATUS=purge: no run yet, next "),
        "{status:?}"
    );

    place.write("[janitor.purge]\nschedule = \"61 * * * *\"\n");
    daemon.signal(Signal::SIGHUP);
    let reloading = place.told_until("RELOADING=1").await.pop().unwrap();
    let since: u128 = reloading
        .lines()
        .find_map(|line| line.strip_prefix("MONOTONIC_USEC="))
        .expect("in the same message")
        .parse()
        .unwrap();
    assert!(since > 0);
    let ready = place.told_until("READY=1").await.pop().unwrap();
    assert!(ready.starts_with("READY=1\n"), "{ready}");
    assert!(
        ready.contains("refused, the old one stays") && ready.contains("janitor.purge"),
        "{ready}"
    );

    f.done(10, 48).await;
    place.write("[janitor.purge]\nschedule = \"* * * * * *\"\n");
    daemon.signal(Signal::SIGHUP);
    place.told_until("RELOADING=1").await;
    let ready = place.told_until("READY=1").await.pop().unwrap();
    assert!(
        ready.starts_with("READY=1\n") && !ready.contains("refused"),
        "{ready}"
    );
    // The manager gets the newest status; the log has each run.
    daemon.wait_for_line("deleted 10 rows in 1 batches").await;
    place.told_until("STATUS=purge: last 20").await;

    daemon.signal(Signal::SIGUSR1);
    daemon.wait_for_line("status: purge: ").await;
    daemon.signal(Signal::SIGTERM);
    // Read at once: the socket holds a few messages, and a daemon that ends does not wait long for a slow manager.
    let stopping = place.told_until("STOPPING=1").await.pop().unwrap();
    // As long as the grace time and the end may take, or the end alone where the work was over before it was told.
    let within = if stopping.contains("is finished first") {
        30
    } else {
        10
    };
    assert!(
        stopping.contains(&format!("EXTEND_TIMEOUT_USEC={within}000000")),
        "{stopping}"
    );
    let output = daemon.wait().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn not_ready_while_the_database_is_away() {
    let f = fixture().await;
    let proxy = Proxy::start(f.db.target()).await;
    proxy.refuse(true);
    let place = Place::new(QUIET);
    let url = f.db.url_through(proxy.address.port()) + "?sslmode=disable";
    let daemon = place.janitor(&url).spawn();
    let waiting = place.told_until("waiting for the database").await;
    assert!(
        waiting.iter().all(|message| !message.contains("READY")),
        "{waiting:?}"
    );
    assert!(
        waiting
            .iter()
            .any(|message| message.starts_with("EXTEND_TIMEOUT_USEC=")),
        "the manager would end it after TimeoutStartSec: {waiting:?}"
    );
    proxy.refuse(false);
    place.told_until("READY=1").await;
    assert_eq!(terminate(daemon).await.code, 0);

    // And it can be ended while it waits.
    proxy.refuse(true);
    let daemon = place.janitor(&url).spawn();
    place.told_until("waiting for the database").await;
    let output = terminate(daemon).await;
    assert_eq!(output.code, 0, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_waiting_mends_ends_it() {
    let empty = database().await;
    let place = Place::new(QUIET);
    let output = place.janitor(&empty.url).run().await;
    assert_eq!(output.code, 9, "{}", output.transcript());
    place.write("[janitor.purge]\nschedule = \"61 * * * *\"\n");
    let output = place.janitor(&empty.url).run().await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    let unheard = tokio::time::timeout(Duration::from_millis(100), place.told()).await;
    assert!(unheard.is_err(), "never ready: {unheard:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_is_fed_by_a_daemon_that_waits() {
    let f = fixture().await;
    let place = Place::new(QUIET);
    let daemon = place.janitor(&f.db.url).env("WATCHDOG_USEC", "200000").spawn();
    place.told_until("READY=1").await;
    for _ in 0..10 {
        place.told_until("WATCHDOG=1").await;
    }
    // A process that stands still is not fed: the manager hears nothing and ends it.
    daemon.signal(Signal::SIGSTOP);
    while tokio::time::timeout(Duration::from_secs(2), place.told())
        .await
        .is_ok()
    {}
    daemon.signal(Signal::SIGCONT);
    place.told_until("WATCHDOG=1").await;
    assert_eq!(terminate(daemon).await.code, 0);
}
