//! The helpers of these tests are themselves held to what they promise.

use std::time::{Duration, Instant};

use crate::support::{
    Cluster, ClusterOptions, PgbouncerOptions, Proxy, Redactor, Run, Target, connect, pgbouncer,
    private_database, require_program, settings, shared,
};

#[tokio::test(flavor = "multi_thread")]
async fn every_test_has_its_own_database() {
    let (one, two) = tokio::join!(private_database(), private_database());
    assert_ne!(one.name, two.name);
    one.client.batch_execute("create table t (x int)").await.unwrap();
    two.client.batch_execute("create table t (x int)").await.unwrap();
    assert!(shared().server().is_tied());
    one.connect()
        .await
        .query_one("select count(*) from t", &[])
        .await
        .unwrap();
    idemctl::connect::Connection::open(&two.settings()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbouncer_leads_to_the_database() {
    let db = private_database().await;
    let pooler = pgbouncer(&db, PgbouncerOptions::default()).await;
    for url in [&pooler.url, &pooler.socket_url] {
        let client = connect(url).await;
        let rows = client
            .query_typed("select current_database()::text", &[])
            .await
            .unwrap();
        assert_eq!(rows[0].get::<_, &str>(0), db.name);
    }
    assert!(pooler.url.contains(&pooler.port.to_string()));
    idemctl::connect::Connection::open(&pooler.settings())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_can_have_tcp_passwords_and_files_of_its_own() {
    let options = ClusterOptions {
        hba: vec![
            "host all pass 127.0.0.1/32 scram-sha-256".to_owned(),
            "host all all 127.0.0.1/32 trust".to_owned(),
        ],
        tcp: true,
        settings: vec![("cluster_name", "{dir}".to_owned())],
        files: vec![("note", b"x".to_vec())],
        ..ClusterOptions::default()
    };
    let cluster = Cluster::start(options).await;
    assert!(cluster.files().join("note").exists());
    let db = cluster.database().await;
    db.client
        .batch_execute("create role pass login password 'right'")
        .await
        .unwrap();
    let login = |password: &str| format!("postgresql://pass:{password}@127.0.0.1:{}/{}", db.port, db.name);
    assert!(
        tokio_postgres::connect(&login("wrong"), tokio_postgres::NoTls)
            .await
            .is_err()
    );
    connect(&login("right")).await;
    let trusted = connect(&db.tcp_url()).await;
    let named: String = trusted.query_one("show cluster_name", &[]).await.unwrap().get(0);
    assert_eq!(named, cluster.files().to_string_lossy());
    idemctl::connect::Connection::open(&settings(&db.tcp_url()))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_cuts_holds_delays_and_refuses() {
    let db = private_database().await;
    let socket = db.socket_dir.join(format!(".s.PGSQL.{}", db.port));
    let proxy = Proxy::start(Target::Unix(socket)).await;
    let url = format!(
        "postgresql://idemctl@127.0.0.1:{}/{}",
        proxy.address.port(),
        db.name
    );
    let client = connect(&url).await;
    proxy.delay(Duration::from_millis(100));
    let started = Instant::now();
    client.simple_query("select 1").await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(200), "there and back");
    proxy.delay(Duration::ZERO);
    proxy.hold();
    let held = tokio::time::timeout(Duration::from_millis(200), client.simple_query("select 2")).await;
    assert!(held.is_err(), "nothing comes through");
    proxy.release();
    client.simple_query("select 3").await.unwrap();
    proxy.cut();
    assert!(client.simple_query("select 4").await.is_err());
    connect(&url).await.simple_query("select 5").await.unwrap();
    proxy.refuse(true);
    assert!(
        tokio_postgres::connect(&url, tokio_postgres::NoTls)
            .await
            .is_err()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_fed_watched_and_killed() {
    let shell = require_program("sh", "dash").to_string_lossy().into_owned();
    let script = "read x; echo got $x; echo to-stderr >&2; echo home $HOME; echo pg ${PGHOST-none}; exit 3";
    let output = Run::new(&shell, &["-c", script])
        .stdin("hello\n")
        .dir("/")
        .run()
        .await;
    assert_eq!(output.code, 3);
    assert!(
        output.stdout.starts_with("got hello\nhome /tmp/idemctl-test-"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.ends_with("pg none\n"));
    assert_eq!(output.stderr, "to-stderr\n");

    let mut spawned = Run::new(
        &shell,
        &["-c", "test -t 0 && echo terminal; read x; echo typed $x"],
    )
    .pty()
    .spawn();
    spawned.wait_for_line("terminal").await;
    spawned.type_in("abc\n").await;
    spawned.wait_for_line("typed abc").await;
    assert_eq!(spawned.wait().await.code, 0);

    let mut spawned = Run::new(&shell, &["-c", "echo ready; exec sleep 600"]).spawn();
    spawned.wait_for_line("ready").await;
    assert!(spawned.pid() > 0);
    assert_eq!(spawned.kill9().await.code, 128 + 9);
}

#[test]
fn what_changes_from_run_to_run_is_redacted() {
    let redactor = Redactor::new()
        .literal("host-17", "[host]")
        .pattern(r"pid \d+", "pid [pid]");
    let text = "host-17 pid 4121 took 12ms (1m 30s) at 2026-11-29T10:00:00.5Z in /tmp/idemctl-test-x/y on \
                127.0.0.1:5433 0b5c3d3e-8f86-4b1a-9d9b-0c0ffee00000 \"elapsed_seconds\": 0.25";
    insta::assert_snapshot!(redactor.redact(text), @r#"[host] pid [pid] took [duration] ([duration]) at [time] in [path] on 127.0.0.1:[port] [uuid] "elapsed_seconds": [seconds]"#);
}
