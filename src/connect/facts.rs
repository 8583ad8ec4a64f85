//! What was found out about a connection.

use super::socket::{Place, Socket};
use crate::store::session::Session;

/// Whether the peer of the socket is the server itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Proven: the server names the very address and port that the socket is connected to, or the process at
    /// the other end of the local socket is the backend's parent.
    Direct,
    /// Not proven: a pooler, a proxy, a mapped port. Session state cannot be relied on.
    Unproven {
        /// What was seen instead.
        seen: String,
    },
}

/// How the bytes travel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encryption {
    /// TLS up to the peer of the socket, which may be a pooler.
    Tls,
    /// None.
    Plain {
        /// Why TLS was not used although `sslmode=prefer` would have it.
        why: Option<String>,
    },
    /// A local socket: nothing leaves the machine.
    Local,
}

/// What was found out when the connection was opened.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Which host of the list it is, with its port.
    pub host: String,
    /// The address or local socket behind it.
    pub address: String,
    /// Version text, such as `15.18 (Debian 15.18-0+deb12u1)`.
    pub server_version: String,
    /// Version as a number, such as 150018.
    pub server_version_number: i32,
    /// Whether the peer is the server itself.
    pub route: Route,
    /// Whether prepared statements are kept on this connection.
    pub prepared: bool,
    /// How the bytes travel.
    pub encryption: Encryption,
    /// The server is a standby.
    pub in_recovery: bool,
    /// Transactions are read-only by default (also on each standby).
    pub read_only: bool,
    /// The user as whom statements run.
    pub user: String,
    /// The database.
    pub database: String,
    /// The backend's process number; behind a pooler the next statement may meet another.
    pub backend: i32,
}

/// Compares the two ends.
pub(super) fn route(place: &Place, peer: Option<i32>, session: &Session) -> Route {
    match place {
        Place::Tcp(address) => {
            let same = session
                .address
                .is_some_and(|ip| ip.to_canonical() == address.ip().to_canonical())
                && session.port == Some(i32::from(address.port()));
            if same {
                return Route::Direct;
            }
            let seen = match (session.address, session.port) {
                (Some(ip), Some(port)) => {
                    format!("connected to {address}, but the server listens on {ip}:{port}")
                }
                _ => format!("connected to {address}, but the server is reached by a local socket"),
            };
            Route::Unproven { seen }
        }
        Place::Unix(_) => match (peer, parent_of(session.backend)) {
            (Some(peer), Some(parent)) if peer > 0 && peer == parent => Route::Direct,
            (Some(peer), Some(parent)) => Route::Unproven {
                seen: format!("process {peer} owns the socket, but {parent} is the backend's parent"),
            },
            _ => Route::Unproven {
                seen: "which process owns the socket cannot be told".to_owned(),
            },
        },
    }
}

/// The process at the other end of a local socket, as the kernel has it.
pub(super) fn peer_of(socket: &Socket) -> Option<i32> {
    match socket {
        Socket::Unix(stream) => stream.peer_cred().ok()?.pid(),
        Socket::Tcp(_) => None,
    }
}

/// A process's parent, where the system tells (Linux).
fn parent_of(pid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(address: Option<&str>, port: Option<i32>) -> Session {
        Session {
            address: address.map(|text| text.parse().unwrap()),
            port,
            backend: i32::try_from(std::process::id()).unwrap(),
            version: String::new(),
            version_number: 0,
            in_recovery: false,
            read_only: false,
            user: String::new(),
            database: String::new(),
        }
    }

    #[test]
    fn only_the_very_same_end_is_direct() {
        let place = Place::Tcp("[::ffff:10.0.0.1]:5432".parse().unwrap());
        assert_eq!(
            route(&place, None, &session(Some("10.0.0.1"), Some(5432))),
            Route::Direct
        );
        for other in [
            (Some("10.0.0.1"), Some(6432)),
            (Some("10.0.0.2"), Some(5432)),
            (None, None),
        ] {
            assert_ne!(
                route(&place, None, &session(other.0, other.1)),
                Route::Direct,
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_local_socket_is_judged_by_its_processes() {
        let place = Place::Unix("/tmp/.s.PGSQL.5432".into());
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let session = session(None, None);
        assert_eq!(route(&place, Some(parent), &session), Route::Direct);
        assert_ne!(route(&place, Some(session.backend), &session), Route::Direct);
        assert_ne!(route(&place, None, &session), Route::Direct);
    }
}
