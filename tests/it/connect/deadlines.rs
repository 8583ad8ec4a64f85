//! A peer that says nothing never holds a command; what is broken off leaves a clean or a closed connection.

use std::time::{Duration, Instant};

use idemctl::connect::{Connection, Settings};
use idemctl::error::Error;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{refused, run, text, until};
use crate::support::{Database, Proxy, Target, private_database};

/// The statement's limit in these tests. Our own is 2 s more, and cancelling may take another 2.
const STATEMENT: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(7);

fn settings(db: &Database) -> Settings {
    let mut settings = db.settings();
    settings.timeouts.statement = STATEMENT;
    settings.timeouts.connect = Duration::from_secs(1);
    settings
}

/// A process that stands still as long as this lives.
struct Stopped(Pid);

impl Stopped {
    fn new(pid: i32) -> Self {
        kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("the server's process");
        Self(Pid::from_raw(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended in the meantime.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_s_own_message_wins_while_it_is_alive() {
    let db = private_database().await;
    let connection = Connection::open(&settings(&db)).await.unwrap();
    let error = run(&connection, "select pg_sleep(30)").await.unwrap_err();
    assert_eq!(error.sqlstate(), Some("57014"), "{error:?}");
    assert!(!connection.is_closed());
    assert_eq!(text(&connection, "select 'on'").await, "on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_ends_every_wait() {
    let db = private_database().await;
    db.client.batch_execute("create table t (x int)").await.unwrap();
    for step in ["statement", "begin", "commit", "rollback", "drop", "close"] {
        let mut connection = Connection::open(&settings(&db)).await.unwrap();
        let pid = connection.facts().backend;
        let start = Instant::now();
        let stopped;
        match step {
            "statement" => {
                stopped = Stopped::new(pid);
                let error = run(&connection, "select 1").await.unwrap_err();
                assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
                assert!(connection.is_closed());
                let next = run(&connection, "select 1").await.unwrap_err();
                assert!(
                    matches!(&next, Error::Unreachable { what } if what.contains("in time")),
                    "{next:?}"
                );
            }
            "begin" => {
                stopped = Stopped::new(pid);
                assert!(matches!(
                    connection.begin().await.unwrap_err(),
                    Error::Deadline { .. }
                ));
            }
            "close" => {
                stopped = Stopped::new(pid);
                connection.close().await;
                assert!(start.elapsed() < LONGEST, "{step}");
                drop(stopped);
                continue;
            }
            _ => {
                let tx = connection.begin().await.unwrap();
                run(&tx, "insert into t values (1)").await.unwrap();
                stopped = Stopped::new(pid);
                match step {
                    "commit" => assert!(matches!(tx.commit().await.unwrap_err(), Error::Deadline { .. })),
                    "rollback" => assert!(matches!(tx.rollback().await.unwrap_err(), Error::Deadline { .. })),
                    _ => {
                        drop(tx);
                        assert!(matches!(
                            run(&connection, "select 1").await.unwrap_err(),
                            Error::Deadline { .. }
                        ));
                    }
                }
            }
        }
        assert!(connection.is_closed(), "{step}");
        assert!(start.elapsed() < LONGEST, "{step} took {:?}", start.elapsed());
        drop(stopped);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_everything_ends_every_wait() {
    let db = private_database().await;
    let socket = db.socket_dir.join(format!(".s.PGSQL.{}", db.port));
    let proxy = Proxy::start(Target::Unix(socket)).await;
    let dsn = format!(
        "host=127.0.0.1 port={} user=idemctl dbname={}",
        proxy.address.port(),
        db.name
    );
    let mut by_proxy = Settings::from_dsn(&dsn).unwrap();
    by_proxy.timeouts = settings(&db).timeouts;
    let connection = Connection::open(&by_proxy).await.unwrap();
    proxy.hold();
    let start = Instant::now();
    // Here even the request to cancel gets no answer.
    let error = run(&connection, "select 1").await.unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error:?}");
    assert!(connection.is_closed());
    let error = refused(Connection::open(&by_proxy).await);
    assert!(error.to_string().contains("connect_timeout"), "{error}");
    let error = connection.canceller().cancel().await;
    assert!(
        start.elapsed() < LONGEST + LONGEST,
        "{error:?} after {:?}",
        start.elapsed()
    );
    connection.close().await;
    assert!(start.elapsed() < LONGEST + LONGEST);
}

#[tokio::test(flavor = "multi_thread")]
async fn trying_again_goes_on_until_the_network_is_back_or_it_is_told_to_stop() {
    let db = private_database().await;
    let socket = db.socket_dir.join(format!(".s.PGSQL.{}", db.port));
    let proxy = Proxy::start(Target::Unix(socket)).await;
    let dsn = format!(
        "host=127.0.0.1 port={} user=idemctl dbname={} password=hunter2",
        proxy.address.port(),
        db.name
    );
    let settings = Settings::from_dsn(&dsn).unwrap();
    proxy.refuse(true);
    let heal = async {
        // Both have failed at least once by then.
        refused(Connection::open(&settings).await);
        proxy.refuse(false);
    };
    let (opened, ()) = tokio::join!(
        Connection::open_with_retry(&settings, std::future::pending()),
        heal
    );
    assert_eq!(text(&opened.unwrap(), "select 'back'").await, "back");

    proxy.refuse(true);
    let stop = async { drop(refused(Connection::open(&settings).await)) };
    let error = refused(Connection::open_with_retry(&settings, stop).await);
    assert!(
        matches!(&error, Error::Unreachable { .. } | Error::Interrupted),
        "{error:?}"
    );
    assert!(!error.to_string().contains("hunter2"));
    // A wrong setting does not get better by waiting.
    let wrong = Settings::from_dsn(&format!("{dsn} sslmode=verify-ca")).unwrap();
    let error = refused(Connection::open_with_retry(&wrong, std::future::pending()).await);
    assert!(matches!(error, Error::Settings { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_broken_off_stops_on_the_server_too() {
    let db = private_database().await;
    let mut patient = db.settings();
    patient.timeouts.statement = Duration::from_mins(1);
    let connection = Connection::open(&patient).await.unwrap();
    let busy = format!(
        "select exists (select from pg_stat_activity where pid = {} and state = 'active')",
        connection.facts().backend
    );
    tokio::select! {
        biased;
        () = until(&db.client, &busy) => {}
        result = run(&connection, "select pg_sleep(50)") => panic!("{result:?}"),
    }
    assert!(
        connection.is_closed(),
        "nobody knows what the server is doing on it"
    );
    assert!(matches!(
        run(&connection, "select 1").await.unwrap_err(),
        Error::Unreachable { .. }
    ));
    let start = Instant::now();
    until(&db.client, &busy.replace("exists", "not exists")).await;
    assert!(start.elapsed() < Duration::from_secs(10));

    // From a signal handler: the connection stays usable.
    let connection = Connection::open(&patient).await.unwrap();
    let busy = busy_query(&connection);
    let canceller = connection.canceller();
    let cancel = async {
        until(&db.client, &busy).await;
        canceller.cancel().await.unwrap();
    };
    let (result, ()) = tokio::join!(run(&connection, "select pg_sleep(50)"), cancel);
    assert_eq!(result.unwrap_err().sqlstate(), Some("57014"));
    assert_eq!(text(&connection, "select 'on'").await, "on");
}

fn busy_query(connection: &Connection) -> String {
    format!(
        "select exists (select from pg_stat_activity where pid = {} and state = 'active')",
        connection.facts().backend
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ends_committed_rolled_back_or_closed() {
    let db = private_database().await;
    db.client
        .batch_execute("create table t (x int primary key)")
        .await
        .unwrap();
    let mut connection = Connection::open(&db.settings()).await.unwrap();
    let rows = "select count(*)::text from t";

    let tx = connection.begin().await.unwrap();
    run(&tx, "insert into t values (1)").await.unwrap();
    drop(tx);
    assert_eq!(text(&connection, rows).await, "0", "dropped");

    let tx = connection.begin().await.unwrap();
    run(&tx, "insert into t values (1)").await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(text(&connection, rows).await, "0", "rolled back");

    let tx = connection.begin().await.unwrap();
    run(&tx, "insert into t values (1)").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(text(&connection, rows).await, "1", "committed");

    // The server calls the end of a failed transaction a success; we do not.
    let tx = connection.begin().await.unwrap();
    run(&tx, "insert into t values (2)").await.unwrap();
    assert_eq!(
        run(&tx, "insert into t values (1)").await.unwrap_err().sqlstate(),
        Some("23505")
    );
    assert!(tx.commit().await.is_err());
    assert_eq!(text(&connection, rows).await, "1", "failed");

    // Broken off in the middle of a statement: closed, and rolled back by the server.
    let busy = busy_query(&connection);
    let tx = connection.begin().await.unwrap();
    run(&tx, "insert into t values (3)").await.unwrap();
    tokio::select! {
        biased;
        () = until(&db.client, &busy) => {}
        result = run(&tx, "select pg_sleep(20)") => panic!("{result:?}"),
    }
    drop(tx);
    assert!(connection.is_closed());
    assert!(connection.begin().await.is_err());
    until(
        &db.client,
        &busy
            .replace("exists", "not exists")
            .replace(" and state = 'active'", ""),
    )
    .await;
    let left: i64 = db
        .client
        .query_typed("select count(*) from t", &[])
        .await
        .unwrap()[0]
        .get(0);
    assert_eq!(left, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_server_is_named_as_the_cause() {
    let db = private_database().await;
    let connection = Connection::open(&db.settings()).await.unwrap();
    let kill = format!("select pg_terminate_backend({})", connection.facts().backend);
    db.client.batch_execute(&kill).await.unwrap();
    let error = run(&connection, "select pg_sleep(5)").await.unwrap_err();
    assert!(error.needs_reconnect(), "{error:?}");
    assert!(error.to_string().contains("administrator command"), "{error}");
    assert!(connection.is_closed());
}
