//! What the tests share: a real PostgreSQL per test process, a database per test, PgBouncer, the built binary,
//! processes that can be killed, a network that can be cut, and what makes output comparable.

mod cluster;
mod example;
mod given;
mod peer;
mod pgbouncer;
mod process;
mod proxy;
mod redact;
mod redis;
mod tied;
mod tmux;

pub(crate) use cluster::{
    Cluster, ClusterOptions, Database, connect, database, free_port, private_database, settings, shared,
    temp_dir,
};
pub(crate) use example::example;
pub(crate) use given::{Privately, not_on_citus, privately};
pub(crate) use peer::{installed, localstripe, stateful_mock};
pub(crate) use pgbouncer::{Pgbouncer, PgbouncerOptions, pgbouncer};
pub(crate) use process::{Output, Run, Spawned, idemctl, require_program};
pub(crate) use proxy::{Proxy, Target};
pub(crate) use redact::Redactor;
pub(crate) use redis::redis;
pub(crate) use tmux::Tmux;

/// Waits until something outside has happened that announces itself to nobody; fails the test after a minute.
pub(crate) async fn until(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while !happened().await {
        assert!(
            std::time::Instant::now() < deadline,
            "waited in vain until {what}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
