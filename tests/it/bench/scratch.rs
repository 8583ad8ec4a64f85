//! The scratch schema: made, and gone again, however the run ends.

use nix::sys::signal::Signal;

use super::schemas;
use crate::support::{Redactor, database, idemctl, until};

const SHORT: [&str; 11] = [
    "bench",
    "--duration",
    "400ms",
    "--keys",
    "500",
    "--clients",
    "4",
    "--pool",
    "4",
    "--scenario",
    "claim",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SHORT.iter().chain(more).copied().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn its_json_has_this_shape() {
    let db = database().await;
    let args = with(&[
        "--scenario",
        "takeover",
        "--strategy",
        "lease",
        "--strategy",
        "naive",
        "--strategy",
        "lease",
        "--scratch",
        "scratch",
        "-o",
        "json",
    ]);
    let output = idemctl(&args).on(&db.url).run().await;
    assert!(
        output.stderr.contains("dropped at the end"),
        "{}",
        output.transcript()
    );
    let json: serde_json::Value = serde_json::from_str(&output.ok()).unwrap();
    let text = serde_json::to_string_pretty(&json).unwrap();
    let numbers = Redactor::new()
        .pattern(r#"("(p50|p95|p99|max)_seconds": )[0-9.e-]+"#, "${1}[seconds]")
        .pattern(r#"("server_version": )"[^"]*""#, "${1}\"[version]\"")
        .pattern(r#"("warnings": \[)[^\]]*\]"#, "${1}]")
        .pattern(
            r#"("(answers|worked|per_second|ratio\w*|pool_saturated|wal_bytes_per_answer)": )[0-9.]+"#,
            "${1}[figure]",
        );
    insta::assert_snapshot!(numbers.redact(&text));
    assert!(schemas(&db).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn people_get_tables_and_programs_get_csv() {
    let db = database().await;
    let table = idemctl(&with(&["--strategy", "lease"]))
        .on(&db.url)
        .run()
        .await
        .ok();
    for part in ["claim: a new key", "STRATEGY", "OF FLOOR", "INSERT", "lease", "█"] {
        assert!(table.contains(part), "{table}");
    }
    let csv = idemctl(&with(&["--strategy", "lease", "-o", "csv"]))
        .on(&db.url)
        .run()
        .await
        .ok();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(lines[1].starts_with("claim,INSERT,true,"), "{csv}");
    assert!(lines[2].starts_with("claim,lease,false,"), "{csv}");
    let columns = |line: &str| line.split(',').count();
    assert!(
        lines.iter().all(|line| columns(line) == columns(lines[0])),
        "{csv}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_exists_is_refused_and_left_alone() {
    let db = database().await;
    db.client
        .batch_execute("create schema mine; create table mine.idempotency (precious text)")
        .await
        .unwrap();
    let output = idemctl(&with(&["--scratch", "mine"])).on(&db.url).run().await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    assert!(
        output.stderr.contains("\"mine\" already exists"),
        "{}",
        output.transcript()
    );
    db.client
        .query("select precious from mine.idempotency", &[])
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_and_drops_the_schema() {
    for (signal, again) in [
        (Signal::SIGINT, false),
        (Signal::SIGTERM, false),
        (Signal::SIGINT, true),
    ] {
        let db = database().await;
        // The work outlasts the test, unless the signal cuts it short.
        let args = [
            "bench",
            "--duration",
            "1h",
            "--keys",
            "500",
            "--clients",
            "4",
            "--pool",
            "4",
            "--scenario",
            "claim",
            "--strategy",
            "unique",
            "--scratch",
            "scratch",
            "--work",
            "10s",
            "-o",
            "json",
        ];
        let mut bench = idemctl(&args).on(&db.url).spawn();
        bench.wait_for_line("made the scratch schema").await;
        // Before the table is there, nobody is at work.
        let working = "select count(*) from scratch.idempotency where client_id = 'bench-new'";
        until("the clients are at work", async || {
            let count = db.client.query_one(working, &[]).await;
            count.is_ok_and(|row| row.get::<_, i64>(0) == 4)
        })
        .await;
        bench.signal(signal);
        if again {
            bench.signal(signal);
        }
        let output = bench.wait().await;
        assert_eq!(output.code, 130, "{}", output.transcript());
        assert!(
            output.stderr.contains("error: interrupted"),
            "{}",
            output.transcript()
        );
        assert!(schemas(&db).await.is_empty(), "{}", output.transcript());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_run_left_is_named_and_not_touched() {
    let db = database().await;
    let args = [
        "bench",
        "--duration",
        "1h",
        "--keys",
        "500",
        "--scratch",
        "left-over",
    ];
    let mut bench = idemctl(&args).on(&db.url).spawn();
    bench.wait_for_line("made the scratch schema").await;
    bench.kill9().await;
    // Also one that is called so and was not made by us: nobody's business.
    db.client
        .batch_execute("create schema idemctl_bench_mine")
        .await
        .unwrap();
    let output = idemctl(&with(&["--strategy", "lease"])).on(&db.url).run().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(
        output.stderr.contains("drop schema \"left-over\" cascade"),
        "{}",
        output.transcript()
    );
    assert!(
        !output.stderr.contains("idemctl_bench_mine"),
        "{}",
        output.transcript()
    );
    assert_eq!(schemas(&db).await, ["idemctl_bench_mine", "left-over"]);
    // As told.
    db.client
        .batch_execute("drop schema \"left-over\" cascade")
        .await
        .unwrap();
}
