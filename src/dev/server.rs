//! One server per directory: start, find, stop.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Config, NoTls};

use super::binaries::Binaries;
use super::directory::{Directory, local, try_lock};
use super::launch::{PATIENCE, before, launch, require_version, wait_for_start_lock};
use super::spawn::{self, USER};
use crate::error::{Error, Result};
use crate::store::bootstrap;

/// How long a server may take to answer a question that costs nothing.
const ANSWER: Duration = Duration::from_secs(5);

/// How long a server may take to stop by itself.
const GRACE: Duration = Duration::from_secs(10);

/// What a server is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where everything of this server is kept; made if absent, with mode 0700.
    pub dir: PathBuf,
    /// The programs to run.
    pub binaries: Binaries,
    /// Settings on the server's command line, the later ones winning, such as `("max_connections", "400")`.
    pub settings: Vec<(String, String)>,
    /// Databases to create if they are not there.
    pub databases: Vec<String>,
    /// The port, which is a part of the socket's name; TCP only if `listen_addresses` is among the settings.
    pub port: u16,
    /// Environment variables for the server's processes.
    pub env: Vec<(String, String)>,
    /// The data need not survive: no fsync, and with [`Lifetime::Tied`] an immediate stop.
    pub throwaway: bool,
    /// A directory that is removed after a tied server has ended, by whatever it ended.
    pub remove: Option<PathBuf>,
}

impl Options {
    /// The database `idemctl` and nothing special.
    pub fn new(dir: impl Into<PathBuf>, binaries: Binaries) -> Self {
        Self {
            dir: dir.into(),
            binaries,
            settings: Vec::new(),
            databases: vec![USER.to_owned()],
            port: 5432,
            env: Vec::new(),
            throwaway: false,
            remove: None,
        }
    }
}

/// How long a server lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the [`Server`] is dropped or this process ends in whatever way, `kill -9` included.
    Tied,
    /// Until somebody stops it.
    Detached,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    dir: PathBuf,
    socket_dir: PathBuf,
    port: u16,
    pid: u32,
    /// The supervisor and the pipe that keeps a tied server alive; `None` for one that is not ours to end.
    pub(super) tie: Option<Tie>,
}

/// What keeps a tied server alive.
#[derive(Debug)]
pub(super) struct Tie {
    pub(super) supervisor: Child,
    pub(super) pipe: Option<ChildStdin>,
}

impl Server {
    /// Starts the server of `options.dir`, or finds the one that runs there already (then `lifetime` and the
    /// settings have no say). When this returns, the server has answered a query and the databases are there.
    pub async fn start(options: &Options, lifetime: Lifetime) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let directory = Directory::prepare(&options.dir)?;
        directory
            .identity
            .require_reach(&options.binaries.program("postgres"))?;
        let start_lock = wait_for_start_lock(&directory, deadline).await?;
        let server_lock = loop {
            if let Some(lock) = try_lock(directory.server_lock()?, &directory.path)? {
                break lock;
            }
            // Somebody's server is there: it answers, it will soon, or it is just going.
            if let Some(found) = Self::find(&options.dir).await? {
                found.ensure_databases(&options.databases).await?;
                return Ok(found);
            }
            before(
                deadline,
                &directory,
                "waited for the server that is starting or stopping there",
            )
            .await?;
        };
        require_version(&directory, &options.binaries)?;
        spawn::initialise(&directory, options, &start_lock).await?;
        let server = launch(&directory, options, lifetime, server_lock, deadline).await?;
        server.ensure_databases(&options.databases).await?;
        Ok(server)
    }

    /// The server that runs in a directory, if one does and answers.
    pub async fn find(dir: &Path) -> Result<Option<Self>> {
        let Some(directory) = Directory::existing(dir)? else {
            return Ok(None);
        };
        if !directory.server_lives()? {
            // Whatever a pid file says.
            return Ok(None);
        }
        let Some(server) = Self::from_pid_file(&directory) else {
            return Ok(None);
        };
        match server.answers().await {
            Ok(_client) => Ok(Some(server)),
            Err(error @ Error::Deadline { .. }) => Err(Error::Unreachable {
                what: format!(
                    "the server in {}, process {}, is there but does not answer ({error}); `idemctl dev down` ends it",
                    dir.display(),
                    server.pid
                ),
            }),
            // It is starting or stopping.
            Err(_) => Ok(None),
        }
    }

    /// The server whose processes live in a directory, whether it answers or not: for ending it.
    pub fn find_living(dir: &Path) -> Result<Option<Self>> {
        let Some(directory) = Directory::existing(dir)? else {
            return Ok(None);
        };
        if !directory.server_lives()? {
            return Ok(None);
        }
        Ok(Self::from_pid_file(&directory))
    }

    /// Stops the server: sessions are ended, transactions rolled back (PostgreSQL's "fast" shutdown). Returns
    /// when its last process is gone.
    pub async fn stop(mut self) -> Result<()> {
        if let Some(tie) = self.tie.take() {
            // Waits for the supervisor, which ends last.
            tokio::task::spawn_blocking(move || drop(tie))
                .await
                .map_err(|e| Error::Local {
                    what: format!("cannot wait for the server to stop: {e}"),
                })?;
            self.remove_short_socket_dir();
            return Ok(());
        }
        let Some(directory) = Directory::existing(&self.dir)? else {
            return Ok(());
        };
        let data = directory.data();
        // A pid file may be stale, and its number another program's.
        if runs_in(self.pid, &data) {
            signal(self.pid, Signal::SIGINT)?;
        }
        let started = Instant::now();
        let mut left = [(GRACE, Signal::SIGCONT), (GRACE * 3 / 2, Signal::SIGKILL)]
            .into_iter()
            .peekable();
        while directory.server_lives()? {
            // One that stands still is woken, so that it can obey; one that does not even then is ended, and
            // recovers at its next start.
            if let Some((_, harder)) = left.next_if(|(after, _)| started.elapsed() > *after) {
                tracing::warn!(
                    pid = self.pid,
                    signal = harder.as_str(),
                    "the server does not stop by itself"
                );
                for pid in processes_in(&data) {
                    signal(pid, harder)?;
                }
            }
            before(started + PATIENCE, &directory, "waited for the server to stop").await?;
        }
        self.remove_short_socket_dir();
        Ok(())
    }

    /// The libpq URI of one database, such as `postgresql://idemctl@/idemctl?host=%2Fhome%2F...`.
    pub fn url(&self, database: &str) -> String {
        let encode = |text: &str| {
            percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
        };
        // Slashes may stand in a query (RFC 3986, section 3.4), and people read this.
        let host = encode(&self.socket_dir.to_string_lossy()).replace("%2F", "/");
        let host = host.replace("%2E", ".").replace("%2D", "-").replace("%5F", "_");
        let port = if self.port == 5432 {
            String::new()
        } else {
            format!("&port={}", self.port)
        };
        format!(
            "postgresql://{USER}@/{}?host={host}{port}",
            encode(database).replace("%5F", "_")
        )
    }

    /// The directory of everything.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where the socket is: `host` for a client.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    /// The port, also of the socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the postmaster.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the server ends with this value.
    pub fn is_tied(&self) -> bool {
        self.tie.is_some()
    }

    /// Creates a database anew; what was in one of this name is gone.
    pub async fn recreate_database(&self, name: &str) -> Result<()> {
        bootstrap::recreate_database(&self.answers().await?, name).await
    }

    /// Waits until a tied server ends by itself; for one that is not tied, for ever.
    pub async fn ended(&mut self) -> Result<std::process::ExitStatus> {
        let Some(tie) = &mut self.tie else {
            return std::future::pending().await;
        };
        loop {
            let ended = tie.supervisor.try_wait();
            if let Some(status) = ended.map_err(|e| local("wait for the server in", &self.dir, &e))? {
                return Ok(status);
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Reads what the server says of itself: pid, port and socket directory are lines 1, 4 and 5 of
    /// postmaster.pid (PostgreSQL's `miscadmin.h`, `LOCK_FILE_LINE_*`).
    pub(super) fn from_pid_file(directory: &Directory) -> Option<Self> {
        let text = std::fs::read_to_string(directory.data().join("postmaster.pid")).ok()?;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        Some(Self {
            dir: directory.path.clone(),
            pid: lines.first()?.parse().ok()?,
            port: lines.get(3)?.parse().ok()?,
            socket_dir: lines.get(4).filter(|line| !line.is_empty())?.into(),
            tie: None,
        })
    }

    /// A directory of its own that only held the socket is empty now.
    fn remove_short_socket_dir(&self) {
        if self.socket_dir != self.dir {
            // If it is not, or is gone already, it does no harm.
            let _ = std::fs::remove_dir(&self.socket_dir);
        }
    }

    pub(super) async fn answers(&self) -> Result<Client> {
        let mut config = Config::new();
        config.port(self.port);
        config
            .host_path(&self.socket_dir)
            .user(USER)
            .dbname("postgres")
            .connect_timeout(Duration::from_secs(5));
        config.application_name("idemctl dev");
        let ask = async {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            bootstrap::ping(&client).await?;
            Ok(client)
        };
        // A postmaster that stands still lets the kernel accept the connection, and never answers.
        tokio::time::timeout(ANSWER, ask)
            .await
            .unwrap_or(Err(Error::Deadline { after: ANSWER }))
    }

    async fn ensure_databases(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let client = self.answers().await?;
        for name in names {
            bootstrap::ensure_database(&client, name).await?;
        }
        Ok(())
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.pipe = None;
        // The supervisor ends when the server has; an error means that it was waited for before.
        let _ = self.supervisor.wait();
    }
}

/// Whether a process is one of the server's: each works in the data directory. Where there is no /proc, the pid
/// file alone says so.
fn runs_in(pid: u32, data: &Path) -> bool {
    if !Path::new("/proc/self/cwd").exists() {
        return true;
    }
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd"));
    matches!((cwd, data.canonicalize()), (Ok(cwd), Ok(data)) if cwd == data)
}

/// The server's processes that live, children of a postmaster that is gone among them; none where there is no
/// /proc, since then nobody can tell whose a process is.
fn processes_in(data: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| runs_in(*pid, data))
        .collect()
}

/// SIGINT asks for PostgreSQL's "fast" shutdown.
pub(super) fn signal(pid: u32, signal: Signal) -> Result<()> {
    let failed = |why: String| Error::Local {
        what: format!("cannot stop the server, process {pid}: {why}"),
    };
    let raw = i32::try_from(pid).map_err(|e| failed(e.to_string()))?;
    match nix::sys::signal::kill(nix::unistd::Pid::from_raw(raw), signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(e) => Err(failed(e.to_string())),
    }
}
