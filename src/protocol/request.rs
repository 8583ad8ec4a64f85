//! What a caller asks for.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{ExpiredLease, check_lease};
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::key::{KeyId, check_name};

/// What to do with a row whose lease is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExpired {
    /// Take it over and do the work again, with the same provider key.
    #[default]
    TakeOver,
    /// Leave it and tell the caller: for providers that take no keys, which must be asked first.
    Return,
}

/// One caller's wish to do one operation.
///
/// It carries the token that its lease will have. Reserving again with the *same* value recognises its own
/// claim while that is in progress, so after an error that leaves the outcome open (connection lost,
/// [`crate::error::Error::Deadline`]) repeat with the same `Request`, once, before its lease is over; make a new
/// one for every new HTTP request or message. A claim of its own that has expired is taken over like any other:
/// nobody knows any more whether the work had begun.
#[derive(Debug, Clone)]
pub struct Request {
    pub(super) id: KeyId,
    pub(super) fingerprint: Fingerprint,
    pub(super) previous: Vec<Fingerprint>,
    pub(super) operation: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) order_id: Option<String>,
    pub(super) lease: Option<Duration>,
    pub(super) on_expired: OnExpired,
    pub(super) judged: Option<ExpiredLease>,
    pub(super) token: Uuid,
    /// When it was first sent.
    pub(super) sent: OnceLock<Instant>,
}

impl Request {
    /// A request under this key for the operation with this fingerprint.
    pub fn new(id: KeyId, fingerprint: Fingerprint) -> Self {
        Self {
            id,
            fingerprint,
            previous: Vec::new(),
            operation: None,
            provider: None,
            order_id: None,
            lease: None,
            on_expired: OnExpired::default(),
            judged: None,
            token: Uuid::new_v4(),
            sent: OnceLock::new(),
        }
    }

    /// Fingerprints by earlier rules that count as the same request, so that a changed rule does not turn
    /// retries in flight into mismatches. New rows get the current one.
    #[must_use]
    pub fn or_any_of(mut self, previous: impl IntoIterator<Item = Fingerprint>) -> Self {
        self.previous.extend(previous);
        self
    }

    /// The operation, such as `POST /payments`: the same key on another one is a mismatch.
    pub fn operation(mut self, operation: impl Into<String>) -> Result<Self> {
        self.operation = Some(checked("operation", operation)?);
        Ok(self)
    }

    /// Which provider will be called, by its name in the operator's configuration.
    pub fn provider(mut self, provider: impl Into<String>) -> Result<Self> {
        self.provider = Some(checked("provider", provider)?);
        Ok(self)
    }

    /// Under which of our ids the provider will know the operation; the key when this is not called.
    ///
    /// It must be the very text that the provider is sent, and no other operation at that provider may have it:
    /// whoever settles a stuck key later asks by it. A look-up under another id finds nothing, which reads as "not
    /// charged"; one under an id that two operations share finds the other's payment. Where several clients choose
    /// their keys themselves, the key alone is not unique: send and record an id of your own, for instance
    /// [`crate::provider_key::derive`].
    pub fn order_id(mut self, order_id: impl Into<String>) -> Result<Self> {
        self.order_id = Some(checked("order_id", order_id)?);
        Ok(self)
    }

    /// Lease of this request, 1 second to 24 hours.
    pub fn lease(mut self, lease: Duration) -> Result<Self> {
        check_lease(lease)?;
        self.lease = Some(lease);
        Ok(self)
    }

    /// What to do with an expired row.
    #[must_use]
    pub fn on_expired(mut self, on_expired: OnExpired) -> Self {
        self.on_expired = on_expired;
        self
    }

    /// Takes the key over only from the expired attempt that the caller has asked the provider about
    /// ([`super::Reservation::Expired`]). Where somebody else has acquired it since, the answer is
    /// [`super::Reservation::Expired`] again, or whatever became of it.
    #[must_use]
    pub fn take_over_only(mut self, judged: ExpiredLease) -> Self {
        self.judged = Some(judged);
        self
    }

    /// The key.
    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// The token of the lease when this request makes the key's `attempt`-th acquisition: known beforehand, so
    /// that a claim whose answer got lost is recognised, and another one for each attempt, so that none is used
    /// twice on one row.
    pub(super) fn token_for(&self, attempt: i32) -> Uuid {
        // The last 32 bits of a version 4 UUID are random, so version and variant stay as they are.
        Uuid::from_u128(self.token.as_u128() ^ u128::from(attempt.wrapping_sub(1).cast_unsigned()))
    }

    pub(super) fn matches(&self, stored: &str) -> bool {
        std::iter::once(&self.fingerprint)
            .chain(&self.previous)
            .any(|print| print.as_str() == stored)
    }
}

fn checked(field: &'static str, value: impl Into<String>) -> Result<String> {
    let value = value.into();
    check_name(field, &value)?;
    Ok(value)
}
