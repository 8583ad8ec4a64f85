//! What every action of a holder needs, and what the holder knows of its lease's end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::lease::retried;
use crate::error::{Error, Found, Result};
use crate::key::KeyId;
use crate::response::Response;
use crate::store::{Executor, Mine, Store, unknown_status};
use crate::time::Timestamp;

/// Longest `last_error` that is kept, in characters.
const MAX_REASON_CHARS: usize = 2_000;

/// How many renewals in turn may be answered too late to say anything.
const LATE: u32 = 3;

/// A lease and its keep-alive guard share one.
#[derive(Debug, Clone)]
pub(super) struct Held {
    store: Arc<Store>,
    pub(super) id: KeyId,
    pub(super) token: Uuid,
    term: Arc<Mutex<Term>>,
}

#[derive(Debug)]
struct Term {
    /// The end as it stands in the row; `None` while a renewal is outstanding, and after its answer got lost.
    until: Option<Timestamp>,
    /// How long the lease lasts at least, by the monotonic clock: counted from before the question was sent.
    /// It only says when to renew and when to give up; whose the row is, the database decides.
    sure: Instant,
}

impl Term {
    fn renewed(&mut self, until: Option<Timestamp>, sure: Instant) {
        self.until = self.until.max(until);
        self.sure = self.sure.max(sure);
    }

    /// Whether another renewal moved the end meanwhile, so that asking again makes sense.
    fn refused(&mut self, before: Option<Timestamp>) -> bool {
        if self.until.is_none() {
            self.until = before;
        }
        self.until != before
    }
}

impl Held {
    pub(super) fn new(store: Arc<Store>, id: KeyId, token: Uuid, until: Timestamp, sure: Instant) -> Self {
        let until = Some(until);
        Self {
            store,
            id,
            token,
            term: Arc::new(Mutex::new(Term { until, sure })),
        }
    }

    /// How long the lease lasts at least.
    pub(super) fn sure(&self) -> Instant {
        self.term().sure
    }

    pub(super) async fn complete(&self, executor: &impl Executor, response: &Response) -> Result<()> {
        let completed = self
            .fenced(|until| self.store.complete(executor, self.mine(until), response))
            .await?;
        if completed || self.is_completed_by_us(executor, response).await? {
            return Ok(());
        }
        Err(self.lost(executor).await?)
    }

    /// Deletes the row where it may go; `false` when it is still ours and must stay.
    pub(super) async fn abandon(&self, executor: &impl Executor, reason: &str) -> Result<bool> {
        let gone = self
            .fenced(|until| self.store.abandon(executor, self.mine(until)))
            .await?;
        if !gone {
            self.end(executor, reason, true).await?;
        }
        Ok(gone)
    }

    /// `keep_earlier`: an earlier attempt's reason says more than this one.
    pub(super) async fn end(&self, executor: &impl Executor, reason: &str, keep_earlier: bool) -> Result<()> {
        // PostgreSQL's text holds no NUL, and what is said must not keep the lease from ending.
        let reason: String = reason
            .replace('\0', "\u{fffd}")
            .chars()
            .take(MAX_REASON_CHARS)
            .collect();
        let reason = self.store.encodable(&reason);
        let reason = reason.as_str();
        let ended = self
            .fenced(|until| async move {
                let ended = self
                    .store
                    .end_lease(executor, self.mine(until), reason, keep_earlier)
                    .await?;
                if ended.is_some() {
                    self.term().until = ended;
                }
                Ok(ended.is_some())
            })
            .await?;
        if ended {
            return Ok(());
        }
        Err(self.lost(executor).await?)
    }

    pub(super) async fn renew(&self, executor: &impl Executor, extra: Duration) -> Result<()> {
        let mut late = 0;
        loop {
            let asked = Instant::now();
            // Until the answer is here, nobody knows which end stands in the row.
            let before = self.term().until.take();
            let renewed = retried(|| self.store.renew(executor, self.mine(before), extra)).await?;
            if renewed.is_some() {
                self.term().renewed(renewed, asked + extra);
                // An answer that took half of it says little about now: ask again.
                if asked.elapsed() < extra / 2 {
                    return Ok(());
                }
                late += 1;
                if late == LATE {
                    return Err(Error::Deadline {
                        after: asked.elapsed(),
                    });
                }
                continue;
            }
            if !self.term().refused(before) {
                return Err(self.lost(executor).await?);
            }
        }
    }

    /// A statement with the fence of time. A renewal (of the keep-alive guard) may move the end between our
    /// look at it and the statement; then the statement is sent again.
    async fn fenced<F, Fut>(&self, statement: F) -> Result<bool>
    where
        F: Fn(Option<Timestamp>) -> Fut,
        Fut: Future<Output = Result<bool>>,
    {
        loop {
            let until = self.term().until;
            if retried(|| statement(until)).await? {
                return Ok(true);
            }
            if self.term().until == until {
                return Ok(false);
            }
        }
    }

    fn mine(&self, until: Option<Timestamp>) -> Mine<'_> {
        Mine {
            id: &self.id,
            token: self.token,
            until,
        }
    }

    fn term(&self) -> MutexGuard<'_, Term> {
        // Nothing in it is ever half-written.
        self.term.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A completion that was committed although its answer got lost: our token, terminal, the same response.
    async fn is_completed_by_us(&self, executor: &impl Executor, response: &Response) -> Result<bool> {
        let Some(record) = self.store.get(executor, &self.id).await? else {
            return Ok(false);
        };
        if record.lease_token != Some(self.token) || record.status != "done" {
            return Ok(false);
        }
        Ok(self.store.get_response(executor, &self.id).await?.as_ref() == Some(response))
    }

    /// The error for a lost lease, with what stands in its place.
    async fn lost(&self, executor: &impl Executor) -> Result<Error> {
        let found = match self.store.get(executor, &self.id).await? {
            None => Found::Gone,
            Some(record) => match record.state {
                Some(state) => Found::Other {
                    state,
                    attempt: record.attempt,
                    owner: record.owner,
                },
                None => return Ok(unknown_status(&self.id, &record.status)),
            },
        };
        Ok(Error::LeaseLost {
            id: self.id.to_string(),
            found,
        })
    }
}
