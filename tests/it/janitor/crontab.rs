//! Crontab lines against croniter (`PyPI`), another reading of the same words: the next 14 runs of each line in four
//! zones, from an ordinary day and across both changes of the clocks.

use chrono::{DateTime, Utc};
use idemctl::janitor::schedule::{Schedule, zone};
use serde_json::json;

use crate::support::{Run, installed, require_program};

/// Runs that are compared of each line.
const COUNT: usize = 14;

/// Lines of every form that is accepted.
const LINES: &[&str] = &[
    "* * * * *",
    "*/10 * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "15 * * * *",
    "5,35,55 * * * *",
    "10-20/5 * * * *",
    "0 */2 * * *",
    "30 */6 * * *",
    "0 0 * * *",
    "0 3 * * *",
    "30 2 * * *",
    "0 2 * * *",
    "15 1 * * *",
    "45 23 * * *",
    "0 1-4 * * *",
    "0,30 9-17 * * 1-5",
    "0 12 * * mon,wed,fri",
    "0 12 * * MON-FRI",
    "0 3 * * 0",
    "0 3 * * 7",
    "0 3 * * 5-7",
    "0 0 1 * *",
    "0 0 31 * *",
    "0 0 29 2 *",
    "0 0 1,15 * *",
    "0 6 1-7 * *",
    "0 0 1 jan,jul *",
    "0 0 * 2-4 *",
    "30 4 13 * 5",
    "0 0 1,15 * sun",
    "*/15 8-10 1-10/3 mar-may *",
    "*/20 * * * * *",
    "30 0 3 * * *",
    "0,15,45 59 23 * * 1",
    "@hourly",
    "@daily",
    "@weekly",
    "@monthly",
    "@yearly",
];

/// A zone, and times from which the lines are followed: an ordinary day, and half a day before each change.
const ZONES: &[(&str, [&str; 3])] = &[
    (
        "UTC",
        [
            "2026-11-29T12:34:56Z",
            "2027-02-28T12:00:00Z",
            "2027-12-31T12:00:00Z",
        ],
    ),
    (
        "Europe/Berlin",
        [
            "2026-11-29T12:34:56Z",
            "2027-03-27T13:00:00Z",
            "2027-10-30T13:00:00Z",
        ],
    ),
    (
        "America/New_York",
        [
            "2026-11-29T12:34:56Z",
            "2027-03-13T19:00:00Z",
            "2027-11-06T19:00:00Z",
        ],
    ),
    (
        "Australia/Lord_Howe",
        [
            "2026-11-29T12:34:56Z",
            "2027-04-03T03:00:00Z",
            "2027-10-02T03:00:00Z",
        ],
    ),
];

/// Where croniter has one run that we do not: line, zone, that run.
///
/// A line whose minute or hour begins with `*` follows real time in Vixie cron (and here): a time that the change skips
/// is no time. croniter moves it behind the gap.
///
/// Any other line names times on the wall, and a time that comes twice runs the first time only, so that a nightly job
/// is not run twice. croniter runs it both times.
const THEIRS_ALONE: &[(&str, &str, &str)] = &[
    ("0 */2 * * *", "Europe/Berlin", "2027-03-28T03:00:00+02:00"),
    ("0 */2 * * *", "America/New_York", "2027-03-14T03:00:00-04:00"),
    ("0 */2 * * *", "Australia/Lord_Howe", "2027-10-03T02:30:00+11:00"),
    ("30 2 * * *", "Europe/Berlin", "2027-10-31T02:30:00+01:00"),
    ("0 2 * * *", "Europe/Berlin", "2027-10-31T02:00:00+01:00"),
    ("15 1 * * *", "America/New_York", "2027-11-07T01:15:00-05:00"),
    ("0 1-4 * * *", "Europe/Berlin", "2027-10-31T02:00:00+01:00"),
    ("0 1-4 * * *", "America/New_York", "2027-11-07T01:00:00-05:00"),
];

/// Seconds since 1970 of every line's runs as croniter has them.
async fn ask_croniter(cases: &[(&str, &str, DateTime<Utc>)]) -> Vec<Vec<i64>> {
    let asked: Vec<_> = cases
        .iter()
        .map(|(line, zone, after)| json!({"line": line, "zone": zone, "after": after.timestamp(), "count": COUNT}))
        .collect();
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/it/janitor/peers/croniter_runs.py"
    );
    let python = require_program("python3", "python3");
    let answer = Run::new(&python.to_string_lossy(), &[script])
        .env("PYTHONPATH", installed("croniter/modules").to_string_lossy())
        .stdin(serde_json::to_vec(&asked).unwrap())
        .run()
        .await
        .ok();
    serde_json::from_str(&answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn crontab_lines_mean_what_croniter_says() {
    let mut cases = Vec::new();
    for line in LINES {
        for (zone, starts) in ZONES {
            cases.extend(starts.iter().map(|start| (*line, *zone, start.parse().unwrap())));
        }
    }
    let theirs = ask_croniter(&cases).await;
    assert_eq!(theirs.len(), cases.len());
    let (mut differ, mut alone) = (Vec::new(), Vec::new());
    for ((line, name, after), mut theirs) in cases.iter().zip(theirs) {
        let ours = Schedule::parse(line, zone(name).unwrap())
            .unwrap()
            .upcoming(*after, COUNT);
        let ours: Vec<i64> = ours.iter().map(DateTime::timestamp).collect();
        if ours == theirs {
            continue;
        }
        let show = |at: &i64| {
            let at = DateTime::from_timestamp(*at, 0).unwrap();
            at.with_timezone(&zone(name).unwrap()).to_rfc3339()
        };
        let extra = theirs.iter().position(|at| !ours.contains(at));
        let extra = extra.map(|extra| show(&theirs.remove(extra)));
        let known = extra.as_deref().map(|extra| (*line, *name, extra));
        match THEIRS_ALONE.iter().find(|case| Some(**case) == known) {
            Some(case) if ours[..COUNT - 1] == theirs => alone.push(*case),
            _ => differ.push(format!(
                "{line} {name} {after}: theirs {extra:?} {:?}, ours {:?}",
                theirs.iter().map(show).collect::<Vec<_>>(),
                ours.iter().map(show).collect::<Vec<_>>(),
            )),
        }
    }
    assert!(
        differ.is_empty(),
        "{} of {} differ:\n{}",
        differ.len(),
        cases.len(),
        differ.join("\n")
    );
    alone.sort_unstable();
    let mut all = THEIRS_ALONE.to_vec();
    all.sort_unstable();
    assert_eq!(alone, all, "each difference that is listed is still there");
}
