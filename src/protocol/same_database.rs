//! Work that lives in the same database: claim, work and result in one transaction of the caller (M8).
//!
//! A concurrent duplicate waits for the first transaction to end. If it commits, the duplicate gets the stored
//! response; if it rolls back, the duplicate does the work. No lease, no 409.

use super::reserve::{busy, difference, expired};
use super::{Busy, Difference, ExpiredLease, Idempotency, Replay, Request};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::record::State;
use crate::response::Response;
use crate::store::{Executor, Mine, unknown_status};
use uuid::Uuid;

/// The answer to [`Idempotency::reserve_in`].
#[derive(Debug)]
#[must_use = "a fresh claim must be finished before the transaction commits"]
pub enum TransactionReservation {
    /// Do the work in this transaction, then [`TransactionClaim::finish`], then commit.
    Fresh(TransactionClaim),
    /// It was done before.
    Replay(Replay),
    /// The key was used for something else.
    Mismatch(Difference),
    /// The key is held by a lease (of [`Idempotency::reserve`], or of another program).
    InProgress(Busy),
    /// It was held by a lease that is over; what became of the work is not known here.
    Expired(ExpiredLease),
}

/// A claim that becomes visible when the caller's transaction commits.
#[derive(Debug)]
pub struct TransactionClaim {
    keys: Idempotency,
    id: KeyId,
    token: Uuid,
    finished: bool,
}

impl Idempotency {
    /// Claims the key inside the caller's transaction; waits while another transaction has claimed it.
    ///
    /// Serialization failures (40001, under REPEATABLE READ and SERIALIZABLE) come back as
    /// [`Error::Database`] with [`Error::is_retryable`]: repeat the whole transaction.
    pub async fn reserve_in(&self, tx: &impl Executor, request: &Request) -> Result<TransactionReservation> {
        let new = self.new_claim(request);
        // A row may be purged between the conflict and the look: then the insert succeeds the next time.
        for _ in 0..3 {
            if self.store.claim_in_transaction(tx, &new).await? {
                let claim = TransactionClaim {
                    keys: self.clone(),
                    id: request.id.clone(),
                    token: request.token,
                    finished: false,
                };
                return Ok(TransactionReservation::Fresh(claim));
            }
            let Some(mut seen) = self.store.look_at(tx, &request.id).await? else {
                continue;
            };
            if let Some(difference) = difference(request, &seen) {
                return Ok(TransactionReservation::Mismatch(difference));
            }
            return match seen.state {
                None => Err(unknown_status(&request.id, &seen.status)),
                Some(State::InProgress) => Ok(TransactionReservation::InProgress(busy(&seen))),
                Some(State::Expired) => Ok(TransactionReservation::Expired(expired(seen))),
                Some(State::Done | State::Failed) => match seen.response.take() {
                    Some(response) => {
                        let retained_from = seen.retained_from;
                        Ok(TransactionReservation::Replay(Replay {
                            response,
                            retained_from,
                        }))
                    }
                    None => Err(unknown_status(&request.id, &seen.status)),
                },
            };
        }
        Err(Error::Contended { attempts: 3 })
    }
}

impl TransactionClaim {
    /// Writes the result in the same transaction. Commit afterwards.
    pub async fn finish(mut self, tx: &impl Executor, response: &Response) -> Result<()> {
        let limit = self.keys.options.max_body_bytes;
        let size = response.body().len();
        if size > limit {
            return Err(Error::ResponseTooLarge { size, limit });
        }
        self.finished = true;
        let mine = Mine {
            id: &self.id,
            token: self.token,
            // Its lease has no length: until the commit nobody else can touch the row.
            until: None,
        };
        if self.keys.store.complete(tx, mine, response).await? {
            return Ok(());
        }
        Err(Error::Inconsistent {
            what: format!(
                "the claim on {} is not in this transaction; roll it back",
                self.id
            ),
        })
    }
}

impl Drop for TransactionClaim {
    fn drop(&mut self) {
        if !self.finished {
            tracing::warn!(key = %self.id, "claim dropped without finish; roll the transaction back, or the key is stuck");
        }
    }
}
