//! The demo's payment provider: answers on loopback what it knows of an order, as such an API does.

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::exit::{CliError, Exit, Result};

/// A running provider; it ends when dropped.
#[derive(Debug)]
pub(super) struct FakeProvider {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl FakeProvider {
    /// Listens on a free port of loopback.
    pub(super) async fn start() -> Result<Self> {
        let failed = |error: std::io::Error| {
            CliError::new(
                Exit::Other,
                format!("couldn't start the demo's provider: {error}"),
            )
        };
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper::service::service_fn(answer);
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                // A client that goes away in the middle is its own business.
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Ok(Self { address, server })
    }

    /// The section of the configuration file that leads here.
    pub(super) fn config(&self) -> String {
        let address = self.address;
        format!(
            r#"[providers.acme]
kind = "http"
url = "http://{address}/v1/payments?merchant_order_id={{order_id}}"
timeout = "2s"
find = "/data"
status = "/status"
reference = "/id"
amount = "/amount"
currency = "/currency"
match = "/merchant_order_id"
lag = "60s"
verdicts = {{ charged = ["succeeded"], pending = ["processing"], not_charged = ["failed", "canceled"] }}
response = {{ status_code = 201, body = {{ charge_id = "{{/id}}" }} }}
"#
        )
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The one payment that it knows is the one of the stuck key: the money did move.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let order = request
        .uri()
        .query()
        .and_then(|query| query.strip_prefix("merchant_order_id="));
    let (status, body) = match (request.method(), request.uri().path(), order) {
        (&Method::GET, "/v1/payments", Some("order-1")) => (
            StatusCode::OK,
            r#"{"data":[{"id":"pay_7Q2","status":"succeeded","amount":4990,"currency":"EUR","merchant_order_id":"order-1"}]}"#,
        ),
        (&Method::GET, "/v1/payments", Some(_)) => (StatusCode::OK, r#"{"data":[]}"#),
        _ => (StatusCode::NOT_FOUND, r#"{"error":"no such path"}"#),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    response.headers_mut().insert(
        CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}
