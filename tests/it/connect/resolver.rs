//! Where the settings come from: the same answers as psql gives.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use idemctl::connect::{Connection, Environment, Settings};
use idemctl::error::Error;

use super::{environment, psql, refused, text};
use crate::support::{Cluster, ClusterOptions, database, temp_dir};

const WHO: &str =
    "select current_user || ' ' || current_database() || ' ' || current_setting('application_name')";

fn write(dir: &Path, name: &str, content: &str, mode: u32) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path.to_string_lossy().into_owned()
}

/// The same connection string and variables for psql and for us.
async fn same_as_psql(dsn: Option<&str>, variables: &[(&str, &str)], home: &Path) -> String {
    let environment = Environment {
        home: Some(home.to_owned()),
        ..environment(variables)
    };
    let mut args = vec!["-c", WHO];
    if let Some(dsn) = dsn {
        args.extend(["-d", dsn]);
    }
    let theirs = psql(&args, variables, home);
    let ours = match Settings::resolve(dsn, &environment) {
        Ok(settings) => Connection::open(&settings).await,
        Err(error) => Err(error),
    };
    assert_eq!(
        ours.is_ok(),
        theirs.status.success(),
        "{dsn:?} {variables:?}: {ours:?}, psql {}",
        String::from_utf8_lossy(&theirs.stderr)
    );
    match ours {
        Ok(connection) => {
            let ours = text(&connection, WHO).await;
            let theirs = String::from_utf8_lossy(&theirs.stdout)
                .trim()
                .replace(" psql", " idemctl");
            assert_eq!(ours, theirs, "{dsn:?} {variables:?}");
            ours
        }
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_win_in_the_same_order_as_in_psql() {
    let db = database().await;
    let (name, port, socket) = (
        db.name.as_str(),
        db.port.to_string(),
        db.socket_dir.to_string_lossy().into_owned(),
    );
    db.client
        .batch_execute(&format!(
            "create role a_{name} login; create role b_{name} login; create role c_{name} login"
        ))
        .await
        .unwrap();
    let home = temp_dir();
    let (a, b, c) = (format!("a_{name}"), format!("b_{name}"), format!("c_{name}"));
    let file = write(
        home.path(),
        "services",
        &format!("[pay]\nhost={socket}\nport={port}\nuser={b}\ndbname={name}\n"),
        0o644,
    );
    write(
        home.path(),
        ".pg_service.conf",
        &format!("# mine\n[own]\nhost={socket}\nport={port}\nuser={c}\ndbname={name}\n"),
        0o644,
    );
    let base = [
        ("PGHOST", socket.as_str()),
        ("PGPORT", port.as_str()),
        ("PGUSER", a.as_str()),
        ("PGDATABASE", name),
    ];
    let app = |user: &str| format!("{user} {name} idemctl");
    let with = |more: &[(&'static str, &'static str)]| {
        let mut all: Vec<(&str, &str)> = base.to_vec();
        all.extend(more);
        all
    };

    assert_eq!(same_as_psql(None, &base, home.path()).await, app(&a));
    assert_eq!(
        same_as_psql(Some(&format!("user={b}")), &base, home.path()).await,
        app(&b)
    );
    assert_eq!(
        same_as_psql(Some(&format!("postgresql://{b}@/")), &base, home.path()).await,
        app(&b)
    );
    assert_eq!(same_as_psql(Some(""), &base, home.path()).await, app(&a));
    assert_eq!(
        same_as_psql(Some("user='' dbname=''"), &with(&[]), home.path())
            .await
            .contains("nobody"),
        true
    );
    let encoded = socket.replace('/', "%2F");
    assert_eq!(
        same_as_psql(
            Some(&format!("postgres://{c}@{encoded}:{port}/{name}")),
            &[],
            home.path()
        )
        .await,
        app(&c)
    );
    assert_eq!(
        same_as_psql(
            Some(&format!("postgres://{c}@/{name}?host={socket}&port={port}")),
            &[],
            home.path()
        )
        .await,
        app(&c)
    );
    // A service beats the environment; the connection string beats both.
    let services = [("PGSERVICEFILE", file.as_str()), ("PGUSER", a.as_str())];
    assert_eq!(
        same_as_psql(Some("service=pay"), &services, home.path()).await,
        app(&b)
    );
    assert_eq!(
        same_as_psql(Some(&format!("service=pay user={c}")), &services, home.path()).await,
        app(&c)
    );
    assert_eq!(
        same_as_psql(None, &[("PGSERVICE", "own")], home.path()).await,
        app(&c)
    );
    assert!(
        same_as_psql(Some("service=nope"), &services, home.path())
            .await
            .contains("nope")
    );
    let gone = [("PGSERVICEFILE", "/nowhere/services")];
    assert!(
        same_as_psql(Some("service=pay"), &gone, home.path())
            .await
            .contains("/nowhere/services")
    );
    let named = with(&[("PGAPPNAME", "other")]);
    assert_eq!(
        same_as_psql(None, &named, home.path()).await,
        format!("{a} {name} other")
    );
    for wrong in [
        "foo=1",
        "host",
        "port=0",
        "port=70000",
        "port=x",
        "sslmode=maybe",
        "password='open",
        "postgres://[::1",
        "postgres://h/d?x",
        "hostaddr=nonsense",
        "host=a,b port=1,2,3",
        "connect_timeout=soon",
        "postgres://%zz",
        "target_session_attrs=best",
        "gssencmode=whatever",
        "channel_binding=maybe",
    ] {
        let dsn = format!(
            "{wrong}{}",
            if wrong.contains("://") || wrong == "host" {
                ""
            } else {
                " dbname=postgres"
            }
        );
        same_as_psql(Some(&dsn), &base, home.path()).await;
        assert!(
            matches!(
                Settings::resolve(Some(&dsn), &environment(&base)),
                Err(Error::Settings { .. })
            ),
            "{dsn}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn password_files_are_read_as_psql_reads_them() {
    let cluster = Cluster::start(ClusterOptions {
        tcp: true,
        hba: vec![
            "local all scram scram-sha-256".into(),
            "host all all 127.0.0.1/32 scram-sha-256".into(),
        ],
        ..ClusterOptions::default()
    })
    .await;
    let db = cluster.database().await;
    db.client
        .batch_execute(r"create role scram login password 'a:b\c'")
        .await
        .unwrap();
    let (port, name) = (db.port, db.name.as_str());
    let home = temp_dir();
    let tcp = format!("host=127.0.0.1 port={port} user=scram dbname={name}");
    let named = format!("host=localhost hostaddr=127.0.0.1 port={port} user=scram dbname={name}");
    let local = format!(
        "host={} port={port} user=scram dbname={name}",
        db.socket_dir.display()
    );
    let ok = format!("scram {name} idemctl");
    let put = |text: String, mode| write(home.path(), ".pgpass", &text, mode);

    put(format!("# comment\n127.0.0.1:{port}:*:scram:a\\:b\\\\c\n"), 0o600);
    assert_eq!(same_as_psql(Some(&tcp), &[], home.path()).await, ok);
    // The file is looked up by the name, not by the address.
    assert!(
        same_as_psql(Some(&named), &[], home.path())
            .await
            .contains(".pgpass")
    );
    put(
        format!("localhost:{port}:{name}:*:a\\:b\\\\c\n*:*:*:*:wrong\n"),
        0o600,
    );
    assert_eq!(same_as_psql(Some(&named), &[], home.path()).await, ok);
    let error = same_as_psql(Some(&tcp), &[], home.path()).await;
    assert!(
        error.contains("password file") && !error.contains("wrong\""),
        "{error}"
    );
    put(format!("{}:*:*:*:a\\:b\\\\c\n", db.socket_dir.display()), 0o600);
    assert_eq!(same_as_psql(Some(&local), &[], home.path()).await, ok);
    put("*:*:*:*:a\\:b\\\\c\n".to_owned(), 0o644);
    let error = same_as_psql(Some(&tcp), &[], home.path()).await;
    assert!(error.contains("0644") && error.contains("chmod 600"), "{error}");
    let other = write(home.path(), "elsewhere", "*:*:*:*:a\\:b\\\\c\n", 0o600);
    assert_eq!(
        same_as_psql(Some(&tcp), &[("PGPASSFILE", &other)], home.path()).await,
        ok
    );
    assert_eq!(
        same_as_psql(Some(&format!("{tcp} passfile={other}")), &[], home.path()).await,
        ok
    );
    // PGPASSWORD comes before the file, the connection string before both.
    assert_eq!(
        same_as_psql(Some(&tcp), &[("PGPASSWORD", r"a:b\c")], home.path()).await,
        ok
    );
    let wrong = same_as_psql(
        Some(&tcp),
        &[("PGPASSWORD", "hunter2"), ("PGPASSFILE", &other)],
        home.path(),
    )
    .await;
    assert!(
        wrong.contains("PGPASSWORD") && !wrong.contains("hunter2"),
        "{wrong}"
    );
    let uri = format!("postgres://scram:a%3Ab%5Cc@127.0.0.1:{port}/{name}");
    assert_eq!(
        same_as_psql(Some(&uri), &[("PGPASSWORD", "hunter2")], home.path()).await,
        ok
    );
}

#[tokio::test]
async fn every_value_says_where_it_came_from() {
    let dir = temp_dir();
    let file = write(dir.path(), "services", "[pay]\nport=5544\n", 0o644);
    let variables = [
        ("PGSERVICEFILE", file.as_str()),
        ("PGUSER", "u"),
        ("PGPASSWORD", "hunter2"),
        ("PGSSLMODE", "disable"),
    ];
    let settings =
        Settings::resolve(Some("postgres://h1,h2/d?service=pay"), &environment(&variables)).unwrap();
    let shown: Vec<_> = settings
        .entries()
        .iter()
        .map(|entry| format!("{}={} ({})", entry.name, entry.value, entry.source))
        .collect();
    for part in [
        "host=h1,h2 (connection string)".to_owned(),
        format!("port=5544,5544 (service file {file})"),
        "user=u (PGUSER)".to_owned(),
        "password=*** (PGPASSWORD)".to_owned(),
        "sslmode=disable (PGSSLMODE)".to_owned(),
        "application_name=idemctl (default)".to_owned(),
        "connect_timeout=10 (default)".to_owned(),
    ] {
        assert!(shown.contains(&part), "{part} is not in {shown:#?}");
    }
    assert_eq!(settings.to_string(), "postgresql://u@h1:5544,h2:5544/d");
    assert!(!format!("{settings:?} {:?}", environment(&variables)).contains("hunter2"));
}

#[tokio::test]
async fn what_cannot_be_honoured_is_refused_by_name() {
    for (dsn, part) in [
        ("gssencmode=require", "gssencmode=require"),
        ("require_auth=scram-sha-256", "require_auth"),
        ("client_encoding=LATIN1", "UTF8"),
        ("sslmode=require sslrootcert=system", "verify-full"),
        ("sslnegotiation=direct", "sslmode"),
        (
            "hostaddr=127.0.0.1 sslmode=verify-full sslrootcert=/nowhere",
            "sslrootcert",
        ),
        ("host=h sslmode=verify-ca", "sslrootcert"),
        (
            "host=h sslmode=require sslcert=/nowhere/c sslkey=/nowhere/k",
            "/nowhere/c",
        ),
    ] {
        let error = match Settings::resolve(Some(dsn), &environment(&[])) {
            Ok(settings) => refused(Connection::open(&settings).await),
            Err(error) => error,
        };
        assert!(
            matches!(error, Error::Settings { .. }) && error.to_string().contains(part),
            "{dsn}: {error:?}"
        );
    }
    for dsn in [
        "gssencmode=prefer krbsrvname=x client_encoding=UTF8",
        "sslmode=prefer sslcompression=0",
        "ssl_min_protocol_version=TLSv1.3",
    ] {
        Settings::resolve(Some(dsn), &environment(&[])).unwrap();
    }
    let mut settings = Settings::resolve(Some("host=h"), &environment(&[])).unwrap();
    settings.timeouts.statement = std::time::Duration::ZERO;
    assert!(matches!(
        refused(Connection::open(&settings).await),
        Error::Settings { .. }
    ));
}
