//! Private PostgreSQL clusters that disappear with the test process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idemctl::connect::Settings;
use idemctl::dev::{Binaries, Identity, Lifetime, Options, Server};

/// The cluster of this test process, started when first needed.
pub(crate) fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start_blocking(&ClusterOptions::default()))
}

/// A fresh, empty database in the shared cluster.
pub(crate) async fn database() -> Database {
    // The first caller waits for initdb; that must not hold up the runtime's other tasks.
    tokio::task::spawn_blocking(shared)
        .await
        .expect("the shared cluster starts")
        .database()
        .await
}

/// A temporary directory that every user can reach (the server runs as another one when the tests run as root).
pub(crate) fn temp_dir() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::Builder::new()
        .prefix("idemctl-test-")
        // Not TMPDIR: it may be long (socket paths are short) or private.
        .tempdir_in("/tmp")
        .expect("/tmp can be written to");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("our own directory");
    dir
}

/// What differs from the ordinary: a cluster that answers on its unix socket only, to everyone.
#[derive(Default)]
pub(crate) struct ClusterOptions {
    /// Settings, such as `("max_prepared_transactions", "4")`. `{dir}` stands for the directory of the files.
    pub(crate) settings: Vec<(&'static str, String)>,
    /// Lines of `pg_hba.conf` that come before `local all all trust`.
    pub(crate) hba: Vec<String>,
    /// Files for the server alone (keys, certificates), by name.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
    /// Listen on 127.0.0.1 as well, on a free port.
    pub(crate) tcp: bool,
    /// The programs of another version.
    pub(crate) bindir: Option<PathBuf>,
    /// Environment variables for the server.
    pub(crate) env: Vec<(String, String)>,
}

/// A running cluster. Dropped or not, it ends with the test process and leaves nothing behind.
pub(crate) struct Cluster {
    server: Server,
    files: PathBuf,
    next: AtomicU32,
}

impl Cluster {
    /// Starts a cluster from a test.
    pub(crate) async fn start(options: ClusterOptions) -> Self {
        tokio::task::spawn_blocking(move || Self::start_blocking(&options))
            .await
            .expect("a cluster starts")
    }

    fn start_blocking(options: &ClusterOptions) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            // Somebody else may take the free port between our looking for one and the server's start.
            let mut tries = 0;
            loop {
                match Self::try_start(options).await {
                    Ok(cluster) => return cluster,
                    Err(error) if options.tcp && tries < 5 => eprintln!("trying another port: {error}"),
                    Err(error) => panic!("cannot start PostgreSQL for the tests: {error}"),
                }
                tries += 1;
            }
        })
    }

    async fn try_start(options: &ClusterOptions) -> idemctl::error::Result<Self> {
        // The whole suite against another major version: IDEMCTL_TEST_PG_BINDIR=DIR tests/run
        let elsewhere = std::env::var_os("IDEMCTL_TEST_PG_BINDIR").map(PathBuf::from);
        let binaries = Binaries::find(options.bindir.as_deref().or(elsewhere.as_deref()))?;
        let guard = temp_dir();
        let dir = guard.path().to_owned();
        let files = dir.join("files");
        std::fs::create_dir(&files).expect("a new directory");
        // The one who removes it in the end is the supervisor, which runs as the server's user.
        let identity = Identity::for_dir(&dir.join("pg"))?;
        identity.own(&dir)?;
        identity.own(&files)?;
        let mut server = Options::new(dir.join("pg"), binaries);
        server.throwaway = true;
        server.remove = Some(dir.clone());
        server.env.clone_from(&options.env);
        let mut set = |name: &str, value: String| server.settings.push((name.to_owned(), value));
        set("max_connections", "400".to_owned());
        set("shared_buffers", "32MB".to_owned());
        set("log_min_messages", "warning".to_owned());
        for (name, value) in &options.settings {
            set(name, value.replace("{dir}", &files.to_string_lossy()));
        }
        let hba = format!("{}\nlocal all all trust\n", options.hba.join("\n"));
        set(
            "hba_file",
            files.join("pg_hba.conf").to_string_lossy().into_owned(),
        );
        if options.tcp {
            set("listen_addresses", "127.0.0.1".to_owned());
            server.port = free_port();
        }
        write_private(&files, "pg_hba.conf", hba.as_bytes(), identity);
        for (name, content) in &options.files {
            write_private(&files, name, content, identity);
        }
        let server = Server::start(&server, Lifetime::Tied).await?;
        // From now on the server's supervisor removes it, when the server ends; that is after this process has.
        let _kept = guard.keep();
        Ok(Self {
            server,
            files,
            next: AtomicU32::new(1),
        })
    }

    /// A fresh, empty database.
    pub(crate) async fn database(&self) -> Database {
        let name = format!("t{}", self.next.fetch_add(1, Ordering::Relaxed));
        let admin = connect(&self.server.url("postgres")).await;
        admin
            .batch_execute(&format!("create database {name} template template0"))
            .await
            .expect("a new database");
        let url = self.server.url(&name);
        let client = connect(&url).await;
        Database {
            name,
            url,
            client,
            socket_dir: self.server.socket_dir().to_owned(),
            port: self.server.port(),
        }
    }

    /// The server.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Where the files of the options are.
    pub(crate) fn files(&self) -> &Path {
        &self.files
    }
}

/// One test's own database.
pub(crate) struct Database {
    /// Its name.
    pub(crate) name: String,
    /// Its libpq URI, over the unix socket.
    pub(crate) url: String,
    /// A plain client of the driver, connected to it.
    pub(crate) client: tokio_postgres::Client,
    /// The directory of the socket.
    pub(crate) socket_dir: PathBuf,
    /// The port, of the socket and of TCP where the cluster has it.
    pub(crate) port: u16,
}

impl Database {
    /// How our own connections reach it.
    pub(crate) fn settings(&self) -> Settings {
        settings(&self.url)
    }

    /// One more client.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        connect(&self.url).await
    }

    /// The server's unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket_dir.join(format!(".s.PGSQL.{}", self.port))
    }

    /// The URI over TCP, for a cluster that has it.
    pub(crate) fn tcp_url(&self) -> String {
        format!("postgresql://idemctl@127.0.0.1:{}/{}", self.port, self.name)
    }
}

/// Settings of our own connections for a URI.
pub(crate) fn settings(url: &str) -> Settings {
    Settings::from_dsn(url).expect("the tests' own URI")
}

/// A plain client of the driver.
pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .expect("a connection");
    tokio::spawn(connection);
    client
}

/// A port of 127.0.0.1 that nobody uses at the moment.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// Writes a file that only the server's user can read, as PostgreSQL demands of private keys.
fn write_private(dir: &Path, name: &str, content: &[u8], owner: Identity) {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join(name);
    std::fs::write(&path, content).expect("a new file");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("our own file");
    owner.own(&path).expect("a user for the server");
}
