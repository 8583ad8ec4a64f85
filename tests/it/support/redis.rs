//! A real Redis.

use std::ffi::OsStr;
use std::process::Stdio;
use std::time::Duration;

use super::cluster::{free_port, temp_dir};
use super::process::{Run, require_program};
use super::tied::Tied;

/// A running server; it ends when dropped or with the test process.
pub(crate) struct Redis {
    /// The port on 127.0.0.1.
    pub(crate) port: u16,
    password: String,
    // Dropped in this order: first the process, then its directory.
    _process: Tied,
    _dir: tempfile::TempDir,
}

impl Redis {
    /// What redis-cli answers to a command.
    pub(crate) async fn ask(&self, command: &[&str]) -> String {
        let port = self.port.to_string();
        let mut args = vec!["-p", &port, "-a", &self.password, "--no-auth-warning"];
        args.extend(command);
        let program = require_program("redis-cli", "redis-tools");
        Run::new(&program.to_string_lossy(), &args).run().await.ok()
    }
}

/// Starts a server that asks for a password and keeps nothing.
pub(crate) async fn redis(password: &str) -> Redis {
    for _ in 0..5 {
        if let Some(started) = try_start(password).await {
            return started;
        }
        // Somebody else took the port between our looking for one and its start: take another.
    }
    panic!("Redis did not start in five tries");
}

async fn try_start(password: &str) -> Option<Redis> {
    let program = require_program("redis-server", "redis-server");
    let (dir, port) = (temp_dir(), free_port());
    let port_text = port.to_string();
    let mut args = vec![program.as_os_str()];
    let path = dir.path().as_os_str();
    for (name, value) in [
        ("--port", OsStr::new(&port_text)),
        ("--bind", OsStr::new("127.0.0.1")),
        ("--dir", path),
        ("--save", OsStr::new("")),
        ("--requirepass", OsStr::new(password)),
    ] {
        args.extend([OsStr::new(name), value]);
    }
    let mut process = Tied::spawn(&args, |command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    });
    loop {
        if process.has_ended() {
            return None;
        }
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return Some(Redis {
                port,
                password: password.to_owned(),
                _process: process,
                _dir: dir,
            });
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
