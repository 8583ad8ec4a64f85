//! The one test binary: everything runs against real parts.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and a child process talks to its parent"
)]

mod adopt;
mod bench;
mod chaos;
mod citus;
mod cli;
mod connect;
mod dev;
mod doctor;
mod examples;
mod expired;
mod fingerprint;
mod http;
mod janitor;
mod janitor_cli;
mod janitor_daemon;
mod kinds;
mod list;
mod migrate;
mod pgbouncer;
mod protocol;
mod provider_http;
mod provider_key;
mod provider_vendors;
mod purge;
mod races;
mod reconcile;
mod resolve;
mod selftest;
mod stripe;
mod support;
mod systemd;
mod tidy;
mod top;
