//! Rows that other programs wrote: shown as they are, whatever they hold, and never a danger to the terminal.

use serde_json::Value;

use super::fixture::{calm, cli};
use crate::support::idemctl;

/// Control characters, terminal sequences, marks that reorder, line ends.
const EVIL: &str = "a\u{1b}[31mred\u{7}\u{9b}2J\u{202e}cba\u{2066}\r\n\tz\u{85}\u{2028}";

fn is_tame(text: &str) -> bool {
    !text.chars().any(|c| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}')
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_text_cannot_drive_the_terminal() {
    let cli = cli().await;
    let statement = "insert into idempotency (client_id, key, fingerprint, locked_until, owner, operation, provider, order_id, last_error)
                     values ($1, $1, $1, now() - interval '1 h', $1, $1, $1, $1, $1),
                            ('c', 'k', $1, now() - interval '1 h', $1, $1, null, $1, $1)";
    cli.db.client.execute(statement, &[&EVIL]).await.unwrap();
    let event = "insert into idempotency_event (client_id, key, action, os_user, host, reason) values ('c', 'k', $1, $1, $1, $1), ('c', 'gone', $1, $1, $1, $1)";
    cli.db.client.execute(event, &[&EVIL]).await.unwrap();
    for args in [
        &["list"][..],
        &["list", "-o", "json"],
        &["list", "-o", "jsonl"],
        &["inspect", "c", "k"],
        &["inspect", "c", "k", "-o", "json"],
        &["inspect", "c", "gone"],
        &["release", "c", "k", "--dry-run"],
        &["release", "--expired", "--dry-run"],
        &["janitor", "--once"],
    ] {
        let output = cli.run(args).await;
        assert!(
            is_tame(&output.stdout) && is_tame(&output.stderr),
            "{args:?}: {:?}",
            output.transcript()
        );
    }
    let table = cli.run(&["list"]).await.ok();
    assert_eq!(table.lines().count(), 3, "one line for each row: {table}");
    assert!(
        table.contains(r"a\u{1b}[31mred\u{7}\u{9b}2J\u{202e}cba\u{2066}\r\n\tz\u{85}"),
        "{table}"
    );
    let json: Value =
        serde_json::from_str(&cli.run(&["list", "-o", "json", "--key-prefix", "k"]).await.ok()).unwrap();
    for field in ["owner", "last_error", "operation", "order_id"] {
        assert_eq!(json[0][field], EVIL, "exactly, in {field}");
    }
    let ids = cli.run(&["list", "-o", "ids"]).await;
    assert_eq!(ids.stdout, "c\tk\n");
    assert!(ids.stderr.contains("left out"), "{}", ids.stderr);
    // A cell that a spreadsheet would run.
    cli.execute("insert into idempotency (client_id, key, fingerprint) values ('=1+1', '@x', '')")
        .await;
    let csv = cli.run(&["list", "--client", "=1+1", "-o", "csv"]).await.ok();
    assert!(csv.contains("'=1+1,'@x"), "{csv}");
}

#[tokio::test(flavor = "multi_thread")]
async fn times_beyond_every_calendar() {
    let cli = cli().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at, completed_at) values
         ('t', 'inf', '', 'in_progress', 'infinity', 'infinity', null),
         ('t', '-inf', '', 'in_progress', '-infinity', '-infinity', null),
         ('t', 'far', '', 'done', '294276-12-31 23:59:59Z', '294276-12-31 23:59:59Z', '294276-12-31 23:59:59Z'),
         ('t', 'bc', '', 'failed', '4713-01-01 00:00:00Z BC', '4713-01-01 00:00:00Z BC', 'infinity'),
         ('t', 'word', '', 'paused', now(), now(), null),
         ('t', 'blank', '', '', now(), now(), null)",
    )
    .await;
    let listed: Value = serde_json::from_str(&cli.run(&["list", "-o", "json"]).await.ok()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 6);
    for key in ["inf", "-inf", "far", "bc", "word", "blank"] {
        for form in ["table", "json"] {
            let output = cli
                .run(&["inspect", "-o", form, "--show-response", "--", "t", key])
                .await;
            assert_eq!(output.code, 0, "{key}: {}", output.transcript());
        }
    }
    let all = cli.run(&["list", "--all", "-o", "csv"]).await.ok();
    assert_eq!(all.lines().count(), 7, "{all}");
    let word = cli.run(&["inspect", "t", "word"]).await.ok();
    assert!(
        word.contains("unknown (status \"paused\" is none that idemctl knows)"),
        "{word}"
    );
    assert!(word.contains("touch nothing"), "{word}");
    let refused = cli.run(&["release", "t", "word", "--yes", "--steal"]).await;
    assert_eq!(refused.code, 4, "{}", refused.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_table_with_nulls_and_odd_types() {
    let db = crate::support::database().await;
    db.client
        .batch_execute(
            r#"create table idempotency (client_id varchar(50) not null, key varchar(80) not null,
                   fingerprint varchar(64) not null, status varchar(20) not null, locked_until timestamptz not null,
                   status_code bigint, response jsonb, created_at timestamptz, unique (client_id, key));
               insert into idempotency values
                   ('n', 'big', 'x', 'done', now(), 9223372036854775807, '{"a": 1}', now()),
                   ('n', 'empty', 'x', 'done', now(), null, null, now()),
                   ('n', 'plain', 'x', 'done', now(), 200, '"x"', now())"#,
        )
        .await
        .unwrap();
    let run = async |args: &[&str]| calm(idemctl(args).on(&db.url).run().await);
    let unmigrated = run(&["list"]).await;
    assert_eq!(unmigrated.code, 9, "{}", unmigrated.transcript());
    assert!(
        unmigrated.stderr.contains("column attempt is missing"),
        "{}",
        unmigrated.stderr
    );
    let nullable = run(&["migrate"]).await;
    assert_eq!(nullable.code, 9, "{}", nullable.transcript());
    assert!(
        nullable.stderr.contains("created_at may be null"),
        "{}",
        nullable.stderr
    );
    db.client
        .batch_execute("alter table idempotency alter column created_at set not null")
        .await
        .unwrap();
    run(&["migrate"]).await.ok();
    db.client
        .batch_execute("update idempotency set response_headers = '{\"not\": \"pairs\"}' where key = 'plain'")
        .await
        .unwrap();
    let listed: Value = serde_json::from_str(&run(&["list", "-o", "json"]).await.ok()).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 3);
    for key in ["big", "empty", "plain"] {
        let json: Value =
            serde_json::from_str(&run(&["inspect", "n", key, "-o", "json"]).await.ok()).unwrap();
        assert_eq!(json["state"], "done", "{key}");
        assert_eq!(run(&["inspect", "n", key]).await.code, 0);
    }
    // Odd headers do not hide the body.
    let shown = run(&["inspect", "n", "plain", "--show-response"]).await;
    assert_eq!(shown.code, 0, "{}", shown.transcript());
    assert!(shown.stdout.contains("body          \"x\""), "{}", shown.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text() {
    let _private = crate::support::privately("it makes a database in another encoding");
    // Starts the cluster where it may wait.
    let _other = crate::support::database().await;
    let cluster = crate::support::shared();
    let admin = crate::support::connect(&cluster.server().url("postgres")).await;
    admin
        .batch_execute("create database ascii encoding 'SQL_ASCII' locale 'C' template template0")
        .await
        .unwrap();
    let url = cluster.server().url("ascii");
    calm(idemctl(&["migrate"]).on(&url).run().await).ok();
    let client = crate::support::connect(&url).await;
    client
        .batch_execute("insert into idempotency (client_id, key, fingerprint, owner) values ('b', 'k', '', convert_from('\\xff', 'SQL_ASCII'))")
        .await
        .unwrap();
    for args in [&["inspect", "b", "k"][..], &["list"]] {
        let output = calm(idemctl(args).on(&url).run().await);
        assert_eq!(output.code, 1, "{}", output.transcript());
        assert!(output.stderr.contains("PGCLIENTENCODING"), "{}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_headers_of_other_programs_do_not_stop_the_rest() {
    let cli = cli().await;
    cli.execute(
        r#"insert into idempotency (client_id, key, fingerprint, locked_until) values
               ('h', repeat('x', 300), 'f', '2020-01-01'), ('h', E'c\x01d', 'f', '2020-01-01'),
               ('h', 'ok', 'f', '2020-01-01'), ('-x', '--yes', 'f', '2020-01-01');
           insert into idempotency (client_id, key, fingerprint, status, status_code, response, response_headers)
           values ('g', 'object', 'f', 'done', 200, '{"a": 1}', '{"content-type": "application/json"}'),
                  ('g', 'odd', 'f', 'done', 200, '{"a": 1}', '[7]'),
                  ('g', 'deep', 'f', 'done', 200, (repeat('[', 5000) || repeat(']', 5000))::json, null)"#,
    )
    .await;
    let ids = cli.run(&["list", "--state", "expired", "-o", "ids"]).await;
    assert_eq!(
        (ids.code, ids.stdout.lines().count()),
        (0, 2),
        "{}",
        ids.transcript()
    );
    assert_eq!(ids.stderr.matches("left out").count(), 2, "{}", ids.stderr);
    let piped = calm(
        cli.command(&["release", "-", "--dry-run"])
            .stdin(ids.stdout)
            .run()
            .await,
    );
    assert_eq!(piped.code, 0, "{}", piped.transcript());

    let shown = cli.run(&["inspect", "--", "-x", "--yes"]).await;
    assert!(
        shown.stdout.contains("idemctl release --dry-run -- '-x' '--yes'"),
        "{}",
        shown.stdout
    );

    for (key, content_type) in [("object", "application/json"), ("odd", "type not recorded")] {
        let shown = cli.run(&["inspect", "g", key, "--show-response"]).await;
        assert_eq!(shown.code, 0, "{}", shown.transcript());
        assert!(
            shown.stdout.contains(content_type) && shown.stdout.contains(r#"{"a": 1}"#),
            "{}",
            shown.stdout
        );
    }
    let csv = cli
        .run(&["inspect", "g", "deep", "--show-response", "-o", "csv"])
        .await;
    assert_eq!(csv.code, 0, "{}", csv.transcript());
    assert!(csv.stdout.contains(&"[".repeat(5000)), "{}", csv.stdout);
}
