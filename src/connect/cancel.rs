//! Asking the server to stop a statement, without harm to a pooler in between.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::NoTls;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use super::settings::Tcp;
use super::socket::{Place, Socket, poll_end};
use super::tls::Connector;
use crate::error::{Error, Result, describe};

/// How long the caller waits for a request to cancel.
const LIMIT: Duration = Duration::from_secs(2);
/// How long the request's own connection stays open for the other side to close it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks the server to stop the statement that runs on a connection; for signal handlers, kept apart from it.
#[derive(Clone)]
pub struct Canceller {
    pub(super) token: tokio_postgres::CancelToken,
    pub(super) place: Place,
    pub(super) tcp: Tcp,
    pub(super) tls: Option<Connector>,
}

impl Canceller {
    /// Sends the request over a connection of its own and waits until the other side has dealt with it, for
    /// 2 s at most; it goes on in the background if that takes longer.
    ///
    /// The server does not say whether it did anything: the statement may just have ended, and the next one
    /// on the same connection may be hit. The statement itself ends with SQLSTATE 57014 if it was stopped.
    pub async fn cancel(&self) -> Result<()> {
        let request = self.clone();
        let sending = tokio::spawn(async move {
            // Nobody may be waiting any more.
            tokio::time::timeout(PATIENCE, request.send()).await
        });
        match tokio::time::timeout(LIMIT, sending).await {
            Ok(Ok(Ok(result))) => result,
            Ok(Ok(Err(_))) | Err(_) => Err(Error::Deadline { after: LIMIT }),
            Ok(Err(stopped)) => Err(Error::Local {
                what: format!("the request to cancel: {stopped}"),
            }),
        }
    }

    async fn send(&self) -> Result<()> {
        let socket = self.place.open(&self.tcp).await;
        let socket = socket.map_err(|error| Error::Unreachable {
            what: format!("{}: {error}", self.place),
        })?;
        // The driver closes right after its request. libpq waits for the other side, and PgBouncer 1.18 dies
        // ("bad client state") when a client closes while its request is being passed on.
        let socket = socket.lingering();
        let sent = match &self.tls {
            Some(tls) => self.token.cancel_query_raw(socket, PatientTls(tls.clone())).await,
            None => self.token.cancel_query_raw(socket, NoTls).await,
        };
        sent.map_err(|error| Error::Unreachable {
            what: describe(&error),
        })
    }
}

impl std::fmt::Debug for Canceller {
    /// The key that allows cancelling is left out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canceller")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// A TLS stream that lets the other side close first: the farewell of TLS itself would be taken for closing.
struct Patient<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_end(&mut self.0, cx).map(Ok)
    }
}

impl<S: TlsStream + Unpin> TlsStream for Patient<S> {
    fn channel_binding(&self) -> ChannelBinding {
        self.0.channel_binding()
    }
}

/// Does the handshake of a request to cancel.
struct PatientTls(Connector);

impl TlsConnect<Socket> for PatientTls {
    type Stream = Patient<<Connector as TlsConnect<Socket>>::Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move { self.0.connect(stream).await.map(Patient) })
    }
}
