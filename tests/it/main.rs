//! The one test binary: everything runs against real parts.

mod connect;
mod dev;
mod pgbouncer;
mod support;
