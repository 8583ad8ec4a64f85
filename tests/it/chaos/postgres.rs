//! A PostgreSQL of one's own that can be stopped in the ways it can stop, and started again on the same data.

use std::path::Path;

use idemctl::dev::{Binaries, Identity, Lifetime, Options, Server};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{Database, Pgbouncer, PgbouncerOptions, connect, pgbouncer, temp_dir};

/// The name of the database.
const DATABASE: &str = "payments";

/// How the server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Sessions are ended, and what is in memory is written: PostgreSQL's "fast" shutdown.
    Fast,
    /// Everything is dropped, and the next start recovers: its "immediate" shutdown.
    Immediate,
    /// One session's process dies by SIGKILL; the server throws out all others and recovers by itself.
    Crash,
}

/// The server of one run.
pub(super) struct Postgres {
    options: Options,
    server: Option<Server>,
    // Removed last.
    _dir: tempfile::TempDir,
}

impl Postgres {
    /// With these settings beside the usual ones; the later win.
    pub(super) async fn start(settings: &[(&str, &str)]) -> Self {
        let elsewhere = std::env::var_os("IDEMCTL_TEST_PG_BINDIR").map(std::path::PathBuf::from);
        let binaries = Binaries::find(elsewhere.as_deref()).expect("PostgreSQL is installed");
        let dir = temp_dir();
        let identity = Identity::for_dir(&dir.path().join("pg")).expect("a user for the server");
        identity.own(dir.path()).expect("our own directory");
        let mut options = Options::new(dir.path().join("pg"), binaries);
        options.databases = vec![DATABASE.to_owned()];
        // It ends with this process, and need not survive the machine: no fsync. But what it has committed must
        // outlive its own crash.
        options.throwaway = true;
        let usual = [
            ("synchronous_commit", "on"),
            ("restart_after_crash", "on"),
            ("max_connections", "100"),
            ("shared_buffers", "32MB"),
            ("log_min_messages", "warning"),
        ];
        for (name, value) in usual.iter().chain(settings) {
            options.settings.push(((*name).to_owned(), (*value).to_owned()));
        }
        let mut postgres = Self {
            options,
            server: None,
            _dir: dir,
        };
        postgres.run().await;
        postgres
    }

    async fn run(&mut self) {
        let server = Server::start(&self.options, Lifetime::Tied)
            .await
            .expect("PostgreSQL starts");
        self.server = Some(server);
    }

    /// Ends it and starts it again; for [`Stop::Crash`] it does that itself.
    pub(super) async fn restart(&mut self, stop: Stop) {
        let signal = match stop {
            Stop::Fast => Signal::SIGINT,
            Stop::Immediate => Signal::SIGQUIT,
            Stop::Crash => return self.crash().await,
        };
        let server = self.server.take().expect("it runs");
        let pid = i32::try_from(server.pid()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("the server lives");
        // Its supervisor ends when it has; letting go of the server before that would make it an immediate stop.
        let mut server = server;
        server.ended().await.expect("it stops");
        drop(server);
        self.run().await;
    }

    async fn crash(&self) {
        // The server may still be recovering from the last time.
        let pid = async {
            let (client, connection) = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await?;
            let connection = tokio::spawn(connection);
            let row = client.query_one("select pg_backend_pid()", &[]).await?;
            Ok::<_, tokio_postgres::Error>((client, connection, row.get::<_, i32>(0)))
        };
        // A bystander's connection is thrown out as soon as the server has noticed.
        let bystander = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await;
        if let (Ok((_client, _connection, pid)), Ok((_other, connection))) = (pid.await, bystander) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("a session's process");
            let _broken = connection.await;
        }
    }

    pub(super) fn url(&self) -> String {
        self.server.as_ref().expect("it runs").url(DATABASE)
    }

    /// The URI for clients that come through a proxy of ours on this port.
    pub(super) fn url_at(port: u16) -> String {
        format!("postgresql://idemctl@127.0.0.1:{port}/{DATABASE}")
    }

    /// Its socket.
    pub(super) fn socket(&self) -> std::path::PathBuf {
        let server = self.server.as_ref().expect("it runs");
        let dir: &Path = server.socket_dir();
        dir.join(format!(".s.PGSQL.{}", server.port()))
    }

    /// A client of the driver, once the server lets one in.
    pub(super) async fn client(&self) -> tokio_postgres::Client {
        answers(&self.url()).await;
        connect(&self.url()).await
    }

    /// A PgBouncer in transaction mode before it.
    pub(super) async fn pooler(&self) -> Pgbouncer {
        let server = self.server.as_ref().expect("it runs");
        let database = Database {
            name: DATABASE.to_owned(),
            url: self.url(),
            client: self.client().await,
            socket_dir: server.socket_dir().to_owned(),
            port: server.port(),
            kept: None,
        };
        let options = PgbouncerOptions {
            pool_size: 4,
            // It would wait 15 s before it looks for a database that went away, and let clients wait for minutes.
            extra: vec![
                "server_login_retry = 1".to_owned(),
                "query_wait_timeout = 3".to_owned(),
            ],
            ..PgbouncerOptions::default()
        };
        pgbouncer(&database, options).await
    }
}

/// Waits until a server, or the pooler before it, answers a question.
pub(super) async fn answers(url: &str) {
    crate::support::until("the database answers", async || {
        let Ok((client, connection)) = tokio_postgres::connect(url, tokio_postgres::NoTls).await else {
            return false;
        };
        tokio::spawn(connection);
        client.simple_query("select 1").await.is_ok()
    })
    .await;
}
