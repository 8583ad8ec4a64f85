//! What the tests share: a real PostgreSQL per test process, a database per test, PgBouncer, the built binary,
//! processes that can be killed, a network that can be cut, and what makes output comparable.

mod cluster;
mod pgbouncer;
mod process;
mod proxy;
mod redact;
mod tied;

pub(crate) use cluster::{Cluster, ClusterOptions, Database, database, settings, shared, temp_dir};
pub(crate) use pgbouncer::{PgbouncerOptions, pgbouncer};
pub(crate) use process::{Output, Run, Spawned, idemctl, require_program};
pub(crate) use proxy::{Proxy, Target};
pub(crate) use redact::Redactor;
