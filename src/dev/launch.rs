//! From an idle directory to a server that answers.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::binaries::Binaries;
use super::directory::{Directory, local, try_lock};
use super::server::{Lifetime, Options, Server, Tie, signal};
use super::spawn;
use crate::error::{Error, Result};

/// How long a start or a stop may take before it is given up.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// How long to wait between two looks at something that announces itself to nobody.
const POLL: Duration = Duration::from_millis(5);

/// A cluster can only be used by programs of its own major version (PostgreSQL manual, "Upgrading a PostgreSQL
/// Cluster").
pub(super) fn require_version(directory: &Directory, binaries: &Binaries) -> Result<()> {
    let path = directory.data().join("PG_VERSION");
    let found = match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().to_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(local("read", &path, &e)),
    };
    if found == binaries.major().to_string() {
        return Ok(());
    }
    Err(Error::Settings {
        what: format!(
            "{} holds data of PostgreSQL {found}, and the programs in {} are of version {}; name those of {found} \
             with --pg-bindir, or another directory with --dir",
            directory.path.display(),
            binaries.dir().display(),
            binaries.version()
        ),
    })
}

/// Spawns the server and waits until it answers.
pub(super) async fn launch(
    directory: &Directory,
    options: &Options,
    lifetime: Lifetime,
    server_lock: File,
    deadline: Instant,
) -> Result<Server> {
    let socket_dir = directory.socket_dir()?;
    // We hold the server's lock, so these files are left over from a server that was killed. PostgreSQL would
    // refuse to start if the number in them has meanwhile been given to some other process.
    remove_if_there(&directory.data().join("postmaster.pid"))?;
    let socket = format!(".s.PGSQL.{}", options.port);
    remove_if_there(&socket_dir.join(format!("{socket}.lock")))?;
    remove_if_there(&socket_dir.join(socket))?;
    let log_start = std::fs::metadata(directory.log()).map_or(0, |log| log.len());
    let mut child = spawn::start(directory, options, lifetime, &socket_dir, server_lock)?;
    let pipe = child.stdin.take();
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(|e| local("wait for the server in", &directory.path, &e))?
        {
            let said = log_since(directory, log_start);
            return Err(Error::Local {
                what: format!(
                    "the server in {} did not start ({status}): {said}",
                    directory.path.display()
                ),
            });
        }
        if let Some(mut server) = Server::from_pid_file(directory)
            && server.answers().await.is_ok()
        {
            server.tie = match lifetime {
                Lifetime::Detached => None,
                Lifetime::Tied => Some(Tie {
                    supervisor: child,
                    pipe,
                }),
            };
            return Ok(server);
        }
        if let Err(error) = before(deadline, directory, "waited for the server to answer").await {
            // A tied one goes when `pipe` is dropped.
            if lifetime == Lifetime::Detached {
                signal(child.id(), nix::sys::signal::Signal::SIGINT)?;
            }
            return Err(error);
        }
    }
}

pub(super) async fn wait_for_start_lock(directory: &Directory, deadline: Instant) -> Result<File> {
    loop {
        if let Some(lock) = try_lock(directory.start_lock()?, &directory.path)? {
            return Ok(lock);
        }
        before(deadline, directory, "waited for another start").await?;
    }
}

/// Sleeps a little, or gives up when the time is over.
pub(super) async fn before(deadline: Instant, directory: &Directory, what: &str) -> Result<()> {
    if Instant::now() >= deadline {
        return Err(Error::Local {
            what: format!(
                "{what} in {} for {} s in vain; see {}",
                directory.path.display(),
                PATIENCE.as_secs(),
                directory.log().display()
            ),
        });
    }
    sleep(POLL).await;
    Ok(())
}

fn remove_if_there(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(local("remove", path, &e)),
        _ => Ok(()),
    }
}

/// What the server has written since we started it: the last lines are the reason.
fn log_since(directory: &Directory, start: u64) -> String {
    let bytes = std::fs::read(directory.log()).unwrap_or_default();
    let new = bytes
        .get(usize::try_from(start).unwrap_or(0)..)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(new);
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(5)..].join(" / ")
}
