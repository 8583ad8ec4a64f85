//! Private PostgreSQL clusters that disappear with the test process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use idemctl::connect::Settings;
use idemctl::dev::{Binaries, Identity, Lifetime, Options, Server};
use idemctl::ops::migrate;

use super::Target;

/// The cluster of this test process, started when first needed.
pub(crate) fn shared() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(|| Cluster::start_blocking(&ClusterOptions::default()))
}

/// A fresh, empty database: on the server that was given ([`super::given`]), else in the shared cluster.
pub(crate) async fn database() -> Database {
    match super::given::server().await {
        Some(server) => server.database().await,
        None => shared_database().await,
    }
}

/// The same in the shared cluster, whatever server was given: for tests that need its socket, other roles, or more
/// rights than a server that is somebody else's would give. A run against a given server lists them.
pub(crate) async fn private_database() -> Database {
    super::given::note("it needs the socket, the logins or the settings of a cluster of its own");
    shared_database().await
}

async fn shared_database() -> Database {
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
        super::given::note("it starts a cluster with settings of its own");
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
            kept: None,
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
    /// Drops it when the test ends, well or not, where the server outlives the tests.
    pub(crate) kept: Option<super::given::Kept>,
}

impl Database {
    /// How our own connections reach it.
    pub(crate) fn settings(&self) -> Settings {
        settings(&self.url)
    }

    /// Whether it is on the coordinator of a Citus cluster.
    pub(crate) fn is_citus(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.given().is_citus())
    }

    /// How fixtures migrate: distributed, where the database is one of Citus and the table not in partitions.
    pub(crate) async fn migration(&self) -> migrate::Options {
        let fits = "select exists (select from pg_extension where extname = 'citus')
                       and not exists (select from pg_class where relname = 'idempotency' and relkind = 'p')";
        let fits: bool = self
            .client
            .query_one(fits, &[])
            .await
            .expect("the catalogue")
            .get(0);
        migrate::Options {
            citus: self.is_citus() && fits,
            ..migrate::Options::default()
        }
    }

    /// The same as a command.
    pub(crate) fn migrate_command(&self) -> &'static [&'static str] {
        if self.is_citus() {
            &["migrate", "--citus"]
        } else {
            &["migrate"]
        }
    }

    /// One more client.
    pub(crate) async fn connect(&self) -> tokio_postgres::Client {
        connect(&self.url).await
    }

    /// The server's unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.socket_dir.join(format!(".s.PGSQL.{}", self.port))
    }

    /// Where a proxy before it leads to.
    pub(crate) fn target(&self) -> Target {
        match &self.kept {
            Some(kept) => Target::Tcp(kept.given().address()),
            None => Target::Unix(self.socket()),
        }
    }

    /// The URI through a proxy or pooler on this port.
    pub(crate) fn url_through(&self, port: u16) -> String {
        match &self.kept {
            Some(kept) => kept.given().url_through(&self.name, port),
            None => format!("postgresql://idemctl@127.0.0.1:{port}/{}", self.name),
        }
    }

    /// The role of the URI.
    pub(crate) fn user(&self) -> String {
        let config: tokio_postgres::Config = self.url.parse().expect("our own URI");
        config.get_user().expect("it names one").to_owned()
    }

    /// The view of what sessions do: on Citus of those on every node, since rows are waited for there.
    pub(crate) fn activity(&self) -> &'static str {
        if self.is_citus() {
            "citus_stat_activity"
        } else {
            "pg_stat_activity"
        }
    }

    /// The URI with one more setting.
    pub(crate) fn url_with(&self, setting: &str) -> String {
        let sign = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{sign}{setting}", self.url)
    }

    /// The URI of the database of the same name on another node.
    pub(crate) fn url_at(&self, host: &str, port: i32) -> String {
        let kept = self.kept.as_ref().expect("a server that was given");
        kept.given().url_at(&self.name, host, port)
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
