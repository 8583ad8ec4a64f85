//! Idempotency keys in PostgreSQL.

pub mod duration;
pub mod error;
pub mod fingerprint;
pub mod key;
pub mod protocol;
pub mod provider_key;
pub mod record;
pub mod response;
pub mod store;
pub mod time;

#[cfg(feature = "operate")]
pub mod connect;
#[cfg(feature = "operate")]
#[doc(hidden)]
pub mod dev;
#[cfg(feature = "operate")]
pub mod janitor;
#[cfg(feature = "operate")]
pub mod ops;
#[cfg(feature = "operate")]
pub mod provider;
#[cfg(feature = "operate")]
pub mod stop;
