//! Requests that make no sense, and databases that will not do.

use idemctl::ops::bench::{Progress, Request, Scenario, Strategy};
use idemctl::stop::Stop;

use super::{request, run, schemas};
use crate::support::{PgbouncerOptions, database, idemctl, pgbouncer};

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_before_anything_is_done() {
    let db = database().await;
    for (args, part) in [
        (&["--clients", "0"][..], "clients is 0"),
        (&["--pool", "2000"], "pool is 2000"),
        (&["--keys", "5"], "keys is 5"),
        (&["--duration", "2h"], "duration is 7200 s"),
        (&["--work", "2m"], "work is 120 s"),
        (&["--strategy", "redis"], "URL of a Redis"),
        (&["--scratch", ""], "scratch schema has 0 bytes"),
        (&["--strategy", "best"], "best"),
        (&["--hot", "--scenario", "claim"], "cannot be used with"),
        (&["-o", "ids"], "-o ids"),
        (&["--pool", "999"], "server's max_connections is"),
    ] {
        let mut all = vec!["bench"];
        all.extend(args);
        let output = idemctl(&all).on(&db.url).run().await;
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stderr.contains(part), "{}", output.transcript());
        assert!(
            !output.stderr.contains("scratch schema idemctl"),
            "{}",
            output.transcript()
        );
    }
    assert!(schemas(&db).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_database_and_a_role_that_may_not_are_told_apart() {
    let _private = crate::support::privately("it makes roles");
    let db = database().await;
    let name = &db.name;
    db.client
        .batch_execute(&format!(
            "create role guest_{name} login; create role reader_{name} superuser login;
             alter role reader_{name} set default_transaction_read_only = on"
        ))
        .await
        .unwrap();
    for (role, code, part) in [("guest", 1, "CREATE on the database"), ("reader", 7, "read-only")] {
        let url = db.url.replace("idemctl@", &format!("{role}_{name}@"));
        let output = idemctl(&["bench"]).on(&url).run().await;
        assert_eq!(output.code, code, "{}", output.transcript());
        assert!(output.stderr.contains(part), "{}", output.transcript());
    }
    assert!(schemas(&db).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_in_transaction_mode_it_works_and_says_so() {
    let _private = crate::support::privately("a pooler stands before its server");
    let db = database().await;
    let options = PgbouncerOptions {
        pool_size: 6,
        ..PgbouncerOptions::default()
    };
    let pooler = pgbouncer(&db, options).await;
    let strategies = [
        Strategy::Lease,
        Strategy::Unique,
        Strategy::Advisory,
        Strategy::ForUpdate,
    ];
    let mut request = request(&[Scenario::Hot, Scenario::Complete], &strategies);
    (request.clients, request.pool) = (4, 4);
    request.duration *= 2;
    let settings = pooler.settings();
    let report = idemctl::ops::bench::run(&settings, &request, &mut |_| {}, &Stop::never())
        .await
        .unwrap();
    for figure in &report.figures {
        assert_eq!((figure.errors, figure.doubles), (0, 0), "{figure:?}");
    }
    assert!(
        report.warnings.iter().any(|w| w.contains("a pooler?")),
        "{:?}",
        report.warnings
    );
    assert!(schemas(&db).await.is_empty());
}

/// The database goes away in the middle; when it is back, the schema goes too.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_in_the_middle_drops_the_schema() {
    let db = database().await;
    let mut request = request(&[Scenario::Claim], &[Strategy::Lease]);
    request.duration = std::time::Duration::from_mins(10);
    let other = db.connect().await;
    let cut = std::sync::Arc::new(tokio::sync::Notify::new());
    let now = std::sync::Arc::clone(&cut);
    let killer = tokio::spawn(async move {
        now.notified().await;
        let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                    where datname = current_database() and application_name = 'idemctl'";
        let ended: i64 = other.query_one(end, &[]).await.unwrap().get(0);
        assert!(ended > 1, "{ended}");
    });
    let mut progress = |now: Progress<'_>| {
        if let Progress::Turn { done: 1, .. } = now {
            cut.notify_one();
        }
    };
    let settings = db.settings();
    let error = idemctl::ops::bench::run(&settings, &request, &mut progress, &Stop::never())
        .await
        .unwrap_err();
    killer.await.unwrap();
    assert!(error.needs_reconnect(), "{error}");
    assert!(schemas(&db).await.is_empty(), "{error}");
}

/// Somebody else's transaction is in every figure, and that is said.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_database_is_called_so() {
    let db = database().await;
    let strategies = [Strategy::Lease];
    let request = Request {
        scratch: Some("quiet".to_owned()),
        ..request(&[Scenario::Replay], &strategies)
    };
    let other = db.connect().await;
    other.batch_execute("begin").await.unwrap();
    let report = run(&db, &request).await;
    assert!(
        report.warnings.iter().any(|w| w.contains("not idle")),
        "{:?}",
        report.warnings
    );
    other.batch_execute("commit").await.unwrap();
    assert_eq!(report.schema, "quiet");
}
