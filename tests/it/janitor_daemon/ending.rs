//! SIGTERM in every state: the daemon ends within its grace time, and leaves nothing running on the server.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tokio::net::TcpListener;

use super::{Place, QUIET};
use crate::purge::{Fixture, fixture};
use crate::support::{Output, Proxy, Spawned, until};

/// Grace of the tests, and what an end at once may take on top: the last words, the request to cancel, and a machine
/// that is busy with other tests.
const GRACE: &str = "1s";
const LIMIT: Duration = Duration::from_secs(15);

fn every_second(job: &str, more: &str) -> String {
    let other = if job == "purge" { "expired" } else { "purge" };
    format!(
        "[janitor]\ngrace = \"{GRACE}\"\n[janitor.{job}]\nschedule = \"* * * * * *\"\n{more}\
         [janitor.{other}]\nschedule = \"0 0 1 1 *\"\n"
    )
}

/// Ends it with one SIGTERM.
async fn ends(daemon: Spawned) -> Output {
    let started = Instant::now();
    daemon.signal(Signal::SIGTERM);
    let output = daemon.wait_within(Duration::from_secs(40)).await;
    assert!(
        started.elapsed() < LIMIT,
        "{:?}: {}",
        started.elapsed(),
        output.transcript()
    );
    assert_eq!(output.code, 0, "{}", output.transcript());
    output
}

/// No backend of ours is at work any more.
async fn nothing_runs(f: &Fixture) {
    let busy = "select count(*) from pg_stat_activity
                 where datname = current_database() and pid <> pg_backend_pid() and application_name = 'idemctl'
                   and state <> 'idle' and backend_type = 'client backend'";
    until("the server has stopped what was given up", async || {
        f.number(busy).await == 0
    })
    .await;
}

/// A batch that takes a minute.
async fn slow(f: &Fixture) {
    f.execute(
        "create function slow() returns trigger language plpgsql as
             $$ begin perform pg_sleep(60); return null; end $$;
         create trigger slow after delete on idempotency for each statement execute function slow()",
    )
    .await;
}

async fn deleting(f: &Fixture) {
    let deleting =
        "select count(*) from pg_stat_activity where state = 'active' and query like '%purge_range%'
                       and datname = current_database() and pid <> pg_backend_pid()";
    until("a batch is under way", async || f.number(deleting).await > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_middle_of_a_batch_that_takes_too_long() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(10, 48).await;
    slow(&f).await;
    let place = Place::new(&every_second("purge", ""));
    let daemon = place.janitor(&f.db.url).spawn();
    deleting(&f).await;
    let output = ends(daemon).await;
    assert!(
        output.stderr.contains("given up and rolled back"),
        "{}",
        output.transcript()
    );
    nothing_runs(&f).await;
    assert_eq!(f.number("select count(*) from idempotency").await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_database_that_fell_silent() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(10, 48).await;
    slow(&f).await;
    let proxy = Proxy::start(f.db.target()).await;
    let url = f.db.url_through(proxy.address.port()) + "?sslmode=disable";
    let place = Place::new(&every_second("purge", ""));
    let daemon = place.janitor(&url).spawn();
    deleting(&f).await;
    // Not even the request to cancel gets through.
    proxy.hold();
    ends(daemon).await;
    // What was held up arrives when the line is back: the end of the connection, or the request.
    proxy.release();
    nothing_runs(&f).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_connects_to_nobody() {
    let f = fixture().await;
    let proxy = Proxy::start(f.db.target()).await;
    let url = f.db.url_through(proxy.address.port()) + "?sslmode=disable";
    let place = Place::new(&every_second("expired", ""));
    let daemon = place.janitor(&url).spawn();
    place.told_until("READY=1").await;
    place.told_until("expired: last").await;
    proxy.hold();
    proxy.cut();
    // New connections are taken and nothing ever comes back on them.
    let seen = place.told_until("TROUBLE").await;
    assert!(!seen.is_empty());
    ends(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_provider_never_answers() {
    let f = fixture().await;
    f.execute(
        "insert into idempotency (client_id, key, fingerprint, locked_until, provider, order_id)
         values ('s', 'k', '', now() - interval '1 hour', 'acme', 'o')",
    )
    .await;
    let provider = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = provider.local_addr().unwrap();
    let place = Place::new(&format!(
        "{}[lease]\ndefault = \"10m\"\n[providers.acme]\nkind = \"http\"\nurl = \"http://{address}/{{order_id}}\"\n\
         timeout = \"5m\"\nfind = \"/data\"\nstatus = \"/status\"\nmatch = \"/id\"\nverdicts = {{ charged = [\"ok\"] }}\n",
        every_second("expired", "policy = \"reconcile\"\n")
    ));
    let daemon = place.janitor(&f.db.url).spawn();
    let _asked = provider.accept().await.unwrap();
    ends(daemon).await;
    nothing_runs(&f).await;
    assert_eq!(
        f.number("select count(*) from idempotency where status = 'in_progress'")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn while_idle_at_once() {
    let f = fixture().await;
    let place = Place::new(QUIET);
    let daemon = place.janitor(&f.db.url).spawn();
    place.told_until("no run yet, next").await;
    println!("idle janitor: {}", usage(daemon.pid()));
    ends(daemon).await;
    let ours = "select count(*) from pg_stat_activity
                 where datname = current_database() and application_name = 'idemctl' and pid <> pg_backend_pid()";
    // The fixture has one connection of ours.
    until("its connections are closed", async || f.number(ours).await <= 1).await;
}

/// Memory and processor time, for the reader of the test's output (`--nocapture`).
fn usage(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let rss = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = fields.split(' ').collect();
    format!(
        "{rss}; ticks of user time {} and of system time {} since its start",
        fields[11], fields[12]
    )
}
