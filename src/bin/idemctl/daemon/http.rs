//! The daemon's little web server: `/metrics`, `/healthz`, `/readyz`, and nothing else.
//!
//! It is bounded in every way (connections, time, size of the request), because whoever reaches the port may send
//! anything; none of it reaches the jobs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::exit::{CliError, Exit, Result};

/// Connections at once; more wait to be accepted.
const MOST_CONNECTIONS: usize = 32;

/// How long a request's head may take to come, and a whole connection to be done with.
const HEAD_LIMIT: Duration = Duration::from_secs(5);
const LIMIT: Duration = Duration::from_secs(20);

/// Most bytes of a request's head; hyper takes no less than 8 KiB.
const MOST_BYTES: usize = 16 * 1024;

/// Pause before accepting again where that failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What is answered; see [`crate::daemon`].
pub(super) trait Pages: Send + Sync + 'static {
    /// The metrics and their content type.
    fn metrics(&self) -> impl Future<Output = Option<(String, &'static str)>> + Send;
    /// `Err` says why it is not healthy.
    fn health(&self) -> std::result::Result<(), String>;
    /// `Err` says why it is not ready.
    fn readiness(&self) -> impl Future<Output = std::result::Result<(), String>> + Send;
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub(super) struct Server {
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes the address.
pub(super) async fn bind(address: SocketAddr) -> Result<TcpListener> {
    let failed = |error: std::io::Error| {
        CliError::new(
            Exit::Other,
            format!("couldn't listen on {address} ([janitor] listen): {error}"),
        )
        .hint("another process may have the port; give [janitor] listen another one")
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tracing::info!(address = %bound, "serving /metrics, /healthz and /readyz");
    Ok(listener)
}

/// Serves the pages.
pub(super) fn serve(listener: TcpListener, pages: Arc<impl Pages>) -> Server {
    let task = tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            // Nobody closes it.
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let pages = Arc::clone(&pages);
                    tokio::spawn(async move {
                        connection(stream, pages).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    Server { task }
}

async fn connection(stream: TcpStream, pages: Arc<impl Pages>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let pages = Arc::clone(&pages);
        async move { Ok::<_, Infallible>(answer(&request, &*pages).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(MOST_BYTES)
        // A scraper comes every few seconds; connections that are kept open would hold the few places.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(LIMIT, served).await {
        Ok(Ok(())) => {}
        // What others send is their business.
        Ok(Err(error)) => tracing::debug!(%error, "a request went wrong"),
        Err(_) => tracing::debug!("a request took too long"),
    }
}

async fn answer(request: &Request<Incoming>, pages: &impl Pages) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = page(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET and HEAD\n".to_owned(),
            PLAIN,
        );
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => match pages.metrics().await {
            Some((text, content_type)) => page(StatusCode::OK, text, content_type),
            None => page(
                StatusCode::INTERNAL_SERVER_ERROR,
                "no metrics\n".to_owned(),
                PLAIN,
            ),
        },
        "/healthz" => verdict(pages.health()),
        "/readyz" => verdict(pages.readiness().await),
        _ => page(
            StatusCode::NOT_FOUND,
            "/metrics, /healthz and /readyz are here\n".to_owned(),
            PLAIN,
        ),
    }
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn verdict(verdict: std::result::Result<(), String>) -> Response<Full<Bytes>> {
    match verdict {
        Ok(()) => page(StatusCode::OK, "ok\n".to_owned(), PLAIN),
        Err(why) => page(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"), PLAIN),
    }
}

fn page(status: StatusCode, text: String, content_type: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
