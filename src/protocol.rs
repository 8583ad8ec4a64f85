//! The protocol: reserve before the work, complete after it.
//!
//! ```no_run
//! # async fn pay(client: &tokio_postgres::Client, body: &[u8]) -> idemctl::error::Result<()> {
//! use idemctl::fingerprint::Fingerprint;
//! use idemctl::key::KeyId;
//! use idemctl::protocol::{Idempotency, Options, Request, Reservation};
//! use idemctl::response::Response;
//!
//! let keys = Idempotency::open(client, None, Options::default()).await?; // once, at start-up
//! let request = Request::new(KeyId::new("shop-1", "order-1")?, Fingerprint::of_json(body)?);
//! match keys.reserve(client, &request).await? {
//!     Reservation::Acquired(mut lease) => {
//!         let provider_key = lease.provider_key(); // the same for every attempt
//!         // ... charge with it ...
//!         lease.complete(client, &Response::new(201, r#"{"charge_id":1}"#)?).await?;
//!     }
//!     Reservation::Replay(stored) => { /* answer with stored.response */ }
//!     Reservation::InProgress(busy) => { /* 409, Retry-After: busy.retry_after */ }
//!     Reservation::Mismatch(_) => { /* 422 */ }
//!     Reservation::Expired(_) => { /* only with OnExpired::Return: ask the provider first */ }
//! }
//! # Ok(()) }
//! ```

mod held;
mod keep_alive;
mod known;
mod lease;
mod metrics;
pub(crate) mod owner;
mod request;
mod reservation;
mod reserve;
mod same_database;
mod single_flight;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::response::DEFAULT_MAX_BODY_BYTES;
use crate::store::{Executor, Store};

pub use keep_alive::KeepAlive;
pub use lease::{Abandoned, Lease};
pub use metrics::describe_metrics;
pub use request::{OnExpired, Request};
pub use reservation::{Busy, Difference, ExpiredLease, Replay, Reservation};
pub use same_database::{TransactionClaim, TransactionReservation};
pub use single_flight::SingleFlight;
pub use wait::WaitLimit;

/// Shortest lease: 1 second.
pub const MIN_LEASE: Duration = Duration::from_secs(1);
/// Longest lease: 24 hours.
pub const MAX_LEASE: Duration = Duration::from_hours(24);
/// Lease when the caller does not choose one: 30 seconds.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// Settings of a service.
#[derive(Debug, Clone)]
pub struct Options {
    /// Lease of requests that choose none; [`MIN_LEASE`] to [`MAX_LEASE`]. It must outlast the slowest request
    /// including every time-out towards the provider.
    pub lease: Duration,
    /// Largest body of a stored response, in bytes.
    pub max_body_bytes: usize,
    /// Who holds the leases, as `inspect` shows it; by default host, process id and a nonce of this start.
    pub owner: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: DEFAULT_LEASE,
            max_body_bytes: DEFAULT_MAX_BODY_BYTES,
            owner: owner::default_owner(),
        }
    }
}

/// The entry to the protocol: one per service, cheap to clone, without a connection of its own.
#[derive(Debug, Clone)]
pub struct Idempotency {
    store: Arc<Store>,
    options: Arc<Options>,
    known: Arc<known::Known>,
}

impl Idempotency {
    /// Checks the options and the table; call it once at start-up.
    ///
    /// `schema`: `None` takes the first schema of the search path that has the table. Returns
    /// [`Error::Schema`] when the table is not there or not migrated, [`Error::Invalid`] for bad options.
    pub async fn open(executor: &impl Executor, schema: Option<&str>, options: Options) -> Result<Self> {
        check_lease(options.lease)?;
        crate::key::check_name("owner", &options.owner)?;
        let store = Store::open(executor, schema).await?;
        store.require_claimable()?;
        Ok(Self {
            store: Arc::new(store),
            options: Arc::new(options),
            known: Arc::default(),
        })
    }

    /// The tables behind it.
    pub fn store(&self) -> &Store {
        &self.store
    }
}

/// Zero, tiny and huge leases are mistakes, never "none" or "for ever".
pub(crate) fn check_lease(lease: Duration) -> Result<()> {
    if (MIN_LEASE..=MAX_LEASE).contains(&lease) {
        return Ok(());
    }
    let reason = format!(
        "is {} s; a lease lasts from 1 second to 24 hours",
        lease.as_secs_f64()
    );
    Err(Error::Invalid {
        field: "lease",
        reason,
    })
}
