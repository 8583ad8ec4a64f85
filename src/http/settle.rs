//! What becomes of the lease when the handler has ended: the table in [`super`].

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use tokio::time::Instant;

use super::connections::{Connections, PerStatement};
use super::problem::{self, Problem};
use super::{REPLAYED_HEADER, RETENTION_HEADER, stored};
use crate::error::{Error, Result};
use crate::protocol::{Idempotency, Lease};
use crate::record::State;
use crate::response;

/// How long a lease is tried to be settled while the table cannot be reached.
const PATIENCE: Duration = Duration::from_secs(10);

/// Request Timeout, which time-out middleware answers in mid-work, Too Early, Too Many Requests (RFC 9110, 8470,
/// 6585), and nginx' "client closed request": none of them says whether the provider did it.
const GAVE_UP: [u16; 4] = [408, 425, 429, 499];

/// How a handler ended.
pub(super) enum Ended<E> {
    Answer(http::response::Parts, Bytes),
    /// Its answer's body broke off.
    Broken(String),
    Error(E),
    Panic,
}

/// What is needed for settling.
pub(super) struct Settler<'a, P> {
    pub(super) keys: &'a Idempotency,
    pub(super) executor: &'a PerStatement<P>,
    /// Whether the handler had begun its work.
    pub(super) begun: bool,
    pub(super) retention: Option<Duration>,
}

impl<P: Connections> Settler<'_, P> {
    /// Settles, and gives what the client gets.
    pub(super) async fn settle<R, E>(&self, mut lease: Lease, ended: Ended<E>) -> Result<Response<R>, E>
    where
        R: From<Bytes>,
    {
        match ended {
            Ended::Answer(head, body) if self.is_stored(head.status) => {
                Ok(self.complete(&mut lease, head, body).await)
            }
            Ended::Answer(head, body) => {
                let reason = format!("the handler answered {}", head.status.as_u16());
                self.give_back(&mut lease, &reason).await;
                Ok(Response::from_parts(head, R::from(body)))
            }
            Ended::Broken(error) => {
                self.give_back(&mut lease, &format!("the handler's answer broke off: {error}"))
                    .await;
                Ok(problem::outcome_unknown().response())
            }
            Ended::Error(error) => {
                self.give_back(&mut lease, "the handler failed").await;
                Err(error)
            }
            Ended::Panic => {
                self.unknown(&mut lease, "the handler panicked").await;
                Ok(problem::outcome_unknown().response())
            }
        }
    }

    /// Definite answers: everything but a server's error and what says that somebody gave up waiting, and before the
    /// work began but a refusal.
    fn is_stored(&self, status: StatusCode) -> bool {
        if self.begun {
            !status.is_server_error() && !GAVE_UP.contains(&status.as_u16())
        } else {
            !status.is_server_error() && !status.is_client_error()
        }
    }

    /// Stores the answer, and gives what the client gets: never an answer that nobody kept.
    async fn complete<R: From<Bytes>>(
        &self,
        lease: &mut Lease,
        head: http::response::Parts,
        body: Bytes,
    ) -> Response<R> {
        let answer = match stored::store(&head, &body) {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "the handler's answer cannot be stored");
                self.unknown(lease, "the handler's answer cannot be stored").await;
                return problem::outcome_unknown().response();
            }
        };
        match self.store(lease, &answer).await {
            Ok(()) => self.kept(Response::from_parts(head, R::from(body))),
            Err(Error::ResponseTooLarge { size, limit }) => {
                tracing::error!(size, limit, id = %lease.id(), "the handler's answer is too large to be stored");
                self.too_large(lease).await
            }
            Err(error) => self.instead(lease, &error).await,
        }
    }

    /// It was done, and a repeat must neither do it again nor get another answer than this client.
    async fn too_large<R: From<Bytes>>(&self, lease: &mut Lease) -> Response<R> {
        let problem = Problem::new(
            problem::ANSWER_TOO_LARGE,
            StatusCode::INTERNAL_SERVER_ERROR,
            "Answer too large",
            "The request took effect, but its answer is too large to be kept. Do not repeat it under a new key.",
        );
        let answer = response::Response::new(problem.status.as_u16(), problem.body())
            .and_then(|answer| answer.with_header("content-type", "application/problem+json"));
        let result = match &answer {
            Ok(answer) => self.store(lease, answer).await,
            Err(_) => Ok(()),
        };
        match result {
            Ok(()) => self.kept(problem.response()),
            Err(error) => self.instead(lease, &error).await,
        }
    }

    /// Tries until it is stored, the lease is lost, or patience is over.
    async fn store(&self, lease: &mut Lease, answer: &response::Response) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lease.complete(self.executor, answer).await {
                Err(error) if may_pass(&error) && Instant::now() < deadline => pause(lease, &error).await,
                result => return result,
            }
        }
    }

    /// What the client of a holder gets whose answer was not stored.
    async fn instead<R: From<Bytes>>(&self, lease: &Lease, error: &Error) -> Response<R> {
        tracing::error!(%error, id = %lease.id(), "the handler's answer was not stored");
        if !matches!(error, Error::LeaseLost { .. }) {
            return problem::outcome_unknown().response();
        }
        // Somebody else has the key: its answer, if there is one, is everybody's.
        let store = self.keys.store();
        let state = store.get(self.executor, lease.id()).await;
        if let Ok(Some(record)) = state
            && matches!(record.state, Some(State::Done | State::Failed))
            && let Ok(Some(answer)) = store.get_response(self.executor, lease.id()).await
        {
            let mut response = stored::respond(&answer);
            let replayed = HeaderValue::from_static("true");
            response.headers_mut().insert(REPLAYED_HEADER, replayed);
            return response;
        }
        Problem::new(
            problem::IN_PROGRESS,
            StatusCode::CONFLICT,
            "Request in progress",
            "This request took too long, and another attempt has taken it over. Repeat it later with the same key.",
        )
        .retry_after(Duration::from_secs(1))
        .response()
    }

    fn kept<R>(&self, mut response: Response<R>) -> Response<R> {
        if let Some(retention) = self.retention {
            let seconds = HeaderValue::from(retention.as_secs());
            response.headers_mut().insert(RETENTION_HEADER, seconds);
        }
        response
    }

    /// The work was not done, or nobody knows.
    async fn give_back(&self, lease: &mut Lease, reason: &str) {
        if self.begun {
            return self.unknown(lease, reason).await;
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lease.abandon(self.executor).await {
                Err(error) if may_pass(&error) && Instant::now() < deadline => pause(lease, &error).await,
                result => return log(result.map(drop)),
            }
        }
    }

    async fn unknown(&self, lease: &mut Lease, reason: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lease.outcome_unknown(self.executor, reason).await {
                Err(error) if may_pass(&error) && Instant::now() < deadline => pause(lease, &error).await,
                result => return log(result),
            }
        }
    }
}

/// Whether the same may succeed a moment later.
fn may_pass(error: &Error) -> bool {
    error.needs_reconnect() || error.is_retryable()
}

async fn pause(lease: &Lease, error: &Error) {
    tracing::warn!(%error, id = %lease.id(), "the lease could not be settled; trying again");
    tokio::time::sleep(Duration::from_millis(fastrand::u64(50..250))).await;
}

/// An unsettled lease runs out by itself; a lost one is somebody else's.
fn log(result: Result<()>) {
    if let Err(error) = result {
        tracing::error!(%error, "the lease could not be settled; it runs out by itself");
    }
}
