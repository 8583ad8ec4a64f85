//! Ending a key by hand: what is stored, what is refused, and who may say so.

mod crash;
mod input;
mod providers;
mod races;
mod replay;
mod two_persons;

use std::fmt::Write as _;

use serde_json::Value;

use crate::cli::fixture::{Cli, calm, filled, redactor};
use crate::support::{Output, idemctl};

const BODY: &str = r#"{"charge_id": "pay_77",  "card":"4242424242424242"}"#;

const EVIDENCE: &str = "bank statement 12, line 4";

/// A file in the fixture's directory; its path.
fn file(cli: &Cli, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = cli.dir.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

/// `idemctl resolve ARGS --evidence .. --reason .. --yes -o json` at a URL; code, report, everything.
async fn resolve_at(url: &str, args: &[&str]) -> (i32, Value, Output) {
    let rest = [
        "--evidence",
        EVIDENCE,
        "--reason",
        "ticket 7",
        "--yes",
        "-o",
        "json",
    ];
    let args = [&["resolve"], args, &rest].concat();
    let output = calm(idemctl(&args).on(url).run().await);
    let json = serde_json::from_str(&output.stdout).unwrap_or(Value::Null);
    (output.code, json, output)
}

async fn resolve(cli: &Cli, args: &[&str]) -> (i32, Value, Output) {
    resolve_at(&cli.db.url, args).await
}

/// State, status code and body of a row; empty when there is none.
async fn row(cli: &Cli, client: &str, key: &str) -> String {
    let query = "select concat_ws(' ', status, status_code, response) from idempotency
                  where client_id = $1 and key = $2";
    let row = cli.db.client.query_opt(query, &[&client, &key]).await.unwrap();
    row.map_or_else(String::new, |row| row.get(0))
}

/// Actions of the events of shop-9 order-1, oldest first.
async fn actions(cli: &Cli) -> String {
    cli.text(
        "select coalesce(string_agg(action, ' ' order by id), '') from idempotency_event
          where client_id = 'shop-9' and key = 'order-1'",
    )
    .await
}

/// The details of the newest event of that action.
async fn details(cli: &Cli, action: &str) -> Value {
    let text = cli
        .text(&format!(
            "select details::text from idempotency_event where action = '{action}' order by id desc limit 1"
        ))
        .await;
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn as_people_see_it() {
    let cli = filled().await;
    let body = file(&cli, "201.json", BODY);
    let why = ["--evidence", EVIDENCE, "--reason", "ticket 7"];
    let done = ["--done", "--status-code", "201", "--response", &body];
    let headers = [
        "X-Api-Token: hush",
        "content-type: application/json; charset=utf-8",
    ];
    let headers = headers.map(|header| ["--header", header]).concat();
    let done = [&["shop-9", "order-1"], &done[..], &headers].concat();
    let failed = vec!["shop-9", "order-2", "--failed"];
    let before = cli.everything().await;
    let mut all = String::new();
    for (args, more) in [
        (&done, &["--dry-run"][..]),
        (&done, &["--dry-run", "-o", "json"]),
        (&failed, &["--dry-run"]),
        (&done, &["--yes"]),
        (&done, &["--yes"]),
        (&failed, &["--yes", "-o", "json"]),
        (&vec!["shop-2", "order-9", "--failed"], &["--yes"]),
        (&vec!["shop-2", "never", "--failed"], &["--yes"]),
    ] {
        let output = cli.run(&[&["resolve"][..], args, &why, more].concat()).await;
        writeln!(
            all,
            "$ idemctl resolve {} {}\n{}",
            args[..3].join(" "),
            more.join(" "),
            output.transcript()
        )
        .unwrap();
        if more.contains(&"--dry-run") {
            assert_eq!(cli.everything().await, before, "a dry run changes nothing");
        }
    }
    insta::assert_snapshot!(redactor(&cli).redact(&all));
    assert_eq!(row(&cli, "shop-9", "order-1").await, format!("done 201 {BODY}"));
    let failed = row(&cli, "shop-9", "order-2").await;
    assert!(
        failed.starts_with("failed 500 {") && failed.contains("new idempotency key"),
        "{failed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_says_what_was_done_and_on_what_ground() {
    let cli = filled().await;
    let body = file(&cli, "201.json", BODY);
    let args = ["--done", "--status-code", "201", "--response", &body];
    resolve(&cli, &[&["shop-9", "order-1"], &args[..]].concat())
        .await
        .2
        .ok();
    assert_eq!(actions(&cli).await, "resolve");
    let event = cli.db.client.query_one(
        "select before->>'status', after->>'status', reason, os_user is not null and host is not null
           from idempotency_event where action = 'resolve'",
        &[],
    );
    let event = event.await.unwrap();
    let text = |column: usize| event.get::<_, String>(column);
    assert_eq!(
        [text(0), text(1), text(2)],
        ["in_progress", "done", "ticket 7"].map(str::to_owned)
    );
    assert!(event.get::<_, bool>(3));
    let details = details(&cli, "resolve").await;
    assert_eq!(details["evidence"], EVIDENCE);
    assert_eq!(details["body_bytes"], BODY.len());
    assert_eq!(details["status_code"], 201);
    assert_eq!(details["against_provider"], false);
    assert!(details["provider_says"]["why"].is_string(), "{details}");
    let stored = cli.text(
        "select encode(sha256(convert_to(response::text, 'UTF8')), 'hex') from idempotency
          where (client_id, key) = ('shop-9', 'order-1')",
    );
    assert_eq!(details["body_sha256"], stored.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_state_gets() {
    let cli = filled().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, status) values ('shop-3', 'odd', '', 'paused')",
    )
    .await;
    let stored = cli
        .text("select encode(sha256(convert_to(response::text, 'UTF8')), 'hex') from idempotency where key = 'order-7'")
        .await;
    let before = cli.everything().await;
    for (client, key, code, word) in [
        ("shop-2", "order-9", 4, "lease is alive"),
        ("shop-1", "order-7", 4, stored.as_str()),
        ("shop-2", "order-3", 4, "failed, 500 with"),
        ("shop-3", "odd", 4, "paused"),
        ("shop-2", "never", 3, "no key"),
    ] {
        for dry in [&[][..], &["--dry-run"]] {
            let (got, json, output) = resolve(&cli, &[&[client, key, "--failed"], dry].concat()).await;
            assert_eq!(got, code, "{}", output.transcript());
            assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
            if code == 4 {
                assert_eq!(json["result"], "refused");
                assert!(json["reason"].as_str().unwrap().contains(word), "{json}");
            }
            assert_eq!(cli.everything().await, before);
        }
    }
    let steal = resolve(&cli, &["shop-2", "order-9", "--failed", "--steal"]).await;
    assert_eq!(steal.0, 2, "a live lease is not taken away here");
}
