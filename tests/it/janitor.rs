//! The daemon's loop on a real database, with a clock that the test sets.

mod blocked;
mod crontab;
mod dead;
mod restarts;
mod together;

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::DateTime;
use idemctl::connect::Settings;
use idemctl::janitor::clock::Clock;
use idemctl::janitor::schedule::{Schedule, zone};
use idemctl::janitor::service::{self, Event};
use idemctl::janitor::{Config, Job, Plan, run_once};
use idemctl::ops::actor::Actor;
use idemctl::ops::ask::Providers;
use idemctl::ops::expired::{self, Policy};
use idemctl::stop::{Stop, Stopper, channel};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::purge::{fixture, request};
use crate::support::{Proxy, settings};

fn schedule(line: &str) -> Schedule {
    Schedule::parse(line, zone("UTC").unwrap()).unwrap()
}

fn config(connection: Settings, purge: Option<&str>, expired: Option<&str>) -> Config {
    Config {
        providers: Arc::new(Providers::none()),
        rps: None,
        connection,
        schema: None,
        purge: purge.map(|line| Plan {
            schedule: schedule(line),
            request: request(),
        }),
        expired: expired.map(|line| Plan {
            schedule: schedule(line),
            request: expired::Request::new(Policy::Report, Actor::default()),
        }),
        jitter: Duration::ZERO,
    }
}

/// A clock that stands still until it is set.
fn clock() -> (Clock, Arc<AtomicI64>) {
    // 2026-11-29T02:59:59Z
    let seconds = Arc::new(AtomicI64::new(1_795_921_199));
    let read = Arc::clone(&seconds);
    let clock = Clock::new(move || DateTime::from_timestamp(read.load(Ordering::SeqCst), 0).unwrap());
    (clock, seconds)
}

/// A running janitor and what it tells.
struct Running {
    config: watch::Sender<Arc<Config>>,
    stopper: Stopper,
    events: mpsc::UnboundedReceiver<String>,
    seen: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<idemctl::error::Result<()>>,
}

impl Running {
    fn start(config: Config, clock: Clock) -> Self {
        let (config, receiver) = watch::channel(Arc::new(config));
        let (stopper, stop) = channel();
        let (send, events) = mpsc::unbounded_channel();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let observe = move |event: Event<'_>| {
                let text = match event {
                    Event::Looked { .. } => return,
                    Event::Scheduled { job, at } => format!("scheduled {job} {}", at.to_rfc3339()),
                    Event::Started { job } => format!("started {job}"),
                    Event::Finished { done } => format!("finished {} {done}", done.job()),
                    Event::NotRun { job, cause, .. } => format!("not run {job} {cause}"),
                    Event::Held { job, by, until } => format!("held {job} by {by} until {until}"),
                    Event::Lost { job, how } => format!("lost {job} {how}"),
                    _ => unreachable!("a new event"),
                };
                record.lock().unwrap().push(text.clone());
                let _ = send.send(text);
            };
            service::run(receiver, &clock, &stop, &observe).await
        });
        Self {
            config,
            stopper,
            events,
            seen,
            task,
        }
    }

    async fn wait_for(&mut self, part: &str) -> String {
        let search = async {
            loop {
                let event = self.events.recv().await.expect("the janitor runs");
                if event.contains(part) {
                    return event;
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(40), search).await;
        found.unwrap_or_else(|_| panic!("no {part:?} among {:?}", self.seen.lock().unwrap()))
    }

    fn count(&self, part: &str) -> usize {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .filter(|event| event.contains(part))
            .count()
    }

    async fn stop(self) {
        self.stopper.soft();
        tokio::time::timeout(Duration::from_secs(10), self.task)
            .await
            .expect("an end")
            .unwrap()
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_on_schedule_and_missed_runs_are_one() {
    let f = fixture().await;
    f.done(10, 48).await;
    let (clock, seconds) = clock();
    let mut janitor = Running::start(
        config(f.db.settings(), Some("0 3 * * *"), Some("*/5 * * * *")),
        clock,
    );
    assert!(
        janitor
            .wait_for("scheduled purge")
            .await
            .ends_with("2026-11-29T03:00:00+00:00")
    );
    // It sleeps a second by the clock that it read, then looks again: three days later.
    seconds.fetch_add(3 * 86_400, Ordering::SeqCst);
    janitor.wait_for("finished purge deleted 10 rows").await;
    let next = janitor.wait_for("scheduled purge").await;
    assert!(next.ends_with("2026-12-02T03:00:00+00:00"), "{next}");
    assert_eq!(
        janitor.count("finished purge"),
        1,
        "three missed nights are one run"
    );
    janitor.stop().await;
    assert_eq!(f.logged().await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_is_tried_again_and_its_table_too() {
    let f = fixture().await;
    f.done(10, 48).await;
    let proxy = Proxy::start(f.db.target()).await;
    proxy.refuse(true);
    let url = f.db.url_through(proxy.address.port()) + "?sslmode=disable";
    let every_second = config(settings(&url), Some("* * * * * *"), None);
    let mut janitor = Running::start(every_second, Clock::system());
    janitor.wait_for("not run purge").await;
    proxy.refuse(false);
    janitor.wait_for("finished purge deleted 10 rows").await;
    // A connection that was kept dies under it: the next run has another.
    proxy.cut();
    f.done(5, 48).await;
    janitor.wait_for("finished purge deleted 5 rows").await;
    f.execute("alter table idempotency rename to elsewhere").await;
    janitor.wait_for("finished purge").await;
    f.execute("alter table elsewhere rename to idempotency").await;
    f.done(3, 48).await;
    janitor.wait_for("finished purge deleted 3 rows").await;
    janitor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_configuration_is_taken_up_between_runs() {
    let f = fixture().await;
    f.done(10, 48).await;
    let (clock, _) = clock();
    let mut janitor = Running::start(config(f.db.settings(), Some("0 0 1 1 *"), None), clock);
    janitor.wait_for("scheduled purge 2027-01-01").await;
    janitor
        .config
        .send(Arc::new(config(
            f.db.settings(),
            Some("0 4 * * *"),
            Some("0 5 * * *"),
        )))
        .unwrap();
    let events = [
        janitor.wait_for("scheduled").await,
        janitor.wait_for("scheduled").await,
    ];
    assert!(
        events.iter().any(|e| e.contains("purge 2026-11-29T04:00")),
        "{events:?}"
    );
    assert!(
        events.iter().any(|e| e.contains("expired 2026-11-29T05:00")),
        "{events:?}"
    );
    janitor.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn once_runs_each_job_and_one_failure_does_not_hide_the_other() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let f = fixture().await;
    f.done(10, 48).await;
    f.execute("insert into idempotency (client_id, key, fingerprint, locked_until) values ('s', 'stuck', '', now() - interval '1 h')").await;
    let both = config(f.db.settings(), Some("@daily"), Some("@hourly"));
    let done = run_once(&both, &Stop::never()).await.unwrap().done;
    let text: Vec<String> = done
        .iter()
        .map(|done| format!("{}: {done}", done.job()))
        .collect();
    assert_eq!(
        text,
        ["purge: deleted 10 rows in 1 batches", "expired: 1 stuck rows"]
    );
    f.execute(
        "create function no() returns trigger language plpgsql as $$ begin raise exception 'never'; end $$;
               create trigger no before delete on idempotency for each row execute function no()",
    )
    .await;
    f.done(30, 48).await;
    let done = run_once(&both, &Stop::never()).await.unwrap().done;
    assert!(done[0].cause().unwrap().to_string().contains("never"), "{done:?}");
    assert_eq!((done[1].job(), done[1].cause().is_none()), (Job::Expired, true));
}
