//! The hosts to try, each with its port and its password.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::environment::Environment;
use super::merge::{Given, Merged, Source, settings};
use super::passfile::Passwords;
use super::secret::Secret;
use super::settings::Endpoint;
use crate::error::Result;

/// Where servers put their local sockets: Debian and most distributions, then PostgreSQL's own default.
const SOCKET_DIRS: [&str; 2] = ["/var/run/postgresql", "/tmp"];
const PORT: u16 = 5432;
/// A limit on the host list, so that a slip cannot make a command wait for hours.
const MAX_HOSTS: usize = 32;

/// The hosts in their order, without passwords.
pub(super) fn endpoints(merged: &Merged) -> Result<Vec<Endpoint>> {
    let list = |name| -> Vec<String> {
        merged
            .value(name)
            .map(|text| text.split(',').map(|s| s.trim().to_owned()).collect())
            .unwrap_or_default()
    };
    let (hosts, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err(settings(format!(
            "there are {} hosts but {} addresses in hostaddr",
            hosts.len(),
            addresses.len()
        )));
    }
    let count = hosts.len().max(addresses.len()).max(1);
    if ports.len() > 1 && ports.len() != count {
        return Err(settings(format!(
            "there are {count} hosts but {} ports",
            ports.len()
        )));
    }
    if count > MAX_HOSTS {
        return Err(settings(format!(
            "there are {count} hosts; {MAX_HOSTS} are allowed"
        )));
    }
    (0..count)
        .map(|index| {
            let port = port(
                merged,
                ports.get(index).or(ports.first()).map_or("", String::as_str),
            )?;
            let address = match addresses.get(index).filter(|text| !text.is_empty()) {
                Some(text) => Some(text.parse::<IpAddr>().map_err(|_| {
                    merged.wrong("hostaddr", "a list of IP addresses; names belong into host")
                })?),
                None => None,
            };
            let host = hosts.get(index).filter(|text| !text.is_empty()).cloned();
            let host = match (host, address) {
                (None, None) => Some(default_host(port)),
                (host, _) => host,
            };
            Ok(Endpoint {
                host,
                address,
                port,
                password: None,
            })
        })
        .collect()
}

fn port(merged: &Merged, text: &str) -> Result<u16> {
    if text.is_empty() {
        return Ok(PORT);
    }
    // A port that is no number may be the half of a password that was not percent-encoded: it is not shown.
    if text.bytes().all(|b| b.is_ascii_digit()) {
        text.parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| merged.wrong("port", "from 1 to 65535"))
    } else {
        Err(settings(
            "the port is not a number; in a URI, a user or password with : / @ % is percent-encoded",
        ))
    }
}

/// The first local socket that exists, else TCP to this machine.
fn default_host(port: u16) -> String {
    let has_socket = |directory: &&str| Path::new(directory).join(format!(".s.PGSQL.{port}")).exists();
    SOCKET_DIRS
        .into_iter()
        .find(has_socket)
        .unwrap_or("localhost")
        .to_owned()
}

/// Where the password came from, and what was left aside.
pub(super) struct FoundPasswords {
    pub(super) source: Option<Source>,
    pub(super) notes: Vec<String>,
}

/// Gives each host its password: the one that was given, else the password file's.
pub(super) fn passwords(
    merged: &Merged,
    environment: &Environment,
    endpoints: &mut [Endpoint],
    database: &str,
    user: &str,
) -> FoundPasswords {
    if let Some(Given { value, source }) = merged.get("password") {
        for endpoint in endpoints {
            endpoint.password = Some(Secret::new(value.clone()));
        }
        return FoundPasswords {
            source: Some(source.clone()),
            notes: Vec::new(),
        };
    }
    let path = merged.value("passfile").map(PathBuf::from);
    let path = path.or_else(|| environment.home.as_ref().map(|home| home.join(".pgpass")));
    let Some(path) = path else {
        return FoundPasswords {
            source: None,
            notes: Vec::new(),
        };
    };
    let passwords = Passwords::read(&path);
    for endpoint in endpoints.iter_mut() {
        let address = endpoint.address.map(|address| address.to_string());
        let host = match (&endpoint.host, &address) {
            // As in libpq, the default socket directory goes by the name of localhost.
            (Some(host), _) if SOCKET_DIRS.contains(&host.as_str()) => "localhost",
            (Some(host), _) => host.as_str(),
            (None, Some(address)) => address.as_str(),
            (None, None) => "localhost",
        };
        endpoint.password = passwords.find(host, endpoint.port, database, user);
    }
    let found = endpoints.iter().any(|endpoint| endpoint.password.is_some());
    let note = if let Passwords::Unusable(why) = passwords {
        Some(why)
    } else {
        None
    };
    FoundPasswords {
        source: found.then_some(Source::PassFile(path)),
        notes: note.into_iter().collect(),
    }
}
