use chrono::SecondsFormat;
use croner::parser::{CronParser, Seconds};

use super::*;

fn schedule(line: &str, zone: Tz) -> Schedule {
    Schedule::parse(line, zone).unwrap()
}

fn utc(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// The next runs in the zone's own time, with offset.
fn runs(line: &str, zone: Tz, after: &str, count: usize) -> Vec<String> {
    let runs = schedule(line, zone).upcoming(utc(after), count);
    runs.iter()
        .map(|run| run.to_rfc3339_opts(SecondsFormat::Secs, true))
        .collect()
}

fn problem(line: &str) -> String {
    Schedule::parse(line, Tz::UTC).unwrap_err().to_string()
}

#[test]
fn sunday_is_0_and_7_and_a_name() {
    // 2026-11-29 is a Sunday.
    for line in [
        "0 3 * * 0",
        "0 3 * * 7",
        "0 3 * * sun",
        "0 3 * * SUN",
        "0 0 3 * * 7",
    ] {
        assert_eq!(
            runs(line, Tz::UTC, "2026-11-28T12:00:00Z", 1),
            ["2026-11-29T03:00:00Z"],
            "{line}"
        );
    }
    let week = runs("0 3 * * 1-5", Tz::UTC, "2026-11-28T12:00:00Z", 6);
    assert_eq!(week[0], "2026-11-30T03:00:00Z", "1 is Monday");
    assert_eq!(week[5], "2026-12-07T03:00:00Z", "after Friday comes Monday");
    let end = runs("0 3 * * sat-sun", Tz::UTC, "2026-11-27T12:00:00Z", 3);
    assert_eq!(
        end,
        [
            "2026-11-28T03:00:00Z",
            "2026-11-29T03:00:00Z",
            "2026-12-05T03:00:00Z"
        ]
    );
    assert_eq!(end, runs("0 3 * * 6-7", Tz::UTC, "2026-11-27T12:00:00Z", 3));
}

#[test]
fn either_day_field_matches_when_both_are_given() {
    let days = runs("0 0 13 * fri", Tz::UTC, "2026-11-12T12:00:00Z", 4);
    // The 13th of November 2026 is a Friday, the 13th of December is not.
    assert_eq!(
        days,
        [
            "2026-11-13T00:00:00Z",
            "2026-11-20T00:00:00Z",
            "2026-11-27T00:00:00Z",
            "2026-12-04T00:00:00Z"
        ]
    );
    let december = runs("0 0 13 12 fri", Tz::UTC, "2026-12-12T12:00:00Z", 1);
    assert_eq!(december, ["2026-12-13T00:00:00Z"]);
}

#[test]
fn seconds_come_first_in_six_fields() {
    let quick = runs("*/20 * * * * *", Tz::UTC, "2026-11-29T10:00:05Z", 3);
    assert_eq!(
        quick,
        [
            "2026-11-29T10:00:20Z",
            "2026-11-29T10:00:40Z",
            "2026-11-29T10:01:00Z"
        ]
    );
    let at = "2026-11-29T10:00:00.5Z";
    assert_eq!(
        runs("* * * * * *", Tz::UTC, at, 1),
        ["2026-11-29T10:00:01Z"],
        "strictly after"
    );
}

#[test]
fn what_is_wrong_impossible_or_ambiguous_is_refused_with_its_field() {
    for (line, part) in [
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("60 * * * *", "minute \"60\""),
        ("* 24 * * *", "hour \"24\""),
        ("* * 0 * *", "day of month \"0\""),
        ("* * * 13 *", "month \"13\""),
        ("* * * * 8", "day of week \"8\""),
        ("61 * * * * *", "second \"61\""),
        ("-5 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("+1 * * * *", "minute"),
        ("*/0 * * * *", "the step is 0"),
        ("*/90 * * * *", "the step 90"),
        ("5/15 * * * *", "read differently"),
        ("* 22-2 * * *", "runs backwards"),
        ("* * * foo *", "such as feb"),
        ("* * L * *", "day of month"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
        ("0 0 */2 * 1", "read as \"and\""),
        ("0 0 1 * */2", "read as \"and\""),
        ("@reboot", "is not one of"),
        ("", "has 0 fields"),
    ] {
        let said = problem(line);
        assert!(
            said.starts_with("schedule ") && said.contains(part),
            "{line}: {said}"
        );
    }
    assert!(zone("Mars/Olympus").is_err());
    assert_eq!(
        runs("0 0 29 2 *", Tz::UTC, "2026-11-29T00:00:00Z", 1),
        ["2028-02-29T00:00:00Z"]
    );
    assert_eq!(
        runs("0 0 30 2 mon", Tz::UTC, "2027-01-01T00:00:00Z", 1),
        ["2027-02-01T00:00:00Z"]
    );
}

#[test]
fn a_skipped_time_runs_once_right_after_the_gap() {
    let berlin = zone("Europe/Berlin").unwrap();
    let days = runs("30 2 * * *", berlin, "2027-03-27T00:00:00Z", 3);
    assert_eq!(
        days,
        [
            "2027-03-27T02:30:00+01:00",
            "2027-03-28T03:00:00+02:00",
            "2027-03-29T02:30:00+02:00"
        ]
    );
    // Several skipped times, and one at the gap's end, are one run.
    let both = runs("0,30 2,3 * * *", berlin, "2027-03-28T00:30:00Z", 3);
    assert_eq!(
        both,
        [
            "2027-03-28T03:00:00+02:00",
            "2027-03-28T03:30:00+02:00",
            "2027-03-29T02:00:00+02:00"
        ]
    );
    let york = zone("America/New_York").unwrap();
    assert_eq!(
        runs("0 2 * * *", york, "2027-03-14T00:00:00-05:00", 1),
        ["2027-03-14T03:00:00-04:00"]
    );
}

#[test]
fn a_doubled_time_runs_once_when_named_and_twice_in_real_time() {
    let berlin = zone("Europe/Berlin").unwrap();
    let daily = runs("30 2 * * *", berlin, "2026-10-24T12:00:00Z", 2);
    assert_eq!(daily, ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]);
    // Also when asked from within the second pass.
    assert_eq!(
        runs("45 2 * * *", berlin, "2026-10-25T01:30:00Z", 1),
        ["2026-10-26T02:45:00+01:00"]
    );
    let half_hours = runs("*/30 * * * *", berlin, "2026-10-24T23:45:00Z", 5);
    assert_eq!(
        half_hours,
        [
            "2026-10-25T02:00:00+02:00",
            "2026-10-25T02:30:00+02:00",
            "2026-10-25T02:00:00+01:00",
            "2026-10-25T02:30:00+01:00",
            "2026-10-25T03:00:00+01:00",
        ]
    );
    // A real-time line on one date meets the second pass although the next match lies a year ahead.
    let dated = runs("*/30 2 25 10 *", berlin, "2026-10-25T00:45:00Z", 2);
    assert_eq!(dated, ["2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00"]);
    // Lord Howe's clocks change by half an hour only.
    let howe = zone("Australia/Lord_Howe").unwrap();
    assert_eq!(
        runs("15 2 * * *", howe, "2026-10-03T12:00:00Z", 1),
        ["2026-10-04T02:30:00+11:00"]
    );
}

/// Lists and ranges of hours across a change of the clocks are left out: there the other library follows real
/// time, and Vixie cron and we do not.
#[test]
fn agrees_with_another_reading_of_crontab() {
    let lines = [
        "*/10 * * * *",
        "* * * * *",
        "7 * * * *",
        "30 2 * * *",
        "15 4-6 * * *",
        "0 */2 * * *",
        "0 0 1 * *",
        "0 3 * * 1-5",
        "0 3 * * 7",
        "30 1 13 * 5",
        "0 0 29 2 *",
        "5 4 * jan-mar sun",
    ];
    let parser = CronParser::builder().seconds(Seconds::Optional).build();
    for name in ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
        let zone = zone(name).unwrap();
        for line in lines {
            let (ours, theirs) = (schedule(line, zone), parser.parse(line).unwrap());
            let end = utc("2028-12-01T00:00:00Z");
            // Frequent lines only around the changes of the clocks, the others for two years.
            let frequent = line.starts_with('*');
            let starts: &[&str] = if frequent {
                &[
                    "2026-10-03T10:00:00Z",
                    "2026-10-24T20:00:00Z",
                    "2026-11-01T00:00:00Z",
                    "2027-03-14T00:00:00Z",
                    "2027-03-27T20:00:00Z",
                    "2027-04-03T10:00:00Z",
                ]
            } else {
                &["2026-09-01T00:00:00Z"]
            };
            for start in starts {
                let mut at = utc(start);
                for _ in 0..if frequent { 2_000 } else { 1_500 } {
                    let run = ours.next_after(at).unwrap();
                    let their = theirs
                        .find_next_occurrence(&at.with_timezone(&zone), false)
                        .unwrap();
                    assert_eq!(run, their.to_utc(), "{line} in {name} after {at}");
                    if run > end {
                        break;
                    }
                    at = run;
                }
            }
        }
    }
}
