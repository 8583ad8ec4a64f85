//! How many keys of which sort.

mod text;

use idemctl::ops::stats::{
    AGE_ENDS, Backlog, Count, Method, NameCount, Names, OldestExpired, Report, StateCount, Storage,
};
use idemctl::record::State;
use idemctl::time::Timestamp;
use serde::Serialize;

/// `stats -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct StatsView {
    schema: String,
    as_of: Timestamp,
    /// Whether any number was scaled up from a sample.
    estimated: bool,
    sample: Option<SampleView>,
    rows: Option<Count>,
    states: Vec<StateView>,
    taken_over: Option<Count>,
    /// Never known from the table.
    losers_share: Option<f64>,
    clients: Option<NamesView>,
    providers: Option<NamesView>,
    oldest_expired: Option<OldestView>,
    oldest_created_at: Option<Timestamp>,
    storage: Option<StorageView>,
    event_log: Option<StorageView>,
    backlog: BacklogView,
    unknown: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SampleView {
    rows: u64,
    percent_of_pages: f64,
}

#[derive(Debug, Serialize)]
struct StateView {
    state: &'static str,
    #[serde(flatten)]
    rows: Count,
    ages: Vec<AgeView>,
}

#[derive(Debug, Serialize)]
struct AgeView {
    /// Younger than this, and not younger than the bucket before; null for the rest.
    under_seconds: Option<u32>,
    count: u64,
    estimated: bool,
}

#[derive(Debug, Serialize)]
struct NamesView {
    /// How many there are altogether.
    known: u64,
    top: Vec<NameView>,
}

#[derive(Debug, Serialize)]
struct NameView {
    name: Option<String>,
    #[serde(flatten)]
    rows: Count,
    share: f64,
    expired: u64,
    taken_over: u64,
}

#[derive(Debug, Serialize)]
struct OldestView {
    client_id: String,
    key: String,
    provider: Option<String>,
    created_at: Timestamp,
    locked_until: Timestamp,
    over_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct StorageView {
    tables: u64,
    table_bytes: u64,
    index_bytes: u64,
    toast_bytes: u64,
    total_bytes: u64,
    dead_rows: u64,
    last_vacuum: Option<Timestamp>,
    last_autovacuum: Option<Timestamp>,
    last_analyze: Option<Timestamp>,
    last_autoanalyze: Option<Timestamp>,
    never_vacuumed: u64,
    never_analyzed: u64,
}

#[derive(Debug, Serialize)]
struct BacklogView {
    rows: Option<Count>,
    rate_per_second: Option<f64>,
    rate_source: Option<&'static str>,
    eta_seconds: Option<f64>,
}

impl From<Report> for StatsView {
    fn from(report: Report) -> Self {
        let Report {
            schema,
            as_of,
            method,
            rows,
            states,
            taken_over,
            clients,
            providers,
            oldest_expired,
            oldest,
            keys,
            events,
            backlog,
            unknown,
        } = report;
        let sample = match method {
            Method::Sampled { rows, percent } => Some(SampleView {
                rows,
                percent_of_pages: (percent * 10_000.0).round() / 10_000.0,
            }),
            Method::Counted | Method::NotCounted => None,
        };
        let all = rows.map_or(0, |rows| rows.count);
        Self {
            schema,
            as_of,
            estimated: sample.is_some(),
            sample,
            rows,
            states: states.into_iter().map(StateView::from).collect(),
            taken_over,
            losers_share: None,
            clients: clients.map(|names| NamesView::new(names, all)),
            providers: providers.map(|names| NamesView::new(names, all)),
            oldest_expired: oldest_expired.map(OldestView::from),
            oldest_created_at: oldest,
            storage: keys.map(StorageView::from),
            event_log: events.map(StorageView::from),
            backlog: backlog.into(),
            unknown,
        }
    }
}

impl From<StateCount> for StateView {
    fn from(count: StateCount) -> Self {
        let ages = count.ages.iter().enumerate().map(|(bucket, rows)| AgeView {
            under_seconds: AGE_ENDS.get(bucket).copied(),
            count: rows.count,
            estimated: rows.estimated,
        });
        Self {
            state: count.state.map_or("unknown", State::as_str),
            rows: count.rows,
            ages: ages.collect(),
        }
    }
}

impl NamesView {
    fn new(names: Names, all: u64) -> Self {
        let view = |count: NameCount| NameView {
            share: share(count.rows.count, all),
            name: count.name,
            rows: count.rows,
            expired: count.expired.count,
            taken_over: count.taken_over.count,
        };
        Self {
            known: names.known,
            top: names.top.into_iter().map(view).collect(),
        }
    }
}

impl From<OldestExpired> for OldestView {
    fn from(oldest: OldestExpired) -> Self {
        let OldestExpired {
            client_id,
            key,
            provider,
            created_at,
            locked_until,
            over_seconds,
        } = oldest;
        Self {
            client_id,
            key,
            provider,
            created_at,
            locked_until,
            over_seconds: over_seconds.map(tenths),
        }
    }
}

impl From<Storage> for StorageView {
    fn from(storage: Storage) -> Self {
        let Storage {
            tables,
            table_bytes,
            index_bytes,
            toast_bytes,
            total_bytes,
            dead_rows,
            last_vacuum,
            last_autovacuum,
            last_analyze,
            last_autoanalyze,
            never_vacuumed,
            never_analyzed,
        } = storage;
        Self {
            tables,
            table_bytes,
            index_bytes,
            toast_bytes,
            total_bytes,
            dead_rows,
            last_vacuum,
            last_autovacuum,
            last_analyze,
            last_autoanalyze,
            never_vacuumed,
            never_analyzed,
        }
    }
}

impl From<Backlog> for BacklogView {
    fn from(backlog: Backlog) -> Self {
        let source = if backlog.rate_given {
            "given"
        } else {
            "last_purges"
        };
        Self {
            rows: backlog.rows,
            rate_per_second: backlog.rate.map(tenths),
            rate_source: backlog.rate.map(|_| source),
            eta_seconds: backlog
                .seconds()
                .map(|seconds| (seconds * 1000.0).round() / 1000.0),
        }
    }
}

/// A part of the whole, to four digits behind the point.
#[expect(clippy::cast_precision_loss, reason = "a share need not be exact")]
fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    (part as f64 / all as f64 * 10_000.0).round() / 10_000.0
}

fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
