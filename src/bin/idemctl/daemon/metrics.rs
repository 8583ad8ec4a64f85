//! The text of `/metrics`: made anew from the status and the table's gauges at each scrape.
//!
//! The label is `janitor_job`, not `job`, which Prometheus gives to the target itself. Nothing of a row is shown:
//! neither clients nor keys.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use chrono::{DateTime, Utc};
use idemctl::janitor::progress::Pulses;
use idemctl::janitor::status::{
    ERROR_KINDS, EXPIRED_OUTCOMES, JobStatus, Outcome, RECONCILE_OUTCOMES, Status,
};
use idemctl::janitor::{Config, Job};
use idemctl::ops::gauges::{Count, Gauges, JobGauges, Question};
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::plan::{interval, missed};

/// The type that the text is served as.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, &'static str)>;
type Gauges64 = Family<Labels, Gauge<f64, AtomicU64>>;

/// What is shown.
pub(super) struct Snapshot<'a> {
    pub(super) status: &'a Status,
    pub(super) config: &'a Config,
    pub(super) pulses: &'a Pulses,
    /// `None`: the database does not answer.
    pub(super) table: Option<&'a Gauges>,
    pub(super) now: DateTime<Utc>,
}

/// The text.
pub(super) fn text(snapshot: &Snapshot<'_>) -> Result<String, std::fmt::Error> {
    let mut page = Page(Registry::with_prefix("idemctl"));
    page.process(snapshot);
    page.jobs(snapshot);
    page.work(snapshot.status);
    if let Some(table) = snapshot.table {
        page.table(table, snapshot);
    }
    let mut text = String::new();
    text::encode(&mut text, &page.0)?;
    Ok(text)
}

struct Page(Registry);

impl Page {
    fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        let family = Gauges64::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value);
        }
        self.0.register(name, help, family);
    }

    fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) {
        self.gauges(name, help, value.map(|value| (Labels::new(), value)));
    }

    /// The name goes without `_total`, which the encoder adds.
    fn counters(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        self.0.register(name, help, family);
    }

    fn process(&mut self, snapshot: &Snapshot<'_>) {
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        self.gauges("build_info", "The version that runs", [(version, 1.0)]);
        self.gauge(
            "start_timestamp_seconds",
            "When this process started",
            Some(seconds(snapshot.status.since)),
        );
        self.gauge(
            "database_up",
            "Whether the database answered within the last 15 s",
            Some(truth(snapshot.table.is_some())),
        );
    }

    fn jobs(&mut self, snapshot: &Snapshot<'_>) {
        let status = |job| snapshot.status.of(job);
        let configured: Vec<Job> = Job::ALL
            .into_iter()
            .filter(|job| snapshot.config.schedule(*job).is_some())
            .collect();
        let each = |value: &dyn Fn(Job) -> Option<f64>| -> Vec<(Labels, f64)> {
            let labelled = configured.iter().map(|job| Some((of(*job), value(*job)?)));
            labelled.flatten().collect()
        };
        self.gauges(
            "janitor_next_run_timestamp_seconds",
            "When the next run is planned",
            each(&|job| status(job).next.map(seconds)),
        );
        self.gauges(
            "janitor_interval_seconds",
            "The longest time between two of the next planned runs",
            each(&|job| Some(interval(snapshot.config.schedule(job)?, snapshot.now)?.as_secs_f64())),
        );
        self.gauges(
            "janitor_running",
            "Whether a run is under way",
            each(&|job| Some(truth(status(job).running.is_some()))),
        );
        self.gauges(
            "janitor_leader",
            "Whether this process ran the job last, as far as it knows: 0 where another one did; absent before any run",
            each(&|job| status(job).ours.map(truth)),
        );
        self.gauges(
            "janitor_trouble",
            "Whether the last run failed, or none could begin",
            each(&|job| Some(truth(status(job).trouble.is_some()))),
        );
        self.gauges(
            "janitor_overdue_seconds",
            "For how long the job's loop has made no progress beyond what its longest step may take",
            each(&|job| {
                Some(
                    snapshot
                        .pulses
                        .of(job)
                        .overdue()
                        .unwrap_or_default()
                        .as_secs_f64(),
                )
            }),
        );
        // From the start, so that the first of its kind is an increase.
        let runs = configured.iter().flat_map(|job| {
            Outcome::ALL.map(|outcome| {
                let labels = vec![("janitor_job", job.as_str()), ("outcome", outcome.as_str())];
                (labels, status(*job).runs.get(&outcome).copied().unwrap_or(0))
            })
        });
        self.counters(
            "janitor_runs",
            "Runs by their outcome: done, partial, failed, interrupted, not_run (could not begin)",
            runs,
        );
        let errors = configured.iter().flat_map(|job| {
            ERROR_KINDS.map(|kind| {
                let labels = vec![("janitor_job", job.as_str()), ("kind", kind)];
                (labels, status(*job).errors.get(kind).copied().unwrap_or(0))
            })
        });
        self.counters(
            "janitor_errors",
            "Errors that ended a run or kept it from beginning",
            errors,
        );
    }

    fn work(&mut self, status: &Status) {
        let JobStatus { counts: purge, .. } = status.of(Job::Purge);
        let one = |value| [(Labels::new(), value)];
        self.counters(
            "purge_deleted_keys",
            "Keys that the purge deleted",
            one(purge.deleted),
        );
        self.counters(
            "purge_batches",
            "Batches that deleted something",
            one(purge.batches),
        );
        self.counters(
            "purge_skipped_keys",
            "Due keys that the purge stepped over: locked, or refused by the table",
            one(purge.skipped),
        );
        self.counters(
            "purge_deleted_events",
            "Old events that the purge deleted",
            one(purge.events_deleted),
        );
        let JobStatus { counts, .. } = status.of(Job::Expired);
        let by_outcome =
            |names: &[&'static str], values: &BTreeMap<&'static str, u64>| -> Vec<(Labels, u64)> {
                let labelled = names.iter().map(|name| {
                    let count = values.get(name).copied().unwrap_or(0);
                    (vec![("outcome", *name)], count)
                });
                labelled.collect()
            };
        self.counters(
            "expired",
            "Stuck keys by what the policies fail and release made of them",
            by_outcome(&EXPIRED_OUTCOMES, &counts.expired),
        );
        self.counters(
            "reconcile",
            "Stuck keys by what the policy reconcile made of them",
            by_outcome(&RECONCILE_OUTCOMES, &counts.reconciled),
        );
    }

    fn table(&mut self, table: &Gauges, snapshot: &Snapshot<'_>) {
        let failed = Question::ALL.map(|question| {
            let labels = vec![("question", question.as_str())];
            (labels, truth(table.has_failed(question)))
        });
        self.gauges(
            "gauges_failed",
            "1 for a question about the table that was not answered: its metrics are absent",
            failed,
        );
        self.leases(table);
        self.backlog(table, snapshot);
        self.successes(table, snapshot);
        self.gauges(
            "recent_keys",
            "The newest 10000 keys by state",
            table
                .recent
                .into_iter()
                .flatten()
                .map(|(state, count)| (vec![("state", state)], float(count))),
        );
        self.gauge(
            "keys_estimate",
            "All keys, as the planner estimates; absent before the table is analyzed",
            table.estimate,
        );
    }

    fn leases(&mut self, table: &Gauges) {
        let by_state = [
            ("in_progress", table.in_progress),
            ("expired", table.expired.map(|expired| expired.all)),
        ];
        let states = |value: fn(Count) -> f64| {
            let known = by_state.into_iter();
            known.filter_map(move |(state, count)| Some((vec![("state", state)], value(count?))))
        };
        self.gauges(
            "keys",
            "Keys in progress by the state of their lease, counted up to 10000",
            states(rows),
        );
        self.gauges(
            "keys_capped",
            "Whether counting ended at 10000: there are more",
            states(capped),
        );
        self.gauge(
            "stuck_keys",
            "Keys whose lease ended more than [janitor.expired] older_than ago, counted up to 10000",
            table.expired.map(|expired| rows(expired.stuck)),
        );
        self.gauge(
            "oldest_expired_seconds",
            "Time since the oldest lease ended; absent if none is over",
            table.expired.and_then(|expired| expired.oldest_seconds),
        );
    }

    fn backlog(&mut self, table: &Gauges, snapshot: &Snapshot<'_>) {
        let oldest = table.backlog.and_then(|backlog| backlog.oldest_seconds);
        self.gauge(
            "purge_backlog_keys",
            "Keys that are due for the purge, among the oldest 10000",
            table.backlog.map(|backlog| rows(backlog.due)),
        );
        self.gauge(
            "purge_backlog_capped",
            "Whether counting ended at the oldest 10000: there may be more",
            table.backlog.map(|backlog| capped(backlog.due)),
        );
        self.gauge(
            "purge_backlog_oldest_seconds",
            "Time since the oldest of them became due; absent if none is",
            oldest,
        );
        self.gauge(
            "purge_backlog_overdue_seconds",
            "Time since the second planned purge after the oldest of them became due; 0 before that",
            table.backlog.and_then(|_| {
                // Nothing is due: nothing is late.
                missed(
                    snapshot.config.schedule(Job::Purge)?,
                    snapshot.now,
                    oldest.unwrap_or(0.0),
                )
            }),
        );
    }

    fn successes(&mut self, table: &Gauges, snapshot: &Snapshot<'_>) {
        let by_job = |value: &dyn Fn(Job, &JobGauges) -> Option<f64>| -> Vec<(Labels, f64)> {
            let known = table.jobs.iter().flatten();
            let labelled = known.map(|gauges| {
                let job = Job::ALL.into_iter().find(|job| job.as_str() == gauges.job)?;
                Some((of(job), value(job, gauges)?))
            });
            labelled.flatten().collect()
        };
        self.gauges(
            "janitor_last_success_timestamp_seconds",
            "When a run last came to its end, whichever process made it; absent if none ever did",
            by_job(&|_, job| job.last_success),
        );
        self.gauges(
            "janitor_since_success_seconds",
            "Time since then; since a janitor first saw the job if none ever did",
            by_job(&|_, job| Some(job.since_success)),
        );
        self.gauges(
            "janitor_missed_seconds",
            "Time since the second planned run after the last success; 0 before that",
            by_job(&|job, gauges| missed(snapshot.config.schedule(job)?, snapshot.now, gauges.since_success)),
        );
    }
}

fn of(job: Job) -> Labels {
    vec![("janitor_job", job.as_str())]
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

fn rows(count: Count) -> f64 {
    float(count.rows)
}

fn capped(count: Count) -> f64 {
    truth(count.capped)
}

/// Exact: the counts end at 10,000.
fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn seconds(at: DateTime<Utc>) -> f64 {
    // Exact: some 10^12 milliseconds need 41 of 53 bits.
    #[expect(
        clippy::cast_precision_loss,
        reason = "milliseconds of this age are exact in f64"
    )]
    let millis = at.timestamp_millis() as f64;
    millis / 1000.0
}
