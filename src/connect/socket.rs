//! The socket under a connection: TCP with its options, or a local socket.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::settings::{Endpoint, Tcp};

/// One place to connect to.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// An open socket.
#[derive(Debug)]
pub(crate) struct Socket {
    kind: Kind,
    /// The other side closes first; see [`Socket::lingering`].
    lingering: bool,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// From now on, shutting down waits for the other side to close and sends nothing.
    pub(crate) fn lingering(self) -> Self {
        Self {
            lingering: true,
            ..self
        }
    }

    /// Our own address, over TCP.
    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        match &self.kind {
            Kind::Tcp(stream) => stream.local_addr().ok(),
            Kind::Unix(_) => None,
        }
    }

    /// The local socket, if it is one.
    pub(crate) fn unix(&self) -> Option<&UnixStream> {
        match &self.kind {
            Kind::Unix(stream) => Some(stream),
            Kind::Tcp(_) => None,
        }
    }
}

/// Reads until the other side ends the connection, however it does.
pub(crate) fn poll_end<S: AsyncRead + Unpin>(stream: &mut S, cx: &mut Context<'_>) -> Poll<()> {
    let mut rest = [0; 64];
    loop {
        let mut buf = ReadBuf::new(&mut rest);
        match ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf)) {
            Ok(()) if !buf.filled().is_empty() => {}
            _ => return Poll::Ready(()),
        }
    }
}

impl Endpoint {
    /// The places of one host: its socket, its address, or what its name stands for.
    pub(crate) async fn places(&self) -> io::Result<Vec<Place>> {
        if let Some(directory) = self.socket_directory() {
            let file = format!("{directory}/.s.PGSQL.{}", self.port);
            // An `@` stands for the abstract namespace, which begins with a NUL byte.
            let file = file
                .strip_prefix('@')
                .map_or(file.clone(), |name| format!("\0{name}"));
            return Ok(vec![Place::Unix(file.into())]);
        }
        if let Some(address) = self.address {
            return Ok(vec![Place::Tcp(SocketAddr::new(address, self.port))]);
        }
        let host = self.host.as_deref().unwrap_or("localhost");
        let found: Vec<_> = tokio::net::lookup_host((host, self.port))
            .await?
            .map(Place::Tcp)
            .collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        Ok(found)
    }
}

impl Place {
    pub(crate) async fn open(&self, tcp: &Tcp) -> io::Result<Socket> {
        match self {
            Self::Unix(path) => UnixStream::connect(path)
                .await
                .map(|stream| Kind::Unix(stream).into()),
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let socket = SockRef::from(&stream);
                if tcp.keepalives {
                    let keepalive = TcpKeepalive::new()
                        .with_time(tcp.idle)
                        .with_interval(tcp.interval)
                        .with_retries(tcp.count);
                    socket.set_tcp_keepalive(&keepalive)?;
                }
                #[cfg(any(target_os = "linux", target_os = "android"))]
                socket.set_tcp_user_timeout(Some(tcp.user_timeout))?;
                Ok(Kind::Tcp(stream).into())
            }
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl From<Kind> for Socket {
    fn from(kind: Kind) -> Self {
        Self {
            kind,
            lingering: false,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Kind::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Kind::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering {
            return poll_end(&mut *self, cx).map(Ok);
        }
        match &mut self.kind {
            Kind::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
