//! Losers that wait for the first request's result instead of getting 409 (M7).

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::Instant;

use super::{Idempotency, Request, Reservation, metrics};
use crate::error::{Error, Result};
use crate::store::Executor;

/// Longest wait that may be asked for: 10 minutes. A client's connection seldom lives longer.
const MAX_WAIT: Duration = Duration::from_mins(10);

/// How long a loser waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitLimit(Duration);

impl WaitLimit {
    /// Up to 10 minutes; zero asks once.
    pub fn new(limit: Duration) -> Result<Self> {
        if limit > MAX_WAIT {
            let reason = format!("is {} s; at most 600 s are allowed", limit.as_secs_f64());
            return Err(Error::Invalid {
                field: "wait",
                reason,
            });
        }
        Ok(Self(limit))
    }
}

impl Idempotency {
    /// Like [`Idempotency::reserve`], but while somebody else is at work it asks again, with growing pauses and
    /// jitter, until the limit; then it returns the last [`Reservation::InProgress`].
    ///
    /// It holds no lock and no transaction meanwhile, and each question is a plain read.
    pub async fn reserve_or_wait(
        &self,
        executor: &impl Executor,
        request: &Request,
        limit: WaitLimit,
    ) -> Result<Reservation> {
        let started = std::time::Instant::now();
        let until = Instant::now() + limit.0;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(20))
            .with_max_delay(Duration::from_secs(1))
            .with_factor(1.6)
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            // Counted once, at the end: a caller that waits is no client that retries too hard.
            let answer = self.reserve_bounded(executor, request).await;
            match answer {
                Ok(Reservation::InProgress(busy)) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let pause = pauses.next().unwrap_or(Duration::from_secs(1));
                    if left.is_zero() {
                        let answer = Ok(Reservation::InProgress(busy));
                        metrics::reserved(started, &answer);
                        return answer;
                    }
                    tokio::time::sleep(pause.min(left)).await;
                }
                other => {
                    metrics::reserved(started, &other);
                    return other;
                }
            }
        }
    }
}
