//! The one test binary: everything runs against real parts.

mod connect;
mod dev;
mod fingerprint;
mod migrate;
mod pgbouncer;
mod provider_key;
mod support;
