//! Where the settings come from: the same answers as psql gives.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use idemctl::connect::{Connection, Environment, Settings};
use idemctl::error::Error;

use super::{environment, psql, refused, text};
use crate::support::{Cluster, ClusterOptions, private_database, temp_dir};

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

/// A database with three roles, and how to reach it.
struct Place {
    name: String,
    port: String,
    socket: String,
    /// The roles.
    a: String,
    b: String,
    c: String,
}

impl Place {
    async fn make() -> Self {
        let db = private_database().await;
        let name = db.name.clone();
        let role = |letter: &str| format!("{letter}_{name}");
        let (a, b, c) = (role("a"), role("b"), role("c"));
        let text = format!("create role {a} login; create role {b} login; create role {c} login");
        db.client.batch_execute(&text).await.unwrap();
        let socket = db.socket_dir.to_string_lossy().into_owned();
        Self {
            port: db.port.to_string(),
            name,
            socket,
            a,
            b,
            c,
        }
    }

    /// The variables that lead there, as role a.
    fn variables(&self) -> Vec<(&str, &str)> {
        vec![
            ("PGHOST", self.socket.as_str()),
            ("PGPORT", &self.port),
            ("PGUSER", &self.a),
            ("PGDATABASE", &self.name),
        ]
    }

    /// A service file's section that leads there.
    fn section(&self, title: &str, user: &str) -> String {
        let Self {
            name, port, socket, ..
        } = self;
        format!("# mine\n[{title}]\nhost={socket}\nport={port}\nuser={user}\ndbname={name}\n")
    }

    fn as_user(&self, user: &str) -> String {
        format!("{user} {} idemctl", self.name)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_string_beats_the_environment_as_in_psql() {
    let place = Place::make().await;
    let Place {
        name,
        port,
        socket,
        a,
        b,
        c,
    } = &place;
    let home = temp_dir();
    let base = place.variables();
    let encoded = socket.replace('/', "%2F");
    for (dsn, variables, expected) in [
        (None, &base[..], a),
        (Some(String::new()), &base, a),
        (Some(format!("user={b}")), &base, b),
        (Some(format!("postgresql://{b}@/")), &base, b),
        (Some(format!("postgres://{c}@{encoded}:{port}/{name}")), &[], c),
        (
            Some(format!("postgres://{c}@/{name}?host={socket}&port={port}")),
            &[],
            c,
        ),
        (
            Some(format!(
                "host = '{socket}' port={port} user={c} dbname={name} user = {b}"
            )),
            &[],
            b,
        ),
    ] {
        assert_eq!(
            same_as_psql(dsn.as_deref(), variables, home.path()).await,
            place.as_user(expected),
            "{dsn:?}"
        );
    }
    // An empty value asks for the default, not for the environment's.
    assert!(
        same_as_psql(Some("user='' dbname=''"), &base, home.path())
            .await
            .contains("nobody")
    );
    let mut named = base.clone();
    named.push(("PGAPPNAME", "other"));
    assert_eq!(
        same_as_psql(None, &named, home.path()).await,
        format!("{a} {name} other")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_beats_the_environment_as_in_psql() {
    let place = Place::make().await;
    let Place { a, b, c, .. } = &place;
    let home = temp_dir();
    let file = write(home.path(), "services", &place.section("pay", b), 0o644);
    write(home.path(), ".pg_service.conf", &place.section("own", c), 0o644);
    let named = [("PGSERVICEFILE", file.as_str()), ("PGUSER", a.as_str())];
    assert_eq!(
        same_as_psql(Some("service=pay"), &named, home.path()).await,
        place.as_user(b)
    );
    assert_eq!(
        same_as_psql(Some(&format!("service=pay user={c}")), &named, home.path()).await,
        place.as_user(c)
    );
    assert_eq!(
        same_as_psql(None, &[("PGSERVICE", "own")], home.path()).await,
        place.as_user(c)
    );
    let system = home.path().to_string_lossy().into_owned();
    write(
        home.path(),
        "pg_service.conf",
        &place.section("everybody", b),
        0o644,
    );
    let variables = [("PGSERVICE", "everybody"), ("PGSYSCONFDIR", system.as_str())];
    assert_eq!(
        same_as_psql(None, &variables, home.path()).await,
        place.as_user(b)
    );
    assert!(
        same_as_psql(Some("service=nope"), &named, home.path())
            .await
            .contains("nope")
    );
    let gone = [("PGSERVICEFILE", "/nowhere/services")];
    assert!(
        same_as_psql(Some("service=pay"), &gone, home.path())
            .await
            .contains("/nowhere/services")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_psql_refuses_we_refuse_as_a_wrong_setting() {
    let place = Place::make().await;
    let home = temp_dir();
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
        "host=a,b hostaddr=127.0.0.1",
        "connect_timeout=soon",
        "postgres://%zz",
        "target_session_attrs=best",
        "gssencmode=whatever",
        "channel_binding=maybe",
        "ssl_min_protocol_version=SSLv3",
    ] {
        let variables = place.variables();
        same_as_psql(Some(wrong), &variables, home.path()).await;
        let error = Settings::resolve(Some(wrong), &environment(&variables));
        assert!(matches!(error, Err(Error::Settings { .. })), "{wrong}: {error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
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
