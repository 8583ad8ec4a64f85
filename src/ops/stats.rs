//! How many keys there are, of which sort and age, how much room they take, and how far the purge is behind.
//!
//! Cheap on a large table: rows in progress come from the partial index, counted up to [`COUNT_CAP`]; sizes and
//! housekeeping from the catalogue; everything else from one look at the rows. Up to [`WHOLE_BYTES`] of pages that
//! look is at all of them and exact, beyond it at a random sample of the pages (`TABLESAMPLE SYSTEM`, PostgreSQL
//! manual, SELECT, "TABLESAMPLE"), and each number that comes of it says that it is estimated. Needs no ANALYZE.
//!
//! What the table cannot tell: how many callers found a key taken (the losers). They leave no trace in it, and are a
//! metric of the service (`idemctl_reserve_total`). Takeovers do leave one: `attempt` is above 1.

mod report;

use std::time::Duration;

use crate::connect::{Connection, Tx};
use crate::error::{Error, Result};
use crate::ops::purge::Retention;
use crate::record::State;
use crate::store::Store;
use crate::store::doctor;
use crate::store::purge::Ttl;
use crate::store::stats::{By, NameRow, Sample, StateRow, StorageRow};
use crate::time::Timestamp;

pub use report::{Backlog, Count, Method, NameCount, Names, OldestExpired, Report, StateCount, Storage};

/// Up to this size of its pages, in bytes, a table is counted as a whole: 64 MiB.
pub const WHOLE_BYTES: u64 = 64 * 1024 * 1024;

/// How much of a larger table is read as a sample, in bytes: 16 MiB.
pub const SAMPLE_BYTES: u64 = 16 * 1024 * 1024;

/// Where counting the purge's backlog ends; beyond, the sample tells how long it is.
pub const BACKLOG_CAP: u64 = 100_000;

const UNREAD: &str =
    "rows by state, age, client and provider: not read without an exact count, as the size is unknown";

/// Where counting rows in progress ends.
pub const COUNT_CAP: u64 = 100_000;

/// Where the buckets of ages begin and end, in seconds: a minute, 10 minutes, 1, 6 and 24 hours, 7 days. There is one
/// bucket more than there are ends.
pub const AGE_ENDS: [u32; 6] = [60, 600, 3_600, 21_600, 86_400, 604_800];

/// What to count.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Count every row, however long that takes.
    pub exact: bool,
    /// How many clients and providers to name.
    pub top: u32,
    /// What the purge keeps, for its backlog.
    pub retention: Retention,
    /// Rows a second that a purge deletes, for the time that the backlog takes; by default what the last purges made.
    pub rate: Option<f64>,
}

impl Request {
    /// Checks the rate; [`Error::Invalid`] where it is no positive number.
    pub fn check(&self) -> Result<()> {
        match self.rate {
            Some(rate) if !(rate.is_finite() && rate > 0.0) => Err(Error::Invalid {
                field: "rate",
                reason: format!("is {rate}; give the rows that a purge deletes in a second, above 0"),
            }),
            _ => Ok(()),
        }
    }
}

/// Counts. Each part has the connection's time limit for itself; what does not end within it, or what the role may
/// not see, is left out and named in [`Report::unknown`].
pub async fn run(conn: &mut Connection, store: &Store, request: &Request) -> Result<Report> {
    request.check()?;
    let mut unknown = Vec::new();
    let keys = storage(conn, store, "idempotency", &mut unknown).await?;
    let events = storage(conn, store, "idempotency_event", &mut unknown).await?;
    let as_of = match &keys {
        Some(row) => row.now,
        None => doctor::clock(conn).await?,
    };
    let scale = Scale::of(request, keys.as_ref().map(|row| row.pages_bytes));
    let (live, expired) = in_progress(conn, store, &mut unknown).await?;
    let oldest_expired = part(conn, &mut unknown, "the oldest expired key", async |tx| {
        store.stats_oldest_expired(tx).await
    })
    .await?
    .flatten();
    let oldest = part(conn, &mut unknown, "the oldest key", async |tx| {
        store.purge_oldest(tx).await
    })
    .await?
    .flatten();
    let backlog = backlog(conn, store, request, &mut unknown).await?;
    let mut report = Report {
        schema: store.schema().to_owned(),
        as_of,
        method: Method::NotCounted,
        rows: None,
        states: [(State::InProgress, live), (State::Expired, expired)]
            .into_iter()
            .filter_map(|(state, rows)| {
                let state = Some(state);
                Some(StateCount {
                    state,
                    rows: rows?,
                    ages: Vec::new(),
                })
            })
            .collect(),
        taken_over: None,
        clients: None,
        providers: None,
        oldest_expired: oldest_expired.map(OldestExpired::from),
        oldest,
        keys: keys.as_ref().map(Storage::of),
        events: events.as_ref().map(Storage::of),
        backlog,
        unknown,
    };
    match scale {
        Some(scale) => rows(conn, store, request, scale, &mut report).await?,
        // A table of any size is not read as a whole without being asked for.
        None => report.unknown.push(UNREAD.to_owned()),
    }
    Ok(report)
}

/// How many rows stand for one that was read.
#[derive(Clone, Copy)]
struct Scale {
    sample: Option<Sample>,
}

impl Scale {
    /// Every row was read.
    const WHOLE: Self = Self { sample: None };

    /// `bytes`: of the pages, if known; `None` where it cannot be told how much of the table to read.
    fn of(request: &Request, bytes: Option<u64>) -> Option<Self> {
        if request.exact {
            return Some(Self::WHOLE);
        }
        let bytes = bytes?;
        if bytes <= WHOLE_BYTES {
            return Some(Self::WHOLE);
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "a share of pages need not be exact"
        )]
        let percent = (SAMPLE_BYTES as f64 * 100.0 / bytes as f64) as f32;
        let seed = f64::from(fastrand::u32(..));
        Some(Self {
            sample: Some(Sample { percent, seed }),
        })
    }

    fn up(self, rows: u64) -> Count {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate of a number that is not negative"
        )]
        let count = self.sample.map_or(rows, |sample| {
            (rows as f64 * 100.0 / f64::from(sample.percent)).round() as u64
        });
        Count {
            count,
            estimated: self.sample.is_some(),
            at_least: false,
        }
    }
}

/// One more than the limit tells "exactly so many" from "more".
fn cap(limit: u64) -> i64 {
    i64::try_from(limit + 1).unwrap_or(i64::MAX)
}

fn capped(rows: u64, limit: u64) -> Count {
    Count {
        count: rows.min(limit),
        estimated: false,
        at_least: rows > limit,
    }
}

/// Size and housekeeping of one of our tables, wherever its rows are; `None` where they could not be told.
async fn storage(
    conn: &mut Connection,
    store: &Store,
    table: &str,
    unknown: &mut Vec<String>,
) -> Result<Option<StorageRow>> {
    let what = format!("the size of {table}");
    let answer = part(conn, unknown, &what, async |tx| store.storage(tx, table).await).await?;
    let Some((row, gap)) = answer else {
        return Ok(None);
    };
    let Some(gap) = gap else {
        return Ok(Some(row));
    };
    if row.tables == 0 {
        unknown.push(format!("{what}: {gap}"));
        return Ok(None);
    }
    unknown.push(format!("{what}: {gap}; the rest is shown"));
    Ok(Some(row))
}

/// Rows in progress, alive and expired, from the partial index.
async fn in_progress(
    conn: &mut Connection,
    store: &Store,
    unknown: &mut Vec<String>,
) -> Result<(Option<Count>, Option<Count>)> {
    let live = part(conn, unknown, "keys in progress", async |tx| {
        store.stats_live(tx, cap(COUNT_CAP)).await
    })
    .await?;
    let expired = part(conn, unknown, "expired keys", async |tx| {
        store.stats_expired(tx, 0.0, cap(COUNT_CAP)).await
    })
    .await?;
    let count = |rows: Option<u64>| rows.map(|rows| capped(rows, COUNT_CAP));
    Ok((count(live), count(expired)))
}

/// What is due, and the pace of a purge.
async fn backlog(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    unknown: &mut Vec<String>,
) -> Result<Backlog> {
    let ttl = Ttl::new(request.retention.done, request.retention.failed);
    let due = part(conn, unknown, "the purge's backlog", async |tx| {
        store
            .purge_backlog(tx, ttl, cap(BACKLOG_CAP), Timestamp::NEG_INFINITY)
            .await
    })
    .await?;
    let rate = match request.rate {
        Some(rate) => Some(rate),
        None => part(conn, unknown, "the pace of the last purges", async |tx| {
            store.stats_purge_rate(tx).await
        })
        .await?
        .flatten(),
    };
    Ok(Backlog {
        rows: due.map(|due| capped(due, BACKLOG_CAP)),
        rate,
        rate_given: request.rate.is_some(),
    })
}

/// The look at the rows.
async fn rows(
    conn: &mut Connection,
    store: &Store,
    request: &Request,
    scale: Scale,
    report: &mut Report,
) -> Result<()> {
    let retention = &request.retention;
    let ttl = Ttl::new(retention.done, retention.failed);
    let ages: Vec<f64> = AGE_ENDS.iter().map(|end| f64::from(*end)).collect();
    let (sample, top) = (scale.sample, request.top);
    let states = part(conn, &mut report.unknown, "rows by state and age", async |tx| {
        store.stats_states(tx, ttl, &ages, sample).await
    })
    .await?;
    if let Some(states) = states {
        by_state(&states, scale, report);
    }
    let clients = part(conn, &mut report.unknown, "rows by client", async |tx| {
        store.stats_names(tx, By::Client, top, sample).await
    })
    .await?;
    report.clients = clients.map(|rows| names(rows, scale));
    let providers = part(conn, &mut report.unknown, "rows by provider", async |tx| {
        store.stats_names(tx, By::Provider, top, sample).await
    })
    .await?;
    report.providers = providers.map(|rows| names(rows, scale));
    Ok(())
}

/// Where the partial index has counted to the end, its number stands: it is exact and of the same moment or nearly.
fn by_state(found: &[StateRow], scale: Scale, report: &mut Report) {
    let sum = |of: &dyn Fn(&StateRow) -> u64| found.iter().map(of).sum::<u64>();
    let read = sum(&|row| row.found);
    report.method = match scale.sample {
        None => Method::Counted,
        Some(Sample { percent, .. }) => Method::Sampled {
            rows: read,
            percent: f64::from(percent),
        },
    };
    report.rows = Some(scale.up(read));
    report.taken_over = Some(scale.up(sum(&|row| row.again)));
    let due = scale.up(sum(&|row| row.due));
    // A sample that missed rows does not undo what was counted.
    if report
        .backlog
        .rows
        .is_none_or(|counted| counted.at_least && due.count > counted.count)
    {
        report.backlog.rows = Some(due);
    }
    let indexed = std::mem::take(&mut report.states);
    for state in State::ALL.map(Some).into_iter().chain([None]) {
        let word = state.map_or("unknown", State::as_str);
        let of_bucket = |bucket: Option<usize>| {
            sum(&|row| {
                let fits = row.state == word && bucket.is_none_or(|bucket| row.bucket == bucket);
                if fits { row.found } else { 0 }
            })
        };
        let known = indexed
            .iter()
            .find(|known| known.state == state)
            .map(|known| known.rows);
        let rows = match known {
            Some(known) if scale.sample.is_some() && !known.at_least => known,
            _ => scale.up(of_bucket(None)),
        };
        if state.is_some() || rows.count > 0 {
            let ages = (0..=AGE_ENDS.len())
                .map(|bucket| scale.up(of_bucket(Some(bucket))))
                .collect();
            report.states.push(StateCount { state, rows, ages });
        }
    }
}

fn names(rows: Vec<NameRow>, scale: Scale) -> Names {
    let known = rows.first().map_or(0, |row| row.names);
    let count = |row: NameRow| NameCount {
        name: row.name,
        rows: scale.up(row.found),
        expired: scale.up(row.expired),
        taken_over: scale.up(row.again),
    };
    Names {
        top: rows.into_iter().map(count).collect(),
        known,
    }
}

/// One question in a transaction of its own, so that the server keeps the time limit behind a pooler too.
///
/// `None`, with a line in `unknown`: it took too long, or the role may not see it.
pub(super) async fn part<T>(
    conn: &mut Connection,
    unknown: &mut Vec<String>,
    what: &str,
    work: impl AsyncFnOnce(&Tx<'_>) -> Result<T>,
) -> Result<Option<T>> {
    let limit = conn.timeouts().statement;
    let tx = conn.begin().await?;
    match work(&tx).await {
        Ok(answer) => {
            tx.commit().await?;
            Ok(Some(answer))
        }
        Err(error) => {
            let why = match error.sqlstate() {
                Some("57014") => format!("no answer within {}", show(limit)),
                Some("55P03") => "another session holds a lock on the table".to_owned(),
                Some("42501") => "this database role may not see it".to_owned(),
                _ if error.is_remote() => error.to_string(),
                _ => return Err(error),
            };
            tx.rollback().await?;
            unknown.push(format!("{what}: {why}"));
            Ok(None)
        }
    }
}

fn show(limit: Duration) -> String {
    crate::duration::format(limit)
}
