use std::sync::mpsc::Receiver;

use idemctl::connect::Settings;
use idemctl::janitor::Plan;
use idemctl::janitor::schedule::{Schedule, zone};
use idemctl::ops::actor::Actor;
use idemctl::ops::ask::Providers;
use idemctl::ops::purge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// A daemon without a database, and what it tells its service manager.
fn daemon() -> (Daemon, Receiver<String>) {
    let request = purge::Request::new(purge::Retention::default(), Actor::default());
    let config = Config {
        connection: Settings::from_dsn("host=/nowhere user=nobody").unwrap(),
        schema: None,
        purge: Some(Plan {
            schedule: Schedule::parse("@daily", zone("UTC").unwrap()).unwrap(),
            request,
        }),
        expired: None,
        providers: Arc::new(Providers::none()),
        rps: None,
        jitter: Duration::ZERO,
    };
    let (notifier, told) = Notifier::tested(Duration::from_mins(1));
    // Nobody changes the configuration.
    let (_, receiver) = watch::channel(Arc::new(config));
    (Daemon::new(notifier, receiver), told)
}

fn next(told: &Receiver<String>) -> String {
    told.recv_timeout(Duration::from_mins(1)).expect("a message")
}

/// The status and the body of a page.
async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_starves_while_a_loop_hangs() {
    let (daemon, told) = daemon();
    let daemon = Arc::new(daemon);
    let listener = http::bind(([127, 0, 0, 1], 0).into()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let _server = http::serve(listener, Arc::clone(&daemon));
    let overdue = async || {
        let (status, text) = get(address, "/metrics").await;
        assert_eq!(status, 200);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("idemctl_janitor_overdue_seconds{janitor_job=\"purge\"} "))
            .unwrap_or_else(|| panic!("{text}"));
        line.parse::<f64>().unwrap()
    };
    daemon.watch();
    assert_eq!(next(&told), "Alive");
    assert_eq!(get(address, "/healthz").await.0, 200);
    assert!(overdue().await.abs() < f64::EPSILON);

    let pulse = daemon.pulses.of(Job::Purge);
    pulse.expect_within(Duration::ZERO);
    while pulse.overdue().is_none() {
        tokio::task::yield_now().await;
    }
    daemon.watch();
    daemon.watch();
    daemon.notifier.status("after");
    assert_eq!(next(&told), "Status(\"after\")", "the watchdog was not fed");
    let (status, why) = get(address, "/healthz").await;
    assert!(status == 503 && why.contains("the loop of purge"), "{why}");
    assert!(overdue().await > 0.0);

    pulse.expect_within(Duration::from_hours(1));
    daemon.watch();
    assert_eq!(next(&told), "Alive");
    assert_eq!(get(address, "/healthz").await.0, 200);
    assert!(overdue().await.abs() < f64::EPSILON);
}

/// The seconds that the manager is asked for.
fn extension(message: &str) -> Option<f64> {
    let text = message.strip_prefix("Extend(")?;
    text.trim_end_matches("s)").parse().ok()
}

#[tokio::test]
async fn a_manager_does_not_wait_for_ever() {
    let (daemon, told) = daemon();
    let limit = Duration::from_secs(2);
    let never = Stop::never();
    let waited = daemon.wait_until_able(daemon.config.clone(), &never, Some(limit));
    let error = waited.await.unwrap_err();
    assert_eq!(error.exit(), Exit::Database);
    assert!(error.message().contains("/nowhere"), "{}", error.message());
    let extensions: Vec<f64> = told
        .try_iter()
        .filter_map(|message| extension(&message))
        .collect();
    assert!(!extensions.is_empty());
    // Each is counted from when it is told: their ends are the same.
    assert!(
        extensions.iter().all(|seconds| (10.0..=12.0).contains(seconds))
            && extensions.is_sorted_by(|a, b| a >= b),
        "{extensions:?}"
    );
}
