//! `idemctl janitor` as a service: what the service manager is told, and how it ends.

mod ending;
mod gauges;
mod http;
mod logs;
mod monitoring;
mod notify;
mod pulse;
mod trouble;

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::net::UnixDatagram;
use tokio::sync::{Mutex, mpsc};

use crate::support::{Run, Spawned, idemctl, temp_dir};

/// Schedules that do not come by themselves while a test runs.
const QUIET: &str =
    "[janitor.purge]\nschedule = \"0 0 1 1 *\"\n[janitor.expired]\nschedule = \"0 0 1 1 *\"\n";

/// A configuration file and, beside it, the socket of a service manager.
struct Place {
    dir: tempfile::TempDir,
    /// What the manager was told. It is read at once: the socket holds ten messages, and a daemon does not wait for a
    /// manager that is slow.
    told: Mutex<mpsc::UnboundedReceiver<String>>,
}

impl Place {
    fn new(config: &str) -> Self {
        let dir = temp_dir();
        let manager = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        let (send, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut buffer = vec![0; 8192];
            while let Ok(length) = manager.recv(&mut buffer).await {
                let message = String::from_utf8(buffer[..length].to_vec()).unwrap();
                if send.send(message).is_err() {
                    break;
                }
            }
        });
        let place = Self {
            dir,
            told: Mutex::new(told),
        };
        place.write(config);
        place
    }

    fn write(&self, config: &str) {
        std::fs::write(self.config(), config).unwrap();
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// The daemon on a database, with this place's configuration and manager.
    fn janitor(&self, url: &str) -> Run {
        let (config, socket) = (self.config(), self.dir.path().join("notify"));
        idemctl(&["janitor", "-c", config.to_str().unwrap()])
            .on(url)
            .env("NOTIFY_SOCKET", socket.to_str().unwrap())
    }

    /// The next datagram, as it came.
    async fn told(&self) -> String {
        let mut told = self.told.lock().await;
        let received = tokio::time::timeout(Duration::from_mins(1), told.recv());
        received
            .await
            .expect("the manager is told something")
            .expect("the reader lives")
    }

    /// The datagrams up to and with the first that contains this.
    async fn told_until(&self, part: &str) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let message = self.told().await;
            let found = message.contains(part);
            all.push(message);
            if found {
                return all;
            }
            assert!(all.len() < 2_000, "never told {part:?}: {all:#?}");
        }
    }
}

/// Ends it as a service manager does.
async fn terminate(daemon: Spawned) -> crate::support::Output {
    daemon.signal(Signal::SIGTERM);
    daemon.wait_within(Duration::from_secs(30)).await
}
