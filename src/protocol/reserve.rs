//! Claiming a key: the loop around its statements, and the reading of what they found.

use std::time::{Duration, Instant};

use super::lease::Claimed;
use super::{
    Busy, Difference, ExpiredLease, Idempotency, Lease, OnExpired, Replay, Request, Reservation, metrics,
};
use crate::error::{Error, Result};
use crate::record::State;
use crate::store::{Executor, NewClaim, Seen, unknown_status};

/// How often a reserve asks again when rows come and go under it. Each round needs a competitor that commits
/// or deletes in just that moment.
const MAX_ROUNDS: u32 = 20;
/// Longest pause between rounds.
const MAX_PAUSE: Duration = Duration::from_millis(100);
/// A client is never sent away for longer than this, however long the lease: the holder may finish any time.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(5);

impl Idempotency {
    /// Claims the key, or says who has it and what became of it: one round trip for a new key and for one that this
    /// process has met before, two for one that only others have met; a takeover and a lost race take one more each.
    ///
    /// Give it a connection outside a transaction: the claim must be committed before the work begins. For work
    /// in the same database see [`Idempotency::reserve_in`].
    ///
    /// After an error for which [`Error::needs_reconnect`] holds the claim may have been committed: repeat with the
    /// same `request`, which recognises it as long as its lease can last. Other errors leave nothing claimed.
    pub async fn reserve(&self, executor: &impl Executor, request: &Request) -> Result<Reservation> {
        let started = Instant::now();
        let result = self.reserve_bounded(executor, request).await;
        metrics::reserved(started, &result);
        result
    }

    pub(super) fn new_claim<'a>(&'a self, request: &'a Request) -> NewClaim<'a> {
        NewClaim {
            id: &request.id,
            fingerprint: request.fingerprint.as_str(),
            lease: request.lease.unwrap_or(self.options.lease),
            token: request.token,
            owner: &self.options.owner,
            operation: request.operation.as_deref(),
            provider: request.provider.as_deref(),
            order_id: request.order_id.as_deref(),
        }
    }

    pub(super) async fn reserve_bounded(
        &self,
        executor: &impl Executor,
        request: &Request,
    ) -> Result<Reservation> {
        request.sent.get_or_init(Instant::now);
        for round in 0..MAX_ROUNDS {
            let asked = Instant::now();
            match self.reserve_once(executor, request, asked).await {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            pause(round).await;
        }
        Err(Error::Contended { attempts: MAX_ROUNDS })
    }

    /// `None`: the row changed under us, ask again.
    async fn reserve_once(
        &self,
        executor: &impl Executor,
        request: &Request,
        asked: Instant,
    ) -> Result<Option<Reservation>> {
        let new = self.new_claim(request);
        if self.known.has(&request.id)
            && let Some(seen) = self.store.look_at(executor, &request.id).await?
        {
            return self.answer(executor, request, &new, seen, asked).await;
        }
        let claimed = self.store.claim(executor, &new).await?;
        self.known.note(&request.id);
        if let Some(until) = claimed {
            let lease = self.lease(request, Claimed::fresh(request, until), asked);
            return whole_lease(executor, lease, asked).await;
        }
        match self.store.look_at(executor, &request.id).await? {
            Some(seen) => self.answer(executor, request, &new, seen, asked).await,
            // Released or purged since the conflict.
            None => Ok(None),
        }
    }

    async fn answer(
        &self,
        executor: &impl Executor,
        request: &Request,
        new: &NewClaim<'_>,
        mut seen: Seen,
        asked: Instant,
    ) -> Result<Option<Reservation>> {
        if let Some(difference) = difference(request, &seen) {
            return Ok(Some(Reservation::Mismatch(difference)));
        }
        match seen.state {
            None => Err(unknown_status(&request.id, &seen.status)),
            // The commit's answer was lost, and this is our own claim; part of its lease is gone.
            Some(State::InProgress)
                if seen.token == Some(request.token_for(seen.attempt)) && self.may_be_ours(request) =>
            {
                let lease = self.lease(request, Claimed::seen(&seen), asked);
                renewed(executor, lease).await
            }
            Some(State::InProgress) => Ok(Some(Reservation::InProgress(busy(&seen)))),
            Some(State::Done | State::Failed) => Ok(seen.response.take().map(|response| {
                Reservation::Replay(Replay {
                    response,
                    retained_from: seen.retained_from,
                })
            })),
            Some(State::Expired) if !may_take_over(request, &seen) => {
                Ok(Some(Reservation::Expired(expired(seen))))
            }
            Some(State::Expired) => {
                let new = NewClaim {
                    token: request.token_for(seen.attempt.wrapping_add(1)),
                    ..*new
                };
                match self.store.take_over(executor, &new, &seen).await? {
                    Some(taken) => {
                        let lease = self.lease(request, Claimed::taken_over(&seen, taken), asked);
                        whole_lease(executor, lease, asked).await
                    }
                    None => Ok(None),
                }
            }
        }
    }

    /// A claim of ours can still be running. Afterwards a program that knows only the old columns may have taken the
    /// row over, and then our token stands beside its lease.
    fn may_be_ours(&self, request: &Request) -> bool {
        let length = request.lease.unwrap_or(self.options.lease);
        request.sent.get().is_some_and(|sent| sent.elapsed() < length)
    }

    fn lease(&self, request: &Request, claimed: Claimed, asked: Instant) -> Lease {
        let length = request.lease.unwrap_or(self.options.lease);
        Lease::new(
            self.store.clone(),
            request,
            claimed,
            length,
            asked,
            self.options.max_body_bytes,
        )
    }
}

/// The lease began when the statement began (`now()`). Where the answer took long (a lock, a slow network),
/// part of it is gone before the work starts: take the whole of it again.
async fn whole_lease(executor: &impl Executor, lease: Lease, asked: Instant) -> Result<Option<Reservation>> {
    if asked.elapsed() > lease.length() / 8 {
        return renewed(executor, lease).await;
    }
    Ok(Some(Reservation::Acquired(lease)))
}

/// `None`: it was over, and somebody else has taken the key meanwhile.
async fn renewed(executor: &impl Executor, lease: Lease) -> Result<Option<Reservation>> {
    match lease.renew(executor, lease.length()).await {
        Ok(()) => Ok(Some(Reservation::Acquired(lease))),
        Err(Error::LeaseLost { .. }) => {
            lease.forget();
            Ok(None)
        }
        // The claim may stand: a repeat with the same request recognises it.
        Err(error) => {
            lease.forget();
            Err(error)
        }
    }
}

/// Whether the expired row that was seen may be taken over.
///
/// Never without somebody's judgement where the request would go to another provider, or under another id, than
/// the attempt that is recorded: the provider key protects from a second charge only at the same provider.
fn may_take_over(request: &Request, seen: &Seen) -> bool {
    if let Some(judged) = &request.judged {
        return judged.is_still(seen);
    }
    let differs = |ours: &Option<String>, theirs: &Option<String>| matches!((ours, theirs), (Some(ours), Some(theirs)) if ours != theirs);
    request.on_expired == OnExpired::TakeOver
        && !differs(&request.provider, &seen.provider)
        && !differs(&request.order_id, &seen.order_id)
}

/// Mismatch beats every other outcome. A row without an operation (of a service that knows only the old
/// columns) matches any.
pub(super) fn difference(request: &Request, seen: &Seen) -> Option<Difference> {
    match (&request.operation, &seen.operation) {
        (Some(ours), Some(theirs)) if ours != theirs => Some(Difference::Operation),
        _ if !request.matches(&seen.fingerprint) => Some(Difference::Body),
        _ => None,
    }
}

pub(super) fn busy(seen: &Seen) -> Busy {
    let rest = seen
        .lease_remaining_seconds
        .unwrap_or(f64::MAX)
        .clamp(0.0, MAX_RETRY_AFTER.as_secs_f64());
    in_progress(Duration::from_secs_f64(rest), seen.attempt, seen.owner.clone())
}

/// Somebody else is at work, with so much of its lease left.
pub(super) fn in_progress(rest: Duration, attempt: i32, owner: Option<String>) -> Busy {
    let rest = rest.min(MAX_RETRY_AFTER).as_secs_f64();
    // Jitter upwards, so that a crowd of clients does not come back in one moment.
    let seconds = rest.max(0.05) * (1.0 + fastrand::f64() * 0.25);
    Busy {
        retry_after: Duration::from_secs_f64(seconds),
        attempt,
        owner,
    }
}

pub(super) fn expired(seen: Seen) -> ExpiredLease {
    ExpiredLease {
        attempt: seen.attempt,
        token: seen.token,
        locked_until: seen.locked_until,
        last_error: seen.last_error,
        provider: seen.provider,
        order_id: seen.order_id,
    }
}

/// The first round comes at once: the competitor has committed already. Later ones back off with jitter.
async fn pause(round: u32) {
    if round > 0 {
        let most = Duration::from_millis(1 << round.min(10)).min(MAX_PAUSE);
        tokio::time::sleep(most.mul_f64(0.5 + fastrand::f64() * 0.5)).await;
    }
}
