//! A provider over real sockets that answers by script, and misbehaves in every way a network can.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What a connection gets.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A whole HTTP answer: status, extra headers, body.
    Http(u16, Vec<(&'static str, String)>, Vec<u8>),
    /// These bytes, and the end.
    Raw(Vec<u8>),
    /// These bytes, and then nothing for ever.
    Stall(Vec<u8>),
    /// The connection is reset after the request was read.
    Reset,
    /// Nothing, for ever.
    Hang,
    /// After a while.
    Slow(Duration, Box<Reply>),
}

impl Reply {
    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::Http(
            status,
            vec![("content-type", "application/json".to_owned())],
            body.as_bytes().to_vec(),
        )
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Http(status, vec![], vec![])
    }
}

/// A running provider on a free port of 127.0.0.1; it ends with the test's runtime.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Plays the script, a reply for each connection; the last one stays.
    pub(crate) async fn start(script: Vec<Reply>) -> Self {
        Self::launch(script, None).await
    }

    /// The same behind TLS.
    pub(crate) async fn start_tls(script: Vec<Reply>, tls: rustls::ServerConfig) -> Self {
        Self::launch(script, Some(TlsAcceptor::from(Arc::new(tls)))).await
    }

    async fn launch(script: Vec<Reply>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            for turn in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let reply = script[turn.min(script.len() - 1)].clone();
                let (seen, tls) = (Arc::clone(&seen), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, reply, &seen).await,
                        Some(acceptor) => match acceptor.accept(stream).await {
                            Ok(stream) => serve(stream, reply, &seen).await,
                            Err(_) => seen.lock().unwrap().push("TLS failed".to_owned()),
                        },
                    }
                });
            }
        });
        Self { address, requests }
    }

    /// The heads of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The targets of the requests so far: path and query as they came.
    pub(crate) fn targets(&self) -> Vec<String> {
        self.requests()
            .iter()
            .map(|head| head.split(' ').nth(1).unwrap_or_default().to_owned())
            .collect()
    }
}

trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    fn tcp(&self) -> &TcpStream;
}

impl Wire for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Wire for tokio_rustls::server::TlsStream<TcpStream> {
    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

async fn serve(mut stream: impl Wire, mut reply: Reply, seen: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    seen.lock().unwrap().push(String::from_utf8(head).unwrap());
    while let Reply::Slow(delay, then) = reply {
        tokio::time::sleep(delay).await;
        reply = *then;
    }
    let bytes = match reply {
        Reply::Http(status, headers, body) => {
            let lines: Vec<String> = headers
                .iter()
                .map(|(name, value)| {
                    format!(
                        "{name}: {value}
"
                    )
                })
                .collect();
            let headers = lines.concat();
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
            );
            [head.into_bytes(), body].concat()
        }
        Reply::Raw(bytes) => bytes,
        Reply::Stall(bytes) => {
            let _ = stream.write_all(&bytes).await;
            return std::future::pending().await;
        }
        Reply::Reset => {
            // Closing with a linger time of zero sends RST.
            socket2::SockRef::from(stream.tcp())
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            return;
        }
        Reply::Hang => return std::future::pending().await,
        Reply::Slow(..) => unreachable!(),
    };
    // A client that has seen enough may be gone.
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}
