//! `idemctl list`.

use std::fmt::Write as _;

use std::collections::HashSet;

use serde_json::Value;

use super::fixture::{cli, filled, redactor, without_widths};

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_alone_and_together() {
    let cli = filled().await;
    cli.execute(
        r"insert into idempotency (client_id, key, fingerprint, status, created_at)
          values ('shop-3', '100%_a', '', 'done', now() - interval '2 d'), ('shop-3', '100%xa', '', 'done', now()),
                 ('shop-3', '1000', '', 'done', now()), ('shop-3', '100\b', '', 'done', now())",
    )
    .await;
    for (args, expected) in [
        (&["--client", "shop-1"][..], &["order-1", "order-7"][..]),
        (&["--key-prefix", "receipt"], &["receipt-12"]),
        (
            &["--client", "shop-3", "--key-prefix", "100%"],
            &["100%_a", "100%xa"],
        ),
        (&["--client", "shop-3", "--key-prefix", "100%_"], &["100%_a"]),
        (&["--client", "shop-3", "--key-prefix", r"100\"], &[r"100\b"]),
        (&["--client", "shop-3", "--key-prefix", "_"], &[]),
        (&["--state", "in_progress"], &["order-9"]),
        (
            &["--state", "failed", "--state", "in_progress"],
            &["order-3", "order-9"],
        ),
        (
            &["--state", "expired", "--client", "shop-9"],
            &["order-1", "order-2"],
        ),
        (&["--state", "stuck", "--provider", "acme"], &["order-1"]),
        (&["--older-than", "1d"], &["100%_a"]),
        (&["--newer-than", "1m", "--client", "shop-2"], &["order-9"]),
        (
            &[
                "--older-than",
                "100m",
                "--newer-than",
                "150m",
                "--client",
                "shop-2",
            ],
            &["receipt-12"],
        ),
        (&["--provider", "acme", "--state", "done"], &["order-7"]),
        (&["--provider", "nobody"], &[]),
        (&["--client", "'; drop table idempotency --"], &[]),
    ] {
        let command = [&["list", "-o", "json"], args].concat();
        let listed: Value = serde_json::from_str(&cli.run(&command).await.ok()).unwrap();
        let mut keys: Vec<&str> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["key"].as_str().unwrap())
            .collect();
        keys.sort_unstable();
        assert_eq!(keys, expected, "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms() {
    let cli = filled().await;
    let mut all = String::new();
    for form in ["table", "csv", "ids"] {
        let output = cli.run(&["list", "-o", form]).await;
        writeln!(all, "$ idemctl list -o {form}\n{}", output.transcript()).unwrap();
    }
    insta::assert_snapshot!(without_widths(&redactor(&cli).redact(&all)));
    let json: Value = serde_json::from_str(&cli.run(&["list", "-o", "json"]).await.ok()).unwrap();
    let row = json[0].as_object().unwrap();
    assert!(!row.contains_key("history") && !row.contains_key("next") && row.contains_key("expires_at"));
    let lines = cli.run(&["list", "-o", "jsonl"]).await.ok();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_an_empty_array() {
    let cli = cli().await;
    assert_eq!(cli.run(&["list", "-o", "json"]).await.ok(), "[]\n");
    for form in ["table", "jsonl", "ids"] {
        assert_eq!(cli.run(&["list", "-o", form]).await.ok(), "", "{form}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_over_equal_times_give_each_row_once() {
    let cli = cli().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, created_at)
         select 'c' || i % 3, 'k' || i, '', '2026-01-01 00:00:00Z' from generate_series(1, 23) i",
    )
    .await;
    for sort in ["newest", "oldest"] {
        let (mut seen, mut rounds) = (HashSet::new(), 0);
        let mut cursor: Option<String> = None;
        loop {
            let mut args = vec!["list", "-o", "ids", "--limit", "5", "--sort", sort];
            if let Some(cursor) = &cursor {
                args.extend(["--cursor", cursor]);
            }
            let output = cli.run(&args).await;
            for line in output.stdout.lines() {
                assert!(seen.insert(line.to_owned()), "{line} twice");
            }
            rounds += 1;
            let Some((_, rest)) = output.stderr.split_once("--cursor ") else {
                break;
            };
            cursor = rest.split([',', ' ', '\n']).next().map(str::to_owned);
        }
        assert_eq!((seen.len(), rounds), (23, 5), "{sort}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_streams_with_flat_memory() {
    let cli = cli().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, owner, created_at)
         select 'shop', 'k' || i, repeat('a', 64), repeat('o', 2000), now() - i * interval '1 s'
           from generate_series(1, 20000) i",
    )
    .await;
    let peak = async |limit: &str| {
        let line = format!(
            "\"$0\" list {limit} -o jsonl > /dev/null & pid=$!; top=0; while r=$(grep VmHWM /proc/$pid/status 2>/dev/null); do set -- $r; top=$2; done; wait $pid || exit $?; echo $top"
        );
        let run = crate::support::Run::new("/bin/sh", &["-c", &line, env!("CARGO_BIN_EXE_idemctl")]);
        run.on(&cli.db.url)
            .run()
            .await
            .ok()
            .trim()
            .parse::<u64>()
            .unwrap()
    };
    let (short, long) = (peak("--limit 2000").await, peak("--all").await);
    assert!(
        long < short + 16_000,
        "{short} kB for 2,000 rows, {long} kB for 20,000"
    );
    let all = cli.run(&["list", "--all", "-o", "ids"]).await.ok();
    assert_eq!(all.lines().collect::<HashSet<_>>().len(), 20_000);
}
