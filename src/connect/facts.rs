//! What was found out about a connection.

use std::net::{IpAddr, SocketAddr};

use super::socket::{Place, Socket};
use crate::store::session::Session;

/// Whether the peer of the socket is the server itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Proven: both ends name the same two addresses and ports, or the process at the other end of the local
    /// socket is the backend's parent.
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

/// What our side knows of the socket.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct OurEnd {
    /// Our own address, over TCP.
    address: Option<SocketAddr>,
    /// The process at the other end of a local socket, as the kernel has it.
    peer: Option<i32>,
}

impl OurEnd {
    pub(super) fn of(socket: &Socket) -> Self {
        let peer = socket.unix().and_then(|stream| stream.peer_cred().ok()?.pid());
        Self {
            address: socket.local_address(),
            peer,
        }
    }
}

/// Compares what both ends say of the connection.
///
/// Over TCP the server must see our address and port as its client's, and the address and port that we are
/// connected to as its own. A loopback address is not unique (a container has its own), so there the
/// backend must be a process of this system as well.
pub(super) fn route(place: &Place, ours: OurEnd, session: &Session) -> Route {
    match place {
        Place::Tcp(address) => {
            let theirs = (session.address, session.port);
            if !same(theirs, *address) {
                let seen = match theirs {
                    (Some(ip), Some(port)) => {
                        format!("the server's end is {}", SocketAddr::new(ip, port_of(port)))
                    }
                    _ => "the server is reached by a local socket".to_owned(),
                };
                return Route::Unproven {
                    seen: format!("connected to {address}, but {seen}"),
                };
            }
            let client = (session.client_address, session.client_port);
            if !ours.address.is_some_and(|own| same(client, own)) {
                return Route::Unproven {
                    seen: "the server's client is somebody between us and it".to_owned(),
                };
            }
            if address.ip().to_canonical().is_loopback() && !is_postgres(session.backend) {
                return Route::Unproven {
                    seen: "the backend is not a process of this system".to_owned(),
                };
            }
            Route::Direct
        }
        Place::Unix(_) => match (ours.peer, parent_of(session.backend)) {
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

fn same(end: (Option<IpAddr>, Option<i32>), address: SocketAddr) -> bool {
    end.0
        .is_some_and(|ip| ip.to_canonical() == address.ip().to_canonical())
        && end.1 == Some(i32::from(address.port()))
}

/// The server gives ports as `int4`; one that is none is shown as 0.
fn port_of(port: i32) -> u16 {
    u16::try_from(port).unwrap_or_default()
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

fn is_postgres(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.contains("postgres"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(server: (Option<&str>, Option<i32>), client: (Option<&str>, Option<i32>)) -> Session {
        let ip = |text: Option<&str>| text.map(|text| text.parse().unwrap());
        Session {
            address: ip(server.0),
            port: server.1,
            client_address: ip(client.0),
            client_port: client.1,
            backend: i32::try_from(std::process::id()).unwrap(),
            version: String::new(),
            version_number: 0,
            in_recovery: false,
            read_only: false,
            user: String::new(),
            database: String::new(),
        }
    }

    const NOBODY: (Option<&str>, Option<i32>) = (None, None);

    #[test]
    fn only_the_very_same_two_ends_are_direct() {
        let place = Place::Tcp("[::ffff:10.0.0.1]:5432".parse().unwrap());
        let ours = OurEnd {
            address: Some("10.0.0.9:40000".parse().unwrap()),
            peer: None,
        };
        let (server, client) = ((Some("10.0.0.1"), Some(5432)), (Some("10.0.0.9"), Some(40000)));
        assert_eq!(route(&place, ours, &session(server, client)), Route::Direct);
        for other in [
            (Some("10.0.0.1"), Some(6432)),
            (Some("10.0.0.2"), Some(5432)),
            NOBODY,
        ] {
            assert_ne!(
                route(&place, ours, &session(other, client)),
                Route::Direct,
                "{other:?}"
            );
        }
        // A pooler in front of a server on the same address and port of another network.
        for other in [
            (Some("10.0.0.9"), Some(40001)),
            (Some("10.0.0.8"), Some(40000)),
            NOBODY,
        ] {
            assert_ne!(
                route(&place, ours, &session(server, other)),
                Route::Direct,
                "{other:?}"
            );
        }
        // Everybody has the same loopback address, and this process is no backend.
        let place = Place::Tcp("127.0.0.1:5432".parse().unwrap());
        let ours = OurEnd {
            address: Some("127.0.0.1:40000".parse().unwrap()),
            peer: None,
        };
        let found = session((Some("127.0.0.1"), Some(5432)), (Some("127.0.0.1"), Some(40000)));
        assert_ne!(route(&place, ours, &found), Route::Direct);
    }

    #[test]
    fn a_local_socket_is_judged_by_its_processes() {
        let place = Place::Unix("/tmp/.s.PGSQL.5432".into());
        let parent = i32::try_from(std::os::unix::process::parent_id()).unwrap();
        let session = session(NOBODY, NOBODY);
        let owned = |peer| OurEnd { address: None, peer };
        assert_eq!(route(&place, owned(Some(parent)), &session), Route::Direct);
        assert_ne!(
            route(&place, owned(Some(session.backend)), &session),
            Route::Direct
        );
        assert_ne!(route(&place, owned(None), &session), Route::Direct);
    }
}
