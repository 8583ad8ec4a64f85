//! A real PgBouncer in front of a database.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use idemctl::connect::Settings;
use idemctl::dev::Identity;

use super::cluster::{Database, free_port, settings, temp_dir};
use super::process::require_program;
use super::tied::Tied;

/// How the pooler is set up.
pub(crate) struct PgbouncerOptions {
    /// `transaction`, `session` or `statement`.
    pub(crate) pool_mode: &'static str,
    /// Server connections per database and user.
    pub(crate) pool_size: u32,
    /// More lines for the section `[pgbouncer]`.
    pub(crate) extra: Vec<String>,
}

impl Default for PgbouncerOptions {
    fn default() -> Self {
        Self {
            pool_mode: "transaction",
            pool_size: 2,
            extra: Vec::new(),
        }
    }
}

/// A running pooler; it ends when dropped or with the test process.
pub(crate) struct Pgbouncer {
    /// The same database through the pooler, over TCP.
    pub(crate) url: String,
    /// The same over its unix socket.
    pub(crate) socket_url: String,
    /// The port on 127.0.0.1.
    pub(crate) port: u16,
    // Dropped in this order: first the process, then its directory.
    _process: Tied,
    _dir: tempfile::TempDir,
}

impl Pgbouncer {
    /// How our own connections reach the database through the pooler.
    pub(crate) fn settings(&self) -> Settings {
        settings(&self.url)
    }
}

/// Puts a pooler in front of a database.
pub(crate) async fn pgbouncer(database: &Database, options: PgbouncerOptions) -> Pgbouncer {
    let program = require_program("pgbouncer", "pgbouncer");
    for _ in 0..5 {
        if let Some(started) = try_start(&program, database, &options).await {
            return started;
        }
        // Somebody else took the port between our looking for one and its start: take another.
    }
    panic!("PgBouncer did not start in five tries; its log was printed above");
}

async fn try_start(program: &Path, database: &Database, options: &PgbouncerOptions) -> Option<Pgbouncer> {
    let dir = temp_dir();
    let path = dir.path().to_string_lossy().into_owned();
    let port = free_port();
    let identity = Identity::for_dir(dir.path()).expect("a user for PgBouncer");
    let config = format!(
        "[databases]\n* = host={socket} port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
         listen_port = {port}\nunix_socket_dir = {path}\nauth_type = trust\nauth_file = {path}/users\n\
         pool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 500\nlogfile = {path}/log\n\
         admin_users = idemctl\n{extra}\n",
        socket = database.socket_dir.display(),
        server_port = database.port,
        mode = options.pool_mode,
        size = options.pool_size,
        extra = options.extra.join("\n"),
    );
    std::fs::write(dir.path().join("pgbouncer.ini"), config).expect("a new file");
    std::fs::write(dir.path().join("users"), "\"idemctl\" \"\"\n").expect("a new file");
    identity.own(dir.path()).expect("our own directory");
    let config_path = dir.path().join("pgbouncer.ini");
    let mut process = Tied::spawn(&[program.as_os_str(), config_path.as_os_str()], |command| {
        identity.apply(command);
        command.stdout(Stdio::null()).stderr(Stdio::null());
    });
    let url = format!("postgresql://idemctl@127.0.0.1:{port}/{}", database.name);
    let socket_url = format!("postgresql://idemctl@/{}?host={path}&port={port}", database.name);
    loop {
        if process.has_ended() {
            eprintln!(
                "{}",
                std::fs::read_to_string(dir.path().join("log")).unwrap_or_default()
            );
            return None;
        }
        if answers(&socket_url).await {
            return Some(Pgbouncer {
                url,
                socket_url,
                port,
                _process: process,
                _dir: dir,
            });
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn answers(url: &str) -> bool {
    let Ok((client, connection)) = tokio_postgres::connect(url, tokio_postgres::NoTls).await else {
        return false;
    };
    tokio::spawn(connection);
    client.simple_query("select 1").await.is_ok()
}
