//! A loop that hangs is found out, and one that works for long is not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use idemctl::janitor::clock::Clock;
use idemctl::janitor::progress::Pulses;
use idemctl::janitor::service::{self, Event};
use idemctl::janitor::{Config, Job, Plan, schedule};
use idemctl::ops::ask::Providers;
use idemctl::stop::channel;
use tokio::sync::watch;

use crate::purge::{Fixture, fixture, request};
use crate::support::until;

/// A janitor that only purges, every second, one row at a time.
fn config(f: &Fixture, pause: Duration) -> Config {
    let mut connection = f.db.settings();
    connection.timeouts.statement = Duration::from_secs(1);
    let mut purge = request();
    (purge.batch_size, purge.pause) = (1, pause);
    let zone = schedule::zone("UTC").unwrap();
    Config {
        connection,
        schema: None,
        purge: Some(Plan {
            schedule: schedule::Schedule::parse("* * * * * *", zone).unwrap(),
            request: purge,
        }),
        expired: None,
        providers: Arc::new(Providers::none()),
        rps: None,
        jitter: Duration::ZERO,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_never_goes_on_is_overdue_and_its_term_is_no_sign() {
    let f = fixture().await;
    let (_sender, receiver) = watch::channel(Arc::new(config(&f, Duration::ZERO)));
    let (stopper, stop) = channel();
    let pulses = Pulses::default();
    let (release, released) = mpsc::channel::<()>();
    let (hung, released) = (Arc::new(AtomicBool::new(false)), std::sync::Mutex::new(released));
    let janitor = {
        let (pulses, hung) = (pulses.clone(), Arc::clone(&hung));
        // On a runtime of its own, since what hangs there would hold up the test's timers, too.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            // The run starts, and whoever is told so does not give the thread back.
            let observe = |event: Event<'_>| {
                if matches!(event, Event::Started { .. }) && !hung.swap(true, Ordering::SeqCst) {
                    let _ = released.lock().unwrap().recv();
                }
            };
            runtime.block_on(service::run_watched(
                receiver,
                &Clock::system(),
                &stop,
                &observe,
                &pulses,
            ))
        })
    };
    until("the run hangs", async || hung.load(Ordering::SeqCst)).await;
    assert_eq!(pulses.overdue(), None, "a step takes its time");
    until("somebody notices", async || pulses.overdue().is_some()).await;
    assert_eq!(pulses.overdue().map(|(job, _)| job), Some(Job::Purge));
    drop(release);
    until("it goes on", async || pulses.overdue().is_none()).await;
    stopper.soft();
    tokio::task::spawn_blocking(|| janitor.join().unwrap().unwrap())
        .await
        .unwrap();
    assert_eq!(pulses.overdue(), None, "what has ended owes nothing");
}

/// Longer than a step may take (1 s, and the margin of 15 s), and each batch is a sign.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_purge_is_progress() {
    let f = fixture().await;
    f.done(40, 48).await;
    let (_sender, receiver) = watch::channel(Arc::new(config(&f, Duration::from_millis(500))));
    let (stopper, stop) = channel();
    let pulses = Pulses::default();
    let watched = pulses.clone();
    let janitor = tokio::spawn(async move {
        let observe = |_: Event<'_>| {};
        Box::pin(service::run_watched(
            receiver,
            &Clock::system(),
            &stop,
            &observe,
            &watched,
        ))
        .await
    });
    until("all is purged", async || {
        assert_eq!(pulses.overdue(), None);
        f.number("select count(*) from idempotency").await == 0
    })
    .await;
    stopper.soft();
    janitor.await.unwrap().unwrap();
}
