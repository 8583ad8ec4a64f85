//! The strategy on a real Redis.

use std::time::Duration;

use idemctl::ops::bench::{self, RedisUrl, Scenario, Strategy};
use idemctl::stop::Stop;

use super::{figure, request, schemas};
use crate::support::{database, free_port, redis};

const PASSWORD: &str = "s3cr3t-Pa55";

#[tokio::test(flavor = "multi_thread")]
async fn set_nx_is_measured_and_leaves_nothing_for_ever() {
    let db = database().await;
    let server = redis(PASSWORD).await;
    let scenarios = [
        Scenario::Claim,
        Scenario::Replay,
        Scenario::Hot,
        Scenario::Complete,
    ];
    let mut request = request(&scenarios, &[Strategy::Redis]);
    request.redis = Some(RedisUrl::new(format!(
        "redis://:{PASSWORD}@127.0.0.1:{}/0",
        server.port
    )));
    request.duration *= 2;
    assert!(!format!("{request:?}").contains(PASSWORD));
    let report = super::run(&db, &request).await;
    for scenario in scenarios {
        let figure = figure(&report, scenario, Strategy::Redis);
        assert!(figure.answers > 0, "{figure:?}");
        assert_eq!((figure.errors, figure.doubles), (0, 0), "{figure:?}");
        match scenario {
            Scenario::Replay => assert_eq!(figure.replayed, figure.answers),
            Scenario::Hot => assert!(figure.losers() > 0.5, "{figure:?}"),
            _ => assert_eq!(figure.worked, figure.answers),
        }
    }
    // Every key has an end of its own.
    let info = server.ask(&["info", "keyspace"]).await;
    let counts = regex::Regex::new(r"keys=(\d+),expires=(\d+)").unwrap();
    let found = counts.captures(&info).unwrap_or_else(|| panic!("{info}"));
    assert_eq!(found[1], found[2], "{info}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_not_there_is_named_without_its_password() {
    let db = database().await;
    let port = free_port();
    let mut request = request(&[Scenario::Claim], &[Strategy::Redis]);
    let limit = Duration::from_secs(50);
    for url in [
        format!("redis://:{PASSWORD}@127.0.0.1:{port}/0"),
        format!("http://:{PASSWORD}@127.0.0.1:{port}/0"),
    ] {
        request.redis = Some(RedisUrl::new(url));
        let (settings, stop) = (db.settings(), Stop::never());
        let mut told = |_: bench::Progress<'_>| {};
        let run = bench::run(&settings, &request, &mut told, &stop);
        let ended = tokio::time::timeout(limit, run).await.unwrap();
        let error = ended.unwrap_err().to_string();
        assert!(!error.contains(PASSWORD), "{error}");
        assert!(error.contains("edis"), "{error}");
        assert!(schemas(&db).await.is_empty());
    }
}
