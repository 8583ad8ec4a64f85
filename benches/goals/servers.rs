//! A private PostgreSQL and a private Redis, both gone when this process is.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use idemctl::dev::Server;

use crate::server::directory;
use crate::{Result, server};

/// Commits reach the disk, as a service has it; no background worker measures itself into the figures.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "on"),
    ("synchronous_commit", "on"),
    ("full_page_writes", "off"),
    ("shared_buffers", "256MB"),
    ("max_wal_size", "8GB"),
    ("checkpoint_timeout", "1h"),
    ("autovacuum", "off"),
    ("max_connections", "200"),
];

/// Ends Redis when our end of the pipe closes, by whatever it closes.
const TIED: &str = "\"$@\" </dev/null & program=$!; read -r _; kill \"$program\"; wait \"$program\"";

pub(crate) struct Servers {
    pub(crate) postgres: Server,
    redis: Child,
    /// Where the Redis answers.
    pub(crate) redis_url: String,
    dir: tempfile::TempDir,
}

pub(crate) async fn start() -> Result<Servers> {
    let postgres = server::start(SETTINGS).await?;
    let dir = directory()?;
    let socket = dir.path().join("redis.sock");
    let redis = Command::new("/bin/sh")
        .args([
            "-c",
            TIED,
            "tied",
            "redis-server",
            "--port",
            "0",
            "--save",
            "",
            "--unixsocket",
        ])
        .arg(&socket)
        .arg("--dir")
        .arg(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut servers = Servers {
        postgres,
        redis,
        redis_url: format!("redis+unix://{}", socket.display()),
        dir,
    };
    servers.wait_for_redis(&socket).await?;
    Ok(servers)
}

impl Servers {
    async fn wait_for_redis(&mut self, socket: &std::path::Path) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        while tokio::net::UnixStream::connect(socket).await.is_err() {
            if Instant::now() > deadline {
                return Err(
                    "redis-server did not start; install it (Debian: apt-get install redis-server)".into(),
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Where to put files for a moment.
    pub(crate) fn scratch(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.redis.stdin.take());
        self.redis.wait()?;
        self.postgres.stop().await?;
        Ok(())
    }
}
