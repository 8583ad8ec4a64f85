//! The one test binary: everything runs against real parts.

mod connect;
mod dev;
mod expired;
mod fingerprint;
mod migrate;
mod pgbouncer;
mod janitor;
mod janitor_cli;
mod provider_http;
mod provider_key;
mod purge;
mod support;
