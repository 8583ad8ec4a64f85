//! One request: read the key, claim it, run the handler, settle.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tower_service::Service;
use tracing::Instrument as _;

use super::attempt::Attempt;
use super::claim;
use super::connections::Connections;
use super::key_header::{self, Header};
use super::layer::IdempotencyLayer;
use super::problem::{self, Problem};
use super::rules::Requirement;
use super::settle::{Ended, Settler};
use super::{EXPIRES_HEADER, REPLAYED_HEADER, stored};
use crate::key::{KeyId, check_name};
use crate::protocol::{self, Difference, Lease, Replay, Reservation};

/// Why a body could not be read.
type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// What [`IdempotencyLayer`] makes of a service.
#[derive(Debug)]
pub struct IdempotencyService<S, P> {
    inner: S,
    layer: IdempotencyLayer<P>,
}

impl<S: Clone, P> Clone for IdempotencyService<S, P> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S, P> IdempotencyService<S, P> {
    pub(super) fn new(inner: S, layer: IdempotencyLayer<P>) -> Self {
        Self { inner, layer }
    }
}

impl<S, P, B, R> Service<Request<B>> for IdempotencyService<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    P: Connections,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Into<BodyError>,
    R: Body + From<Bytes> + Send + 'static,
    R::Data: Send,
    R::Error: Into<BodyError>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that was polled ready does the work; its clone waits for its own turn.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            match prepare(&layer, request).await {
                Prepared::Unprotected(request) => inner.call(request).await,
                Prepared::Refused(problem) => Ok(problem.response()),
                Prepared::Ready(wish, request) => {
                    // In a task of its own: a client that goes away stops neither the claim nor the work half-way.
                    let working = layer.at_work.begin();
                    let work = async move {
                        let _working = working;
                        run(inner, layer, wish, request).await
                    };
                    let work = tokio::spawn(work.in_current_span());
                    // The task catches panics; it is only lost when the runtime shuts down.
                    work.await
                        .unwrap_or_else(|_| Ok(problem::outcome_unknown().response()))
                }
            }
        })
    }
}

/// What becomes of a request before anything is claimed.
enum Prepared<B> {
    /// It is none of ours.
    Unprotected(Request<B>),
    /// What is wrong with it.
    Refused(Problem),
    /// What to claim for it.
    Ready(Arc<protocol::Request>, Request<B>),
}

async fn prepare<P, B>(layer: &IdempotencyLayer<P>, request: Request<B>) -> Prepared<B>
where
    P: Connections,
    B: Body + From<Bytes>,
    B::Error: Into<BodyError>,
{
    if !layer.rules.methods.contains(request.method()) {
        return Prepared::Unprotected(request);
    }
    let header = key_header::read(request.headers());
    if header == Header::Absent && layer.rules.requirement == Requirement::Optional {
        return Prepared::Unprotected(request);
    }
    let (parts, body) = request.into_parts();
    match wish(layer, header, &parts, body).await {
        Ok((wish, body)) => Prepared::Ready(Arc::new(wish), Request::from_parts(parts, B::from(body))),
        Err(problem) => Prepared::Refused(problem),
    }
}

/// Claims, and works if the key was acquired.
async fn run<S, P, B, R>(
    inner: S,
    layer: IdempotencyLayer<P>,
    wish: Arc<protocol::Request>,
    request: Request<B>,
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    P: Connections,
    R: Body + From<Bytes>,
    R::Error: Into<BodyError>,
{
    match claim::reserve(&layer, &wish).await {
        Ok(Reservation::Acquired(lease)) => work(inner, layer, lease, request).await,
        Ok(other) => Ok(answer(&layer, other)),
        Err(error) => Ok(unavailable(&error).response()),
    }
}

fn unavailable(error: &crate::error::Error) -> Problem {
    tracing::error!(%error, "a key could not be claimed; the request is refused");
    let detail = "This request did nothing; an earlier one with the same idempotency key may have taken effect. \
                  Repeat it later with the same key.";
    Problem::new(
        problem::UNAVAILABLE,
        StatusCode::SERVICE_UNAVAILABLE,
        "Temporarily unavailable",
        detail,
    )
    .retry_after(Duration::from_secs(1))
}

/// The layer's own settings do not fit this request: an order id that is too long, a lease out of range.
fn misconfigured(error: &crate::error::Error) -> Problem {
    tracing::error!(%error, "the idempotency layer cannot claim keys for such requests");
    let detail = "This request did nothing. The service has to be put right before it can be served.";
    Problem::new(
        problem::MISCONFIGURED,
        StatusCode::INTERNAL_SERVER_ERROR,
        "Service not set up for this request",
        detail,
    )
}

/// What to claim for a request; or what is wrong with it.
async fn wish<P, B>(
    layer: &IdempotencyLayer<P>,
    header: Header,
    parts: &http::request::Parts,
    body: B,
) -> Result<(protocol::Request, Bytes), Problem>
where
    P: Connections,
    B: Body,
    B::Error: Into<BodyError>,
{
    let id = id(layer, header, parts)?;
    let body = read(body, layer.rules.max_request_bytes).await?;
    let invalid = |error: crate::error::Error| {
        let detail = format!("The body cannot be compared with a repeat's: {error}.");
        Problem::new(
            problem::BODY_INVALID,
            StatusCode::BAD_REQUEST,
            "Body not readable",
            detail,
        )
    };
    let fingerprint = layer.rules.fingerprint(parts, &body).map_err(invalid)?;
    let request = layer.rules.request(parts, id, fingerprint);
    Ok((request.map_err(|error| misconfigured(&error))?, body))
}

fn id<P>(
    layer: &IdempotencyLayer<P>,
    header: Header,
    parts: &http::request::Parts,
) -> Result<KeyId, Problem> {
    let bad = |kind, title, detail: String| Problem::new(kind, StatusCode::BAD_REQUEST, title, detail);
    let key = match header {
        Header::Key(key) => key,
        Header::Absent => {
            let detail = "This request needs the header Idempotency-Key.".to_owned();
            return Err(bad(problem::KEY_MISSING, "Idempotency key missing", detail));
        }
        Header::Invalid(what) => {
            let detail = format!("The header Idempotency-Key {what}.");
            return Err(bad(problem::KEY_INVALID, "Idempotency key invalid", detail));
        }
    };
    let client = (layer.rules.client)(parts).filter(|client| check_name("client_id", client).is_ok());
    let Some(client) = client else {
        let detail = "Who sends this request is not known.";
        return Err(Problem::new(
            problem::CLIENT_UNKNOWN,
            StatusCode::UNAUTHORIZED,
            "Client unknown",
            detail,
        ));
    };
    KeyId::new(client, key).map_err(|error| {
        let detail = format!("The header Idempotency-Key is refused: {error}.");
        bad(problem::KEY_INVALID, "Idempotency key invalid", detail)
    })
}

async fn read<B>(body: B, limit: usize) -> Result<Bytes, Problem>
where
    B: Body,
    B::Error: Into<BodyError>,
{
    let collected = Limited::new(body, limit).collect().await;
    collected
        .map(http_body_util::Collected::to_bytes)
        .map_err(|error| {
            if error.is::<LengthLimitError>() {
                let detail = format!("The body has more than {limit} bytes.");
                Problem::new(
                    problem::BODY_TOO_LARGE,
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "Body too large",
                    detail,
                )
            } else {
                let detail = "The body ended before it was complete.";
                Problem::new(
                    problem::BODY_INVALID,
                    StatusCode::BAD_REQUEST,
                    "Body not readable",
                    detail,
                )
            }
        })
}

/// What a client gets that the handler is not needed for.
fn answer<P, R: From<Bytes>>(layer: &IdempotencyLayer<P>, reservation: Reservation) -> Response<R> {
    let conflict = |detail: &str, wait| {
        Problem::new(
            problem::IN_PROGRESS,
            StatusCode::CONFLICT,
            "Request in progress",
            detail,
        )
        .retry_after(wait)
        .response()
    };
    match reservation {
        Reservation::Replay(stored) => replay(layer, &stored),
        Reservation::InProgress(busy) => conflict(
            "A request with this idempotency key is being processed. Repeat it later with the same key.",
            busy.retry_after,
        ),
        Reservation::Mismatch(difference) => {
            let what = match difference {
                Difference::Operation => "another method, path or query",
                Difference::Body => "another body",
            };
            let detail =
                format!("This idempotency key was used with {what}. Use a new key for a new request.");
            Problem::new(
                problem::MISMATCH,
                StatusCode::UNPROCESSABLE_ENTITY,
                "Idempotency key used for another request",
                detail,
            )
            .response()
        }
        Reservation::Expired(_) => conflict(
            "An earlier attempt of this request did not end, and what became of it is being looked at. \
             Repeat it later with the same key.",
            Duration::from_secs(5),
        ),
        // The caller has taken these out before.
        Reservation::Acquired(lease) => {
            drop(lease);
            problem::outcome_unknown().response()
        }
    }
}

fn replay<P, R: From<Bytes>>(layer: &IdempotencyLayer<P>, stored: &Replay) -> Response<R> {
    let mut response = stored::respond(&stored.response);
    let headers = response.headers_mut();
    headers.insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    let expires = layer
        .rules
        .retention
        .and_then(|retention| stored.retained_from?.checked_add(retention)?.to_utc());
    if let Some(expires) = expires {
        let date = expires.format("%a, %d %b %Y %H:%M:%S GMT").to_string();
        if let Ok(date) = HeaderValue::from_str(&date) {
            headers.insert(EXPIRES_HEADER, date);
        }
    }
    response
}

/// Runs the handler and settles the lease, whatever the handler does.
async fn work<S, P, B, R>(
    mut inner: S,
    layer: IdempotencyLayer<P>,
    lease: Lease,
    mut request: Request<B>,
) -> Result<Response<R>, S::Error>
where
    S: Service<Request<B>, Response = Response<R>>,
    P: Connections,
    R: Body + From<Bytes>,
    R::Error: Into<BodyError>,
{
    let (attempt, mut keep) = Attempt::of(&lease, layer.executor.clone());
    request.extensions_mut().insert(attempt.clone());
    let handler = async {
        let (head, body) = inner.call(request).await?.into_parts();
        // The body is the handler's work, too.
        let body = body.collect().await.map_err(|error| error.into().to_string());
        Ok::<_, S::Error>((head, body))
    };
    let handler = AssertUnwindSafe(handler).catch_unwind();
    tokio::pin!(handler);
    let mut guard = None;
    let ended = loop {
        tokio::select! {
            ended = &mut handler => break ended,
            Ok(()) = keep.changed(), if guard.is_none() => {
                guard = Some(lease.keep_alive(layer.executor.clone()));
            }
        }
    };
    let ended = match ended {
        Ok(Ok((head, Ok(body)))) => Ended::Answer(head, body.to_bytes()),
        Ok(Ok((_, Err(error)))) => Ended::Broken(error),
        Ok(Err(error)) => Ended::Error(error),
        Err(_) => Ended::Panic,
    };
    attempt.end();
    let settler = Settler {
        keys: &layer.keys,
        executor: &layer.executor,
        begun: attempt.has_begun(),
        retention: layer.rules.retention,
    };
    let settled = settler.settle(lease, ended).await;
    drop(guard);
    settled
}
