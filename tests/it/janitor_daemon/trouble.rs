//! A database that goes away, comes back, or turns read-only.

use nix::sys::signal::Signal;

use super::{Place, terminate};
use crate::purge::fixture;
use crate::support::{Cluster, ClusterOptions, until};

const EAGER: &str =
    "[janitor.purge]\nschedule = \"* * * * * *\"\n[janitor.expired]\nschedule = \"* * * * * *\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_is_left_and_found_again() {
    let f = fixture().await;
    let place = Place::new(EAGER);
    let name = &f.db.name;
    let daemon = place.janitor(&f.db.url).spawn();
    place.told_until("expired: last").await;
    // As after a failover, for sessions old and new.
    f.execute(&format!(
        "alter database {name} set default_transaction_read_only = on"
    ))
    .await;
    f.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and application_name = 'idemctl'",
    )
    .await;
    let seen = place.told_until("is read-only").await;
    assert!(seen.last().unwrap().contains("TROUBLE"), "{seen:?}");
    // The fixture's own session is from before.
    f.execute(&format!(
        "alter database {name} reset default_transaction_read_only"
    ))
    .await;
    f.done(1, 48).await;
    // By itself, on a connection of its own that is writable.
    until("the key is purged", async || {
        f.number("select count(*) from idempotency").await == 0
    })
    .await;
    assert_eq!(terminate(daemon).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_is_not_ready() {
    let f = fixture().await;
    let name = &f.db.name;
    f.execute(&format!(
        "alter database {name} set default_transaction_read_only = on"
    ))
    .await;
    let place = Place::new(EAGER);
    let daemon = place.janitor(&f.db.url).spawn();
    // Before the jobs' rows are there, and after.
    let seen = place.told_until("waiting for the database").await;
    assert!(seen.last().unwrap().contains("25006"), "{seen:?}");
    f.execute("insert into idempotency_job (job) values ('purge'), ('expired')")
        .await;
    let seen = place.told_until("is read-only").await;
    assert!(!seen.iter().any(|message| message.contains("READY")), "{seen:?}");
    f.execute(&format!(
        "alter database {name} reset default_transaction_read_only"
    ))
    .await;
    place.told_until("READY=1").await;
    assert_eq!(terminate(daemon).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_servers_it_finds_the_writable_one() {
    let options = || ClusterOptions {
        tcp: true,
        hba: vec!["host all all 127.0.0.1/32 trust".to_owned()],
        ..ClusterOptions::default()
    };
    let (first, second) = (Cluster::start(options()).await, Cluster::start(options()).await);
    let (first, second) = (
        crate::purge::migrated(first.database().await).await,
        crate::purge::migrated(second.database().await).await,
    );
    assert_eq!(
        first.db.name, second.db.name,
        "both are the first of their cluster"
    );
    let name = &first.db.name;
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", first.db.port, second.db.port);
    let url = format!("postgresql://idemctl@{hosts}/{name}?sslmode=disable");
    second
        .execute(&format!(
            "alter database {name} set default_transaction_read_only = on"
        ))
        .await;
    let place = Place::new(EAGER);
    let daemon = place.janitor(&url).spawn();
    place.told_until("expired: last").await;
    // The roles change. Old sessions stay as they are, but for their next transactions.
    first
        .execute(&format!(
            "alter database {name} set default_transaction_read_only = on"
        ))
        .await;
    second
        .execute(&format!(
            "alter database {name} reset default_transaction_read_only"
        ))
        .await;
    first
        .execute(
            "select pg_terminate_backend(pid) from pg_stat_activity
              where datname = current_database() and pid <> pg_backend_pid() and application_name = 'idemctl'",
        )
        .await;
    second.done(1, 48).await;
    until("the key is purged on the new primary", async || {
        second.number("select count(*) from idempotency").await == 0
    })
    .await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.wait().await.code, 0);
}
