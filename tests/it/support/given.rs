//! The suite on somebody else's server: `IDEMCTL_TEST_DATABASE_URL=postgres://... tests/run`.
//!
//! A PostgreSQL of any provider, or the coordinator of a Citus cluster, on whose workers each database is made too
//! and registered. Databases are called `idemctl_test_HOST_PID_N`; each is dropped when its test ends, well or not,
//! and those of killed runs by the next run from the same machine.

use std::cell::Cell;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::OnceCell;
use tokio_postgres::Client;

use super::Database;
use super::cluster::connect;

const URL: &str = "IDEMCTL_TEST_DATABASE_URL";

/// A file to which the names of tests are written that go on with a server of their own.
const PRIVATE: &str = "IDEMCTL_TEST_PRIVATE_LIST";

/// The server that was given.
pub(crate) struct Given {
    /// Its URL without a database's name.
    url: String,
    port: u16,
    prefix: String,
    next: AtomicU32,
    /// The nodes of Citus, the coordinator first; empty elsewhere.
    nodes: Vec<(String, i32)>,
}

/// The server, where one was given.
pub(super) async fn server() -> Option<&'static Given> {
    static SERVER: OnceCell<Option<Given>> = OnceCell::const_new();
    if PRIVATELY.get() {
        return None;
    }
    SERVER
        .get_or_init(async || {
            let url = std::env::var(URL).ok().filter(|url| !url.is_empty())?;
            Some(Given::reach(&url).await)
        })
        .await
        .as_ref()
}

thread_local! {
    static PRIVATELY: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, this test's databases are in the shared cluster, whatever server was given.
pub(crate) struct Privately;

/// For tests that need other roles, more rights or other tables than a server that is somebody else's would give: they
/// go on with a server of their own, and a run against a given one lists them with the reason.
#[must_use]
pub(crate) fn privately(why: &str) -> Privately {
    note(why);
    PRIVATELY.set(true);
    Privately
}

/// The same on a cluster of Citus alone: for tests that rest on something it does not have.
pub(crate) async fn not_on_citus(why: &str) -> Option<Privately> {
    match server().await {
        Some(given) if given.is_citus() => Some(privately(why)),
        _ => None,
    }
}

impl Drop for Privately {
    fn drop(&mut self) {
        PRIVATELY.set(false);
    }
}

/// Writes down why the test which runs right now goes on with a server of its own.
pub(super) fn note(why: &str) {
    let (Some(_), Some(list)) = (std::env::var_os(URL), std::env::var_os(PRIVATE)) else {
        return;
    };
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("unknown");
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(list)
        .expect("the list can be written to");
    writeln!(file, "{name}: {why}").expect("the list can be written to");
}

/// A URL with another database, and where `node` is given another server.
fn at(url: &str, name: &str, node: Option<&(String, i32)>) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .unwrap_or_else(|| panic!("{URL} is no URL (postgres://USER:PASSWORD@HOST:PORT/DATABASE)"));
    let (authority, tail) = rest.split_once('/').unwrap_or((rest, ""));
    let query = tail
        .split_once('?')
        .map_or(String::new(), |(_, query)| format!("?{query}"));
    let authority = match (node, authority.rsplit_once('@')) {
        (Some((host, port)), Some((login, _))) => format!("{login}@{host}:{port}"),
        (Some((host, port)), None) => format!("{host}:{port}"),
        (None, _) => authority.to_owned(),
    };
    format!("{scheme}://{authority}/{name}{query}")
}

/// Names of databases are short and plain.
fn this_host() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name: String = name.to_string_lossy().to_lowercase();
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(20)
        .collect()
}

impl Given {
    /// Whether it is the coordinator of a Citus cluster.
    pub(super) fn is_citus(&self) -> bool {
        !self.nodes.is_empty()
    }

    async fn reach(url: &str) -> Self {
        let client = connect(url).await;
        let citus = "select exists (select from pg_extension where extname = 'citus')";
        let citus: bool = client.query_one(citus, &[]).await.expect("an answer").get(0);
        let nodes = if citus {
            let query = "select nodename::text, nodeport from pg_dist_node where noderole = 'primary' order by groupid";
            let rows = client.query(query, &[]).await.expect("the nodes");
            rows.iter().map(|row| (row.get(0), row.get(1))).collect()
        } else {
            Vec::new()
        };
        let config: tokio_postgres::Config = url.parse().expect("a URL");
        let host = this_host();
        let given = Self {
            url: url.to_owned(),
            port: config.get_ports().first().copied().unwrap_or(5432),
            prefix: format!("idemctl_test_{host}_{}", std::process::id()),
            next: AtomicU32::new(1),
            nodes,
        };
        given.sweep(&client, &format!("idemctl_test_{host}_")).await;
        given
    }

    /// Drops what killed runs from this machine have left.
    async fn sweep(&self, client: &Client, prefix: &str) {
        let query = "select datname::text from pg_database where starts_with(datname::text, $1)";
        for row in client.query(query, &[&prefix]).await.expect("the databases") {
            let name: String = row.get(0);
            let pid = name[prefix.len()..].split('_').next().unwrap_or_default();
            if !std::path::Path::new("/proc").join(pid).exists() {
                self.drop_database(&name).await;
            }
        }
    }

    async fn drop_database(&self, name: &str) {
        let workers = self.nodes.iter().skip(1).map(Some);
        for node in std::iter::once(None).chain(workers) {
            let admin = connect(&at(&self.url, &self.name(), node)).await;
            let sql = format!("drop database if exists {name} with (force)");
            if let Err(error) = admin.batch_execute(&sql).await {
                eprintln!("{name} is left behind: {error}");
            }
        }
    }

    /// The database of the URL, which is there and is not touched.
    fn name(&self) -> String {
        let config: tokio_postgres::Config = self.url.parse().expect("a URL");
        config.get_dbname().unwrap_or("postgres").to_owned()
    }

    /// The URL of a database of this server, reached at another port of this machine.
    pub(super) fn url_through(&self, name: &str, port: u16) -> String {
        at(&self.url, name, Some(&("127.0.0.1".to_owned(), i32::from(port))))
    }

    pub(super) fn url_at(&self, name: &str, host: &str, port: i32) -> String {
        at(&self.url, name, Some(&(host.to_owned(), port)))
    }

    /// Where the server listens.
    pub(super) fn address(&self) -> std::net::SocketAddr {
        use std::net::ToSocketAddrs;
        let config: tokio_postgres::Config = self.url.parse().expect("a URL");
        let tokio_postgres::config::Host::Tcp(host) = config.get_hosts().first().expect("a host") else {
            panic!("{URL} names a socket; give a host and a port");
        };
        let mut found = (host.as_str(), self.port).to_socket_addrs().expect("an address");
        found.next().expect("an address")
    }

    /// A fresh, empty database.
    pub(super) async fn database(&'static self) -> Database {
        let name = format!("{}_{}", self.prefix, self.next.fetch_add(1, Ordering::Relaxed));
        // Made first, so that what was half made is dropped as well.
        let kept = Kept {
            given: self,
            name: name.clone(),
        };
        let workers = self.nodes.iter().skip(1).map(Some);
        for node in std::iter::once(None).chain(workers) {
            let admin = connect(&at(&self.url, &self.name(), node)).await;
            admin
                .batch_execute(&format!("create database {name} template template0"))
                .await
                .expect("a new database; the role needs CREATEDB");
            if !self.nodes.is_empty() {
                let there = connect(&at(&self.url, &name, node)).await;
                there
                    .batch_execute("create extension citus")
                    .await
                    .expect("Citus");
            }
        }
        let url = at(&self.url, &name, None);
        let client = connect(&url).await;
        for (place, (host, port)) in self.nodes.iter().enumerate() {
            let add = if place == 0 {
                "select citus_set_coordinator_host($1, $2)"
            } else {
                "select citus_add_node($1, $2)"
            };
            // Databases that are made at once meet each other in the nodes' catalogues.
            let mut tries = 1;
            while let Err(error) = client.execute(add, &[host, port]).await {
                assert!(tries < 5, "{host}:{port} cannot be registered: {error:?}");
                tries += 1;
            }
        }
        Database {
            name,
            url,
            client,
            socket_dir: "no socket of a given server".into(),
            port: self.port,
            kept: Some(kept),
        }
    }
}

/// Drops a database in the end.
pub(crate) struct Kept {
    given: &'static Given,
    name: String,
}

impl Kept {
    pub(super) fn given(&self) -> &'static Given {
        self.given
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The test's own runtime is ending, or waiting for us.
        let (given, name) = (self.given, self.name.clone());
        let work = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(given.drop_database(&name));
        });
        let _ = work.join();
    }
}
