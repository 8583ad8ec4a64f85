//! Several hosts, of which some are dead, read-only or standbys; and what is said when none will do.

use std::time::Duration;

use idemctl::connect::{Connection, Route, Settings};
use idemctl::dev::{Binaries, Lifetime, Options, Server};
use idemctl::error::Error;

use super::{refused, text};
use crate::support::{Cluster, ClusterOptions, private_database, shared, temp_dir};

/// A server that is a standby of nobody: it has what was there when it was stopped, and waits for more.
async fn standby(dir: &std::path::Path) -> Server {
    let mut options = Options::new(dir, Binaries::find(None).unwrap());
    options.databases.push("postgres".to_owned());
    let server = Server::start(&options, Lifetime::Tied).await.unwrap();
    server.stop().await.unwrap();
    std::fs::write(dir.join("data/standby.signal"), "").unwrap();
    Server::start(&options, Lifetime::Tied).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_are_tried_in_order_until_one_will_do() {
    let dir = temp_dir();
    let standby = standby(&dir.path().join("pg")).await;
    let read_only = Cluster::start(ClusterOptions::default()).await;
    let setup = read_only.database().await;
    setup
        .client
        .batch_execute("alter role idemctl set default_transaction_read_only = on")
        .await
        .unwrap();
    // Starts the shared cluster, if nobody has yet.
    drop(private_database().await);
    let (s, r, p) = (
        standby.socket_dir().to_string_lossy().into_owned(),
        read_only.server().socket_dir().to_string_lossy().into_owned(),
        shared().server().socket_dir().to_string_lossy().into_owned(),
    );
    let ports = format!(
        "1,{},{},{}",
        standby.port(),
        read_only.server().port(),
        shared().server().port()
    );
    for (target, expected) in [
        ("any", Some(&s)),
        ("standby", Some(&s)),
        ("prefer-standby", Some(&s)),
        ("read-only", Some(&s)),
        ("primary", Some(&r)),
        ("read-write", Some(&p)),
    ] {
        let dsn = format!(
            "host=/nowhere,{s},{r},{p} port={ports} user=idemctl dbname=postgres target_session_attrs={target}"
        );
        let found = Connection::open(&Settings::from_dsn(&dsn).unwrap())
            .await
            .unwrap();
        let expected = expected.unwrap();
        assert!(
            found.facts().host.starts_with(expected.as_str()),
            "{target}: {:?}",
            found.facts()
        );
        let home = temp_dir();
        let psql = super::psql(
            &["-c", "show unix_socket_directories", "-d", &dsn],
            &[],
            home.path(),
        );
        assert_eq!(
            String::from_utf8_lossy(&psql.stdout).trim(),
            expected,
            "psql {target}"
        );
    }
    let dsn = format!("host=/nowhere,{p} user=idemctl dbname=postgres target_session_attrs=standby");
    let port = shared().server().port();
    let error = refused(Connection::open(&Settings::from_dsn(&format!("{dsn} port={port}")).unwrap()).await);
    let text = error.to_string();
    assert!(
        text.contains("/nowhere/") && text.contains("not a standby"),
        "{text}"
    );
    // prefer-standby takes what there is.
    let dsn = dsn.replace("=standby", "=prefer-standby");
    Connection::open(&Settings::from_dsn(&format!("{dsn} port={port}")).unwrap())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_host_is_named_with_its_cause_and_no_password() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap().port();
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut settings = Settings::from_dsn(&format!(
        "postgres://u:hunter2@127.0.0.1:{dead},127.0.0.1:{silent},no-such-host.invalid/d?sslmode=require"
    ))
    .unwrap();
    settings.timeouts.connect = Duration::from_millis(300);
    assert!(!format!("{settings} {settings:?} {:?}", settings.entries()).contains("hunter2"));
    let error = refused(Connection::open(&settings).await);
    let text = error.to_string();
    assert!(matches!(error, Error::Unreachable { .. }));
    for part in [
        format!("127.0.0.1:{dead}: Connection refused"),
        format!("127.0.0.1:{silent}: no answer within 0.3 s"),
        "no-such-host.invalid:5432: ".to_owned(),
    ] {
        assert!(text.contains(&part), "{text}");
    }
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_is_explained() {
    let db = private_database().await;
    let open = async |change: (&str, &str)| {
        let url = db.url.replace(change.0, change.1);
        refused(Connection::open(&Settings::from_dsn(&url).unwrap()).await).to_string()
    };
    let text_of = open((&db.name, "no_such_db")).await;
    assert!(
        text_of.contains("no_such_db") && text_of.contains("psql -l"),
        "{text_of}"
    );
    let text_of = open(("idemctl@", "no_such_role@")).await;
    assert!(
        text_of.contains("no_such_role") && text_of.contains("28000"),
        "{text_of}"
    );
    // The server said no, so the second host is not asked, as in libpq.
    let dsn = format!(
        "host={0},{0} port={1} user=idemctl dbname=no_such_db",
        db.socket_dir.display(),
        db.port
    );
    let error = refused(Connection::open(&Settings::from_dsn(&dsn).unwrap()).await).to_string();
    assert_eq!(
        error.matches("no_such_db").count(),
        2,
        "once by the server, once in the hint: {error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_direct_connection_is_proven_and_has_its_limits() {
    let cluster = Cluster::start(ClusterOptions {
        tcp: true,
        hba: vec!["host all all 127.0.0.1/32 trust".into()],
        ..ClusterOptions::default()
    })
    .await;
    let db = cluster.database().await;
    for url in [
        db.url.clone(),
        db.tcp_url(),
        db.tcp_url() + "?options=-c%20work_mem%3D5MB%20-c%20lock_timeout%3D1",
    ] {
        let mut settings = Settings::from_dsn(&url).unwrap();
        settings.timeouts.statement = Duration::from_millis(12_345);
        let mut connection = Connection::open(&settings).await.unwrap();
        assert_eq!(connection.facts().route, Route::Direct, "{url}");
        assert!(connection.facts().prepared);
        for (name, expected) in [
            ("statement_timeout", "12345ms"),
            ("lock_timeout", "5s"),
            ("idle_in_transaction_session_timeout", "12345ms"),
            ("application_name", "idemctl"),
            ("work_mem", if url.contains("work_mem") { "5MB" } else { "4MB" }),
        ] {
            let query = format!("select current_setting('{name}')");
            assert_eq!(text(&connection, &query).await, expected, "{name}");
            let tx = connection.begin().await.unwrap();
            assert_eq!(text(&tx, &query).await, expected, "{name} in a transaction");
        }
        let mut timeouts = connection.timeouts();
        timeouts.lock = Duration::from_millis(777);
        connection.set_timeouts(timeouts).await.unwrap();
        assert_eq!(
            text(&connection, "select current_setting('lock_timeout')").await,
            "777ms"
        );
        let prepared = "select count(*)::text from pg_prepared_statements";
        assert_ne!(text(&connection, prepared).await, "0");
        connection.close().await;
    }
    // With nothing proven, nothing is prepared: a proxy in between has another port.
    let target = crate::support::Target::Tcp(format!("127.0.0.1:{}", db.port).parse().unwrap());
    let proxy = crate::support::Proxy::start(target).await;
    let url = db
        .tcp_url()
        .replace(&format!(":{}/", db.port), &format!(":{}/", proxy.address.port()));
    let connection = Connection::open(&Settings::from_dsn(&url).unwrap())
        .await
        .unwrap();
    assert_ne!(connection.facts().route, Route::Direct);
    assert_eq!(
        text(&connection, "select count(*)::text from pg_prepared_statements").await,
        "0"
    );
    assert_eq!(
        text(&connection, "select current_setting('statement_timeout')").await,
        "0"
    );
}
