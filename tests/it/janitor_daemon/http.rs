//! `/metrics`, `/healthz`, `/readyz`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Place, terminate};
use crate::purge::fixture;
use crate::support::{Proxy, Spawned, idemctl, until};

/// With a web server, and a purge that only runs on New Year's Day.
pub(super) const SERVED: &str = "[janitor]\nlisten = \"127.0.0.1:0\"\n[janitor.purge]\nschedule = \"0 0 1 1 *\"\n[janitor.expired]\nschedule = \"0 0 1 1 *\"\n";

/// Where it listens, as its log says.
pub(super) async fn address(daemon: &mut Spawned) -> SocketAddr {
    let line = daemon.wait_for_line("serving /metrics").await;
    let (_, address) = line.rsplit_once("address=").expect("the address");
    address.parse().unwrap()
}

/// Sends these bytes and gives the status and the body that come back.
async fn send(address: SocketAddr, bytes: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.unwrap_or(0), body.unwrap_or_default())
}

pub(super) async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n");
    send(address, request.as_bytes()).await
}

/// Every series by its name and labels.
pub(super) async fn metrics(address: SocketAddr) -> BTreeMap<String, f64> {
    let (status, text) = get(address, "/metrics").await;
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            (series.to_owned(), value.parse().unwrap())
        })
        .collect()
}

const ROWS: &str = "insert into idempotency (client_id, key, fingerprint, status, locked_until) values
             ('secret-shop', 'k1', '', 'in_progress', now() + interval '1 hour'),
             ('secret-shop', 'k2', '', 'in_progress', now() - interval '2 hours'),
             ('secret-shop', 'k3', '', 'in_progress', now() - interval '2 minutes'),
             ('secret-shop', 'k4', '', 'in_progress', '-infinity'),
             ('secret-shop', 'k5', '', 'done', now()),
             ('secret-shop', 'k6', '', 'failed', now()),
             ('secret-shop', 'k7', '', 'odd', now());
         analyze idempotency";

/// What the test's rows make of the gauges, before any run.
const EXPECTED: &[(&str, f64)] = &[
    ("idemctl_database_up", 1.0),
    ("idemctl_keys{state=\"in_progress\"}", 1.0),
    ("idemctl_keys{state=\"expired\"}", 3.0),
    ("idemctl_keys_capped{state=\"expired\"}", 0.0),
    ("idemctl_stuck_keys", 2.0),
    ("idemctl_purge_backlog_keys", 7.0),
    ("idemctl_purge_backlog_capped", 0.0),
    ("idemctl_recent_keys{state=\"done\"}", 8.0),
    ("idemctl_recent_keys{state=\"failed\"}", 1.0),
    ("idemctl_recent_keys{state=\"unknown\"}", 1.0),
    ("idemctl_keys_estimate", 14.0),
    (
        "idemctl_janitor_runs_total{janitor_job=\"purge\",outcome=\"done\"}",
        0.0,
    ),
    (
        "idemctl_janitor_errors_total{janitor_job=\"expired\",kind=\"read_only\"}",
        0.0,
    ),
    ("idemctl_janitor_overdue_seconds{janitor_job=\"purge\"}", 0.0),
    ("idemctl_purge_deleted_keys_total", 0.0),
    (
        concat!("idemctl_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"),
        1.0,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_table_and_the_jobs_are_shown_without_a_word_of_a_row() {
    let f = fixture().await;
    f.done(7, 48).await;
    f.execute(ROWS).await;
    let place = Place::new(SERVED);
    let mut daemon = place.janitor(&f.db.url).spawn();
    let address = address(&mut daemon).await;
    place.told_until("no run yet, next").await;
    let seen = metrics(address).await;
    let value = |series: &str| {
        *seen
            .get(series)
            .unwrap_or_else(|| panic!("no {series} in {seen:#?}"))
    };
    for (series, expected) in EXPECTED {
        assert!(
            (value(series) - expected).abs() < 1e-9,
            "{series} is {}",
            value(series)
        );
    }
    let near = |series: &str, expected: f64| {
        let off = value(series) - expected;
        assert!((0.0..120.0).contains(&off), "{series} is {}", value(series));
    };
    near("idemctl_oldest_expired_seconds", 7200.0);
    near("idemctl_purge_backlog_oldest_seconds", 86400.0 - 8.0);
    // A year and a leap year are ahead; the longest of the next gaps counts.
    near(
        "idemctl_janitor_interval_seconds{janitor_job=\"purge\"}",
        366.0 * 86400.0,
    );
    assert!(
        !seen.keys().any(|series| series.contains("last_success")),
        "none yet"
    );
    let (_, text) = get(address, "/metrics").await;
    assert!(!text.contains("secret-shop") && !text.contains("k2"), "{text}");

    place.write(&SERVED.replace("0 0 1 1 *", "* * * * * *"));
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.wait_for_line("deleted 7 rows").await;
    until(
        "both jobs have succeeded, and the backlog is asked for anew",
        async || {
            let seen = metrics(address).await;
            let success = |job: &str| {
                format!("idemctl_janitor_last_success_timestamp_seconds{{janitor_job=\"{job}\"}}")
            };
            seen.contains_key(&success("purge")) && seen.contains_key(&success("expired"))
        },
    )
    .await;
    let seen = metrics(address).await;
    assert!(
        (seen["idemctl_purge_deleted_keys_total"] - 7.0).abs() < 1e-9,
        "{seen:#?}"
    );
    let now: f64 =
        f.db.client
            .query_one("select extract(epoch from clock_timestamp())::float8", &[])
            .await
            .unwrap()
            .get(0);
    let ago = now - seen["idemctl_janitor_last_success_timestamp_seconds{janitor_job=\"purge\"}"];
    assert!((0.0..120.0).contains(&ago), "Unix time, a moment ago: {ago}");
    assert_eq!(terminate(daemon).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_is_said_to_be() {
    let f = fixture().await;
    let proxy = Proxy::start(f.db.target()).await;
    let place = Place::new(SERVED);
    let url = f.db.url_through(proxy.address.port()) + "?sslmode=disable";
    let mut daemon = place.janitor(&url).spawn();
    let address = address(&mut daemon).await;
    place.told_until("READY=1").await;
    assert_eq!(get(address, "/readyz").await, (200, "ok\n".to_owned()));
    assert!(
        metrics(address)
            .await
            .contains_key("idemctl_keys{state=\"expired\"}")
    );
    // What was known before is given again for 15 s; a reload forgets it.
    proxy.refuse(true);
    proxy.cut();
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    place.told_until("RELOADING=1").await;
    place.told_until("READY=1").await;
    let seen = metrics(address).await;
    assert!((seen["idemctl_database_up"]).abs() < 1e-9, "{seen:#?}");
    assert!(
        !seen.contains_key("idemctl_stuck_keys"),
        "no old values: {seen:#?}"
    );
    let (status, why) = get(address, "/readyz").await;
    assert_eq!((status, why.as_str()), (503, "the database does not answer\n"));
    assert_eq!(
        get(address, "/healthz").await.0,
        200,
        "that is no fault of the process"
    );
    // A peer that vanished without a packet is noticed in less time than a scrape may take.
    proxy.refuse(false);
    proxy.hold();
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    place.told_until("RELOADING=1").await;
    place.told_until("READY=1").await;
    let started = std::time::Instant::now();
    let seen = metrics(address).await;
    assert!(
        started.elapsed() < Duration::from_secs(12),
        "{:?}",
        started.elapsed()
    );
    assert!((seen["idemctl_database_up"]).abs() < 1e-9, "{seen:#?}");
    proxy.release();
    until("the database is back", async || {
        get(address, "/readyz").await.0 == 200
    })
    .await;
    assert_eq!(terminate(daemon).await.code, 0);
}

/// As after an update that nobody has migrated yet.
#[tokio::test(flavor = "multi_thread")]
async fn one_gauge_that_fails_is_not_the_database() {
    let f = fixture().await;
    f.execute(ROWS).await;
    let place = Place::new(SERVED);
    let mut daemon = place.janitor(&f.db.url).spawn();
    let address = address(&mut daemon).await;
    place.told_until("READY=1").await;
    f.execute("alter table idempotency_job rename to elsewhere").await;
    let seen = metrics(address).await;
    let value = |series: &str| seen.get(series).copied();
    let failed = |question: &str| value(&format!("idemctl_gauges_failed{{question=\"{question}\"}}"));
    assert_eq!(value("idemctl_database_up"), Some(1.0), "{seen:#?}");
    assert_eq!(value("idemctl_stuck_keys"), Some(2.0), "{seen:#?}");
    assert_eq!(
        (failed("jobs"), failed("expired")),
        (Some(1.0), Some(0.0)),
        "{seen:#?}"
    );
    assert!(
        !seen.keys().any(|series| series.contains("since_success")),
        "{seen:#?}"
    );
    let (_, why) = get(address, "/readyz").await;
    assert!(
        !why.contains("does not answer"),
        "it may miss the job's table: {why}"
    );
    let line = daemon.wait_for_line("gauges of the table are missing").await;
    assert!(
        line.contains("jobs") && line.contains("idempotency_job"),
        "{line}"
    );
    f.execute("alter table elsewhere rename to idempotency_job").await;
    assert_eq!(terminate(daemon).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_who_hangs_up_ends_no_question() {
    let f = fixture().await;
    let place = Place::new(SERVED);
    let mut daemon = place.janitor(&f.db.url).spawn();
    let address = address(&mut daemon).await;
    place.told_until("READY=1").await;
    let locker = f.db.connect().await;
    locker
        .batch_execute("begin; lock table idempotency in access exclusive mode")
        .await
        .unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let asking = "select coalesce(max(pid), 0)::int8 from pg_stat_activity
                   where datname = current_database() and query like '%idemctl:gauges_expired%' and state = 'active'
                     and pid <> pg_backend_pid()";
    until("the question waits", async || f.number(asking).await > 0).await;
    let pid = f.number(asking).await;
    drop(stream);
    // The next one gets the answer to the same question: the lock keeps what is counted, and that is all.
    let seen = metrics(address).await;
    assert!((seen["idemctl_database_up"] - 1.0).abs() < 1e-9, "{seen:#?}");
    assert!(
        (seen["idemctl_gauges_failed{question=\"expired\"}"] - 1.0).abs() < 1e-9,
        "{seen:#?}"
    );
    assert!(
        (seen["idemctl_gauges_failed{question=\"jobs\"}"]).abs() < 1e-9,
        "{seen:#?}"
    );
    let there = format!("select count(*) from pg_stat_activity where pid = {pid}");
    assert_eq!(f.number(&there).await, 1, "nobody gave the connection up");
    locker.batch_execute("rollback").await.unwrap();
    assert_eq!(terminate(daemon).await.code, 0);
    assert_eq!(f.number(&there).await, 0, "it took its leave");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_sent_does_no_harm() {
    let f = fixture().await;
    let place = Place::new(SERVED);
    let mut daemon = place.janitor(&f.db.url).spawn();
    let address = address(&mut daemon).await;
    assert_eq!(get(address, "/").await.0, 404);
    assert_eq!(get(address, "/metrics/../etc/passwd").await.0, 404);
    let post = b"POST /metrics HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(send(address, post).await.0, 405);
    assert_eq!(
        send(
            address,
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 nonsense\r\n\r\n"
        )
        .await
        .0,
        400
    );
    // Far too long a head: hyper may close while we still send, so that the answer is lost.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let long = format!(
        "GET /healthz HTTP/1.1\r\nHost: here\r\nX: {}\r\n\r\n",
        "a".repeat(1 << 20)
    );
    let _ = stream.write_all(long.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(
        !answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // More clients that send half a head than there are places: they are sent away in time.
    let mut idle = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /hea").await.unwrap();
        idle.push(stream);
    }
    let (status, _) = tokio::time::timeout(Duration::from_secs(30), get(address, "/healthz"))
        .await
        .expect("a place is free again");
    assert_eq!(status, 200);
    drop(idle);
    assert_eq!(terminate(daemon).await.code, 0);
}

#[tokio::test]
async fn only_loopback_unless_told_otherwise() {
    for (text, part) in [
        ("listen = \"0.0.0.0:9797\"", "listen_public = true"),
        ("listen = \"[::]:9797\"", "line 2"),
        ("listen = \"192.0.2.1:9797\"", "janitor.listen"),
        ("listen = \"localhost\"", "line 2"),
        ("grace = \"11m\"", "janitor.grace"),
    ] {
        let place = Place::new(&format!("[janitor]\n{text}\n"));
        let output = idemctl(&["janitor", "--check", "-c", place.config().to_str().unwrap()])
            .on("user=x")
            .run()
            .await;
        assert_eq!(output.code, 2, "{text}: {}", output.transcript());
        assert!(output.stderr.contains(part), "{text}: {}", output.transcript());
    }
    let place = Place::new("[janitor]\nlisten = \"0.0.0.0:9797\"\nlisten_public = true\n");
    let check = idemctl(&["janitor", "--check", "-c", place.config().to_str().unwrap()]);
    check.on("user=x").run().await.ok();
}
