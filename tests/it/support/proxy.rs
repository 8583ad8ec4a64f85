//! A TCP proxy whose connections can be cut, held up, delayed and refused.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// Where a proxy leads to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

#[derive(Debug, Clone, Default)]
struct Weather {
    /// Connections of an older era are closed.
    era: u64,
    /// Nothing is forwarded; the connections stay open, as with a peer that vanished without a packet.
    held: bool,
    /// Each packet waits this long.
    delay: Duration,
    /// New connections are closed at once.
    refusing: bool,
}

/// A running proxy on a free port of 127.0.0.1.
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    weather: watch::Sender<Weather>,
    listener: tokio::task::JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy.
    pub(crate) async fn start(target: Target) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (weather, watched) = watch::channel(Weather::default());
        let listener = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if !watched.borrow().refusing {
                    tokio::spawn(serve(stream, target.clone(), watched.clone()));
                }
            }
        });
        Self {
            address,
            weather,
            listener,
        }
    }

    /// Closes all connections; new ones work.
    pub(crate) fn cut(&self) {
        self.weather.send_modify(|weather| weather.era += 1);
    }

    /// Stops forwarding, also of new connections, and closes nothing.
    pub(crate) fn hold(&self) {
        self.weather.send_modify(|weather| weather.held = true);
    }

    /// Forwards again, what was held up included.
    pub(crate) fn release(&self) {
        self.weather.send_modify(|weather| weather.held = false);
    }

    /// Makes every packet late.
    pub(crate) fn delay(&self, delay: Duration) {
        self.weather.send_modify(|weather| weather.delay = delay);
    }

    /// Whether new connections are closed at once.
    pub(crate) fn refuse(&self, refusing: bool) {
        self.weather.send_modify(|weather| weather.refusing = refusing);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.cut();
    }
}

async fn serve(client: TcpStream, target: Target, watched: watch::Receiver<Weather>) {
    // Without this, delays of the kernel would add to ours.
    client.set_nodelay(true).expect("a socket");
    match target {
        Target::Tcp(address) => {
            if let Ok(server) = TcpStream::connect(address).await {
                join(client.into_split(), server.into_split(), watched).await;
            }
        }
        Target::Unix(path) => {
            if let Ok(server) = UnixStream::connect(path).await {
                join(client.into_split(), server.into_split(), watched).await;
            }
        }
    }
}

async fn join<R1, W1, R2, W2>(client: (R1, W1), server: (R2, W2), watched: watch::Receiver<Weather>)
where
    R1: AsyncRead + Unpin,
    W1: AsyncWrite + Unpin,
    R2: AsyncRead + Unpin,
    W2: AsyncWrite + Unpin,
{
    let era = watched.borrow().era;
    let mut ending = watched.clone();
    tokio::select! {
        () = forward(client.0, server.1, watched.clone()) => {}
        () = forward(server.0, client.1, watched) => {}
        // Also ends when the proxy is dropped.
        _ = ending.wait_for(|weather| weather.era != era) => {}
    }
}

async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut watched: watch::Receiver<Weather>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let delay = watched.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if watched.wait_for(|weather| !weather.held).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
