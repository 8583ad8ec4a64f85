//! `idemctl history`.

use std::collections::HashSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::fixture::{Cli, cli, filled, redactor, without_widths};

/// One event of each kind, besides the two of the fixture.
const EVENTS: &str = r#"
insert into idempotency_event (client_id, key, action, os_user, host, reason, before, after, details, at) values
 ('shop-1', 'order-1', 'fail', 'carol', 'ops-1', 'ticket 4', '{"status": "in_progress", "status_code": null}',
  '{"status": "failed", "status_code": 500}',
  '{"steal": false, "evidence": {"provider": "acme", "verdict": "unknown", "reference": null, "evidence": "GET /v1, HTTP 500", "accept_double_charge": true}}',
  now() - interval '5 h'),
 ('shop-1', 'order-5', 'release', null, null, null, '{"status": "in_progress"}', null,
  '{"policy": "release", "older_than_seconds": 600.0, "accept_double_charge": true}', now() - interval '4 h'),
 (null, null, 'purge', 'idemctl', 'timer-1', 'configured retention', null, null,
  '{"deleted": 12345, "ttl_done_seconds": 86400.0}', now() - interval '3 h'),
 ('shop-1', 'order-7', 'unmask', 'carol', 'ops-1', 'dispute 7', null, null, null, now() - interval '2 h');
"#;

async fn with_events() -> Cli {
    let cli = filled().await;
    cli.execute(EVENTS).await;
    cli
}

async fn json(cli: &Cli, args: &[&str]) -> Vec<Value> {
    let args = [&["history", "-o", "json"], args].concat();
    serde_json::from_str(&cli.run(&args).await.ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn forms() {
    let cli = with_events().await;
    let mut all = String::new();
    for args in [
        &[][..],
        &["shop-1", "order-1"],
        &["shop-2", "gone"],
        &["-o", "csv"],
        &["-o", "ids"],
        &["--reverse", "--limit", "2"],
    ] {
        let output = cli.run(&[&["history"], args].concat()).await;
        writeln!(
            all,
            "$ idemctl history {}\n{}",
            args.join(" "),
            output.transcript()
        )
        .unwrap();
    }
    let output = cli.run(&["inspect", "shop-1", "order-1"]).await.ok();
    let line = output
        .lines()
        .find(|line| line.contains("(database user"))
        .unwrap();
    writeln!(all, "$ idemctl inspect shop-1 order-1\n{line}").unwrap();
    insta::assert_snapshot!(without_widths(&redactor(&cli).redact(&all)));
    let lines = cli.run(&["history", "-o", "jsonl"]).await.ok();
    assert_eq!(lines.lines().count(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_the_object_of_inspect() {
    let cli = with_events().await;
    let events = json(&cli, &["shop-1", "order-1"]).await;
    let inspected = cli
        .run(&["inspect", "shop-1", "order-1", "-o", "json"])
        .await
        .ok();
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(inspected["history"], Value::Array(events.clone()));
    let fields: Vec<&str> = events[0]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        fields,
        [
            "action",
            "after",
            "at",
            "before",
            "client_id",
            "db_user",
            "details",
            "host",
            "id",
            "key",
            "os_user",
            "reason"
        ]
    );
    assert_eq!(events[0]["details"]["evidence"]["verdict"], "unknown");
    assert_eq!(events[0]["before"]["status"], "in_progress");
    // What a command has just done stands there.
    let release = ["release", "shop-9", "order-1", "--yes", "--reason", "ticket 9"];
    assert_eq!(cli.run(&release).await.code, 0);
    let events = json(&cli, &["shop-9", "order-1"]).await;
    assert_eq!(events.len(), 1);
    assert_eq!(
        (&events[0]["action"], &events[0]["reason"]),
        (&"release".into(), &"ticket 9".into())
    );
    assert!(events[0]["after"].is_null() && events[0]["before"]["attempt"] == 1);
    let line = cli.run(&["history", "shop-9", "order-1"]).await.ok();
    assert!(line.contains("in_progress -> gone"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_alone_and_together() {
    let cli = with_events().await;
    let user = cli.db.user();
    for (args, expected) in [
        (&["--action", "fail"][..], &["fail shop-1", "fail shop-2"][..]),
        (
            &["--action", "purge", "--action", "unmask"],
            &["purge ", "unmask shop-1"],
        ),
        (&["--user", "carol"], &["fail shop-1", "unmask shop-1"]),
        (&["--user", &user, "--action", "purge"], &["purge "]),
        (
            &["--user", &user, "--client", "shop-2"],
            &["fail shop-2", "release shop-2"],
        ),
        (&["--client", "shop-1", "--since", "150m"], &["unmask shop-1"]),
        (&["--until", "270m"], &["fail shop-1"]),
        (
            &["--since", "270m", "--until", "150m"],
            &["purge ", "release shop-1"],
        ),
        (&["--since", "2199-01-01"], &[]),
        (&["--until", "2020-01-01T00:00:00+02:00"], &[]),
        (&["--action", "'; drop table idempotency_event --"], &[]),
        (&["shop-1", "order-1", "--user", "carol"], &["fail shop-1"]),
        (&["shop-1", "order-1", "--user", "bob"], &[]),
    ] {
        let mut found: Vec<String> = json(&cli, args)
            .await
            .iter()
            .map(|event| {
                format!(
                    "{} {}",
                    event["action"].as_str().unwrap(),
                    event["client_id"].as_str().unwrap_or("")
                )
            })
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_to_show_is_told_apart() {
    let cli = with_events().await;
    let none = cli.run(&["history", "shop-2", "order-9", "-o", "json"]).await;
    assert_eq!(
        (none.code, none.stdout.as_str()),
        (0, "[]\n"),
        "{}",
        none.transcript()
    );
    assert!(
        none.stderr.contains("note: no operator or janitor"),
        "{}",
        none.stderr
    );
    let quiet = cli.run(&["history", "shop-2", "order-9", "-q"]).await;
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
    let filtered = cli.run(&["history", "shop-2", "gone", "--action", "purge"]).await;
    assert_eq!((filtered.code, filtered.stdout.as_str()), (0, ""));
    assert!(
        filtered.stderr.contains("fits the filters"),
        "{}",
        filtered.stderr
    );
    for form in ["table", "json", "csv", "ids"] {
        let unknown = cli.run(&["history", "shop-2", "never", "-o", form]).await;
        assert_eq!(
            (unknown.code, unknown.stdout.as_str()),
            (3, ""),
            "{}",
            unknown.transcript()
        );
        assert!(
            unknown.stderr.contains("error: no key shop-2 never") && unknown.stderr.contains("hint: "),
            "{}",
            unknown.stderr
        );
    }
    let empty = super::fixture::cli().await;
    assert_eq!(empty.run(&["history", "-o", "json"]).await.ok(), "[]\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_usage() {
    let cli = with_events().await;
    for args in [
        &["shop-1"][..],
        &["shop-1", "order-1", "--client", "shop-1"],
        &["--limit", "0"],
        &["--limit", "5", "--all"],
        &["--reverse", "--sort", "oldest"],
        &["--since", "yesterday"],
        &["--cursor", "x"],
        &["", "k"],
    ] {
        let output = cli.run(&[&["history"], args].concat()).await;
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (2, ""),
            "{args:?}: {}",
            output.transcript()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_give_each_event_once() {
    let cli = cli().await;
    cli.execute(
        "insert into idempotency_event (client_id, key, action, at)
         select 'c', 'k', 'release', '2026-01-01 00:00:00Z' from generate_series(1, 2300)",
    )
    .await;
    for more in [
        &["--sort", "newest"][..],
        &["--sort", "oldest"],
        &["--client", "c"],
        &["--reverse", "c", "k"],
    ] {
        let (mut seen, mut rounds) = (Vec::new(), 0);
        let mut cursor: Option<String> = None;
        loop {
            let mut args = vec!["history", "-o", "jsonl", "--limit", "1100"];
            args.extend(more);
            if let Some(cursor) = &cursor {
                args.extend(["--cursor", cursor]);
            }
            let output = cli.run(&args).await;
            for line in output.stdout.lines() {
                seen.push(
                    serde_json::from_str::<Value>(line).unwrap()["id"]
                        .as_i64()
                        .unwrap(),
                );
            }
            rounds += 1;
            let Some((_, rest)) = output.stderr.split_once("--cursor ") else {
                break;
            };
            cursor = rest.split(',').next().map(str::to_owned);
        }
        assert_eq!((seen.len(), rounds), (2300, 3), "{more:?}");
        let oldest = more.contains(&"oldest") || more.contains(&"--reverse");
        assert!(
            seen.is_sorted_by(|a, b| if oldest { a < b } else { a > b }),
            "{more:?}"
        );
        assert_eq!(seen.iter().collect::<HashSet<_>>().len(), 2300);
    }
    let cut = cli.run(&["history", "-o", "ids"]).await;
    assert_eq!(cut.stdout, "c\tk\n", "each key once");
    assert!(cut.stderr.contains("note: there are more"), "{}", cut.stderr);
    // Of one key, all.
    let key = cli.run(&["history", "c", "k", "-o", "jsonl"]).await;
    assert_eq!((key.stdout.lines().count(), key.stderr.as_str()), (2300, ""));
    let all = cli.run(&["history", "--all", "-o", "jsonl"]).await;
    assert_eq!((all.stdout.lines().count(), all.stderr.as_str()), (2300, ""));
}

/// A long log is read along the primary key, and one key's by the index over the keys, whatever is filtered.
#[tokio::test(flavor = "multi_thread")]
async fn plans_do_not_sort_or_scan_the_log() {
    let _private = crate::support::not_on_citus("the plan is one of shards").await;
    let cli = cli().await;
    cli.execute(
        "insert into idempotency_event (client_id, key, action)
         select 'c' || i % 50, 'k' || i % 20000, 'release' from generate_series(1, 50000) i;
         analyze idempotency_event",
    )
    .await;
    let store = idemctl::store::Store::open(&cli.db.client, None).await.unwrap();
    for (name, key, index) in [
        ("history_newest", "null", "idempotency_event_pkey"),
        ("history_oldest", "null", "idempotency_event_pkey"),
        ("history_key_newest", "'k7'", "idempotency_event_key_idx"),
        ("history_key_oldest", "'k7'", "idempotency_event_key_idx"),
    ] {
        let statement = store
            .statements()
            .find(|statement| statement.name == name)
            .unwrap();
        let client = if key == "null" { "null" } else { "'c7'" };
        let values = [
            client,
            key,
            "'{release}'",
            "'idemctl'",
            "null",
            "3600",
            "null",
            "null",
            "25000",
            "51",
        ];
        let sql = (1..=10).rev().fold(statement.text.to_string(), |sql, n| {
            sql.replace(&format!("${n}"), values[n - 1])
        });
        let rows = cli.db.client.query(&format!("explain {sql}"), &[]).await.unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(
            plan.contains(index) && !plan.contains("Seq Scan"),
            "{name}:\n{plan}"
        );
        assert!(key != "null" || !plan.contains("Sort"), "{name}:\n{plan}");
    }
}
