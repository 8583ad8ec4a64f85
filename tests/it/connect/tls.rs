//! TLS: each mode is enforced as psql does, with every kind of certificate.

use idemctl::connect::{Connection, Encryption, Settings};
use idemctl::error::Error;

use super::certificates::Certificates;
use super::{psql, refused, text};
use crate::support::{Cluster, ClusterOptions, Database, temp_dir};

struct Stage {
    certificates: Certificates,
    cluster: Cluster,
    database: Database,
}

const HBA: [&str; 8] = [
    "hostssl all certuser 127.0.0.1/32 cert",
    "hostnossl all plainonly 127.0.0.1/32 trust",
    "host all plainonly 127.0.0.1/32 reject",
    "hostssl all tlsonly 127.0.0.1/32 trust",
    "host all tlsonly 127.0.0.1/32 reject",
    "host all scram 127.0.0.1/32 scram-sha-256",
    "host all md5 127.0.0.1/32 md5",
    "host all all 127.0.0.1/32 trust",
];

async fn stage() -> Stage {
    let certificates = Certificates::make();
    let cluster = Cluster::start(ClusterOptions {
        settings: vec![
            ("ssl", "on".into()),
            ("ssl_cert_file", "{dir}/server.crt".into()),
            ("ssl_key_file", "{dir}/server.key".into()),
            ("ssl_ca_file", "{dir}/ca.crt".into()),
        ],
        hba: HBA.map(str::to_owned).to_vec(),
        files: vec![
            ("server.crt", certificates.read("good.crt")),
            ("server.key", certificates.read("good.key")),
            ("ca.crt", certificates.read("ca.crt")),
        ],
        tcp: true,
        ..ClusterOptions::default()
    })
    .await;
    let database = cluster.database().await;
    database
        .client
        .batch_execute(
            "create role certuser login; create role plainonly login; create role tlsonly login;
             create role scram login password 'open sesame';
             set password_encryption = md5; create role md5 login password 'open sesame'",
        )
        .await
        .unwrap();
    Stage {
        certificates,
        cluster,
        database,
    }
}

impl Stage {
    /// The server shows another certificate from now on.
    async fn show(&self, name: &str) {
        for (kind, file) in [("crt", "server.crt"), ("key", "server.key")] {
            // Written over in place, so that owner and mode stay.
            let content = self.certificates.read(&format!("{name}.{kind}"));
            std::fs::write(self.cluster.files().join(file), content).unwrap();
        }
        let load = "select pg_conf_load_time()::text";
        let before: String = self.database.client.query_typed(load, &[]).await.unwrap()[0].get(0);
        self.database
            .client
            .batch_execute("select pg_reload_conf()")
            .await
            .unwrap();
        loop {
            // Only a new session tells what the postmaster has read.
            let now: String = self
                .database
                .connect()
                .await
                .query_typed(load, &[])
                .await
                .unwrap()[0]
                .get(0);
            if now != before {
                return;
            }
        }
    }

    fn dsn(&self, user: &str, more: &str) -> String {
        format!(
            "host=localhost hostaddr=127.0.0.1 port={} dbname={} user={user} {more}",
            self.database.port, self.database.name
        )
    }

    async fn open(&self, user: &str, more: &str) -> idemctl::error::Result<Connection> {
        Connection::open(&Settings::from_dsn(&self.dsn(user, more))?).await
    }

    fn psql(&self, user: &str, more: &str) -> bool {
        let home = temp_dir();
        psql(&["-c", "select 1", "-d", &self.dsn(user, more)], &[], home.path())
            .status
            .success()
    }
}

/// Where we are stricter than OpenSSL: what has version 1 or no name in it cannot be verified.
fn stricter(certificate: &str, mode: &str, roots: &str) -> bool {
    match certificate {
        "cnonly" => roots == "ca.crt" && mode != "disable" && mode != "prefer",
        "doc" => roots == "doc.crt" && mode == "verify-full",
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_is_enforced_as_psql_does() {
    let stage = stage().await;
    for certificate in ["good", "other", "cnonly", "self", "doc"] {
        stage.show(certificate).await;
        for roots in ["none", "ca.crt", "other-ca.crt", "self.crt", "doc.crt"] {
            for mode in ["disable", "prefer", "require", "verify-ca", "verify-full"] {
                let file = stage.certificates.path(roots);
                let more = format!("sslmode={mode} sslrootcert={file}");
                let ours = stage.open("idemctl", &more).await;
                let theirs = stage.psql("idemctl", &more);
                let expected = theirs && !stricter(certificate, mode, roots);
                let place = format!("{certificate} {mode} {roots}: psql {theirs}, ours {ours:?}");
                assert_eq!(ours.is_ok(), expected, "{place}");
                if let Ok(connection) = ours {
                    let query = "select ssl::text from pg_stat_ssl where pid = pg_backend_pid()";
                    let tls = text(&connection, query).await == "true";
                    assert_eq!(tls, connection.facts().encryption == Encryption::Tls, "{place}");
                    assert!(tls || mode == "disable" || mode == "prefer", "{place}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_certificate_is_explained() {
    let stage = stage().await;
    let full = |roots: &str| {
        format!(
            "sslmode=verify-full sslrootcert={}",
            stage.certificates.path(roots)
        )
    };
    for (certificate, roots, parts) in [
        ("good", "other-ca.crt", ["no authority in", "other-ca.crt"]),
        ("other", "ca.crt", ["db.example", "localhost"]),
        ("cnonly", "ca.crt", ["version 1", "subjectAltName=DNS:localhost"]),
        (
            "doc",
            "doc.crt",
            ["names no host", "subjectAltName=DNS:localhost"],
        ),
    ] {
        stage.show(certificate).await;
        let error = refused(stage.open("idemctl", &full(roots)).await);
        assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            parts.iter().all(|part| text.contains(part)),
            "{certificate}: {text}"
        );
    }
    // Revoked: psql refuses it as well.
    stage.show("revoked").await;
    let listed = format!("{} sslcrl={}", full("ca.crt"), stage.certificates.path("ca.crl"));
    let error = refused(stage.open("idemctl", &listed).await).to_string();
    assert!(error.contains("evoked"), "{error}");
    assert!(!stage.psql("idemctl", &listed));
    stage.open("idemctl", &full("ca.crt")).await.unwrap();
    stage.show("good").await;
    stage.open("idemctl", &listed).await.unwrap();
    // The system's authorities did not sign it, if there are any.
    let error = refused(stage.open("idemctl", "sslrootcert=system").await).to_string();
    assert!(
        error.contains("the system's store") || error.contains("ca-certificates"),
        "{error}"
    );
    // TLS 1.2 goes another way through the verifier, also for what cannot be parsed.
    for certificate in ["good", "cnonly"] {
        stage.show(certificate).await;
        for version in ["TLSv1.2", "TLSv1.3"] {
            let more = format!(
                "sslmode=require ssl_min_protocol_version={version} ssl_max_protocol_version={version}"
            );
            let connection = stage.open("idemctl", &more).await.unwrap();
            let query = "select version from pg_stat_ssl where pid = pg_backend_pid()";
            assert_eq!(text(&connection, query).await, version);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefer_and_allow_take_the_other_way() {
    let stage = stage().await;
    for (user, mode, expected) in [
        ("plainonly", "prefer", true),
        ("plainonly", "allow", true),
        ("plainonly", "require", false),
        ("tlsonly", "allow", true),
        ("tlsonly", "prefer", true),
        ("tlsonly", "disable", false),
    ] {
        let more = format!("sslmode={mode}");
        let ours = stage.open(user, &more).await;
        assert_eq!(ours.is_ok(), expected, "{user} {mode}: {ours:?}");
        assert_eq!(stage.psql(user, &more), expected, "psql {user} {mode}");
    }
    // A handshake that fails: prefer goes on in plain text and says why.
    let bad_roots = format!(
        "sslmode=prefer sslrootcert={}",
        stage.certificates.path("other-ca.crt")
    );
    let connection = stage.open("idemctl", &bad_roots).await.unwrap();
    match &connection.facts().encryption {
        Encryption::Plain { why: Some(why) } => assert!(why.contains("no authority"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_scram_and_channel_binding() {
    let stage = stage().await;
    let own = format!(
        "sslmode=require sslcert={} sslkey={}",
        stage.certificates.path("client.crt"),
        stage.certificates.path("client.key")
    );
    assert_eq!(
        text(
            &stage.open("certuser", &own).await.unwrap(),
            "select current_user::text"
        )
        .await,
        "certuser"
    );
    assert!(stage.psql("certuser", &own));
    assert!(
        refused(stage.open("certuser", "sslmode=require").await)
            .to_string()
            .contains("certificate")
    );

    let mut open = std::fs::metadata(stage.certificates.path("client.key"))
        .unwrap()
        .permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut open, 0o644);
    std::fs::set_permissions(stage.certificates.path("client.key"), open).unwrap();
    let error = refused(stage.open("certuser", &own).await);
    assert!(
        matches!(&error, Error::Settings { what } if what.contains("0644")),
        "{error:?}"
    );

    let password = "password='open sesame'";
    for (user, more, expected) in [
        ("scram", "sslmode=require channel_binding=require", true),
        ("scram", "sslmode=require channel_binding=disable", true),
        ("scram", "sslmode=disable", true),
        ("scram", "sslmode=disable channel_binding=require", false),
        ("md5", "sslmode=require", true),
        ("md5", "sslmode=require channel_binding=require", false),
    ] {
        let more = format!("{password} {more}");
        let ours = stage.open(user, &more).await;
        assert_eq!(ours.is_ok(), expected, "{user} {more}: {ours:?}");
        assert_eq!(stage.psql(user, &more), expected, "psql {user} {more}");
        if let Err(error) = ours {
            assert!(!format!("{error} {error:?}").contains("sesame"), "{error:?}");
        }
    }
    for (more, part) in [
        (
            "password=wrong-one",
            "check the password from the connection string",
        ),
        ("", "PGPASSWORD"),
    ] {
        let error = refused(stage.open("scram", more).await).to_string();
        assert!(error.contains(part) && !error.contains("wrong-one"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_without_asking_first() {
    let stage = stage().await;
    let more = format!(
        "sslmode=verify-full sslrootcert={} sslnegotiation=direct",
        stage.certificates.path("ca.crt")
    );
    let version: String = stage
        .database
        .client
        .query_typed("select current_setting('server_version_num')", &[])
        .await
        .unwrap()[0]
        .get(0);
    let ours = stage.open("idemctl", &more).await;
    // Servers know it from version 17 on.
    if version.parse::<u32>().unwrap() >= 170_000 {
        let connection = ours.unwrap();
        assert_eq!(connection.facts().encryption, Encryption::Tls);
        connection.canceller().cancel().await.unwrap();
        assert_eq!(text(&connection, "select 'on'").await, "on");
    } else {
        assert!(matches!(refused(ours), Error::Unreachable { .. }));
    }
}
