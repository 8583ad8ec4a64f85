//! Secrets in every place that is printed, in every format.

use serde_json::Value;

use super::fixture::{Cli, answering, calm, cli, filled, provider};

const CARD: &str = "4242424242424242";
const HUSH: &str = "hush-hush-7";

/// A card number and a password in every column that holds free text, and in the event log.
async fn leaky() -> Cli {
    let cli = cli().await;
    let text = format!("pay 4242 4242 4242 4242 failed, password={HUSH} {{\"client_secret\":\"{HUSH}\"");
    let row = "insert into idempotency (client_id, key, fingerprint, status, locked_until, owner, operation, provider,
                                        status_code, response, response_headers, response_body, last_error)
               values ('c', $1, repeat('ab', 32), $2, now() - interval '1 h', $3, $3, null, $4, $5::text::json,
                       jsonb_build_array(jsonb_build_array('content-type', $3::text),
                                         jsonb_build_array('set-cookie', 'sid=hush-hush-7')), $6, $3)";
    let body = format!(r#"{{"n": {CARD}, "x": 1.10, "deep": "{{\"pin\": \"{HUSH}\"}}", "token": "{HUSH}"}}"#);
    let form = format!("card[number]={CARD}&card%5Bcvc%5D={HUSH}").into_bytes();
    let code = 200_i32;
    for (key, status, code, json, bytes) in [
        ("stuck", "in_progress", None, None, None),
        ("json", "done", Some(code), Some(body.as_str()), None),
        ("form", "done", Some(code), None, Some(&form)),
        ("odd", &format!("odd {CARD}")[..18], Some(code), None, None),
    ] {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&key, &status, &text, &code, &json, &bytes];
        cli.db.client.execute(row, &params).await.unwrap();
    }
    let details = serde_json::json!({"evidence": {"provider": "acme", "verdict": "charged", "note": text, "token": HUSH}});
    let snapshot = serde_json::json!({"status": "in_progress", "last_error": text,
                                      "response_headers": [["Set-Cookie", HUSH], ["x-signing-key", HUSH]]});
    let (details, snapshot) = (details.to_string(), snapshot.to_string());
    for key in ["stuck", "json", "gone"] {
        let event = "insert into idempotency_event (client_id, key, action, os_user, host, reason, before, after, details)
                     values ('c', $1, 'fail', 'carol', 'ops-1', $2, $3::text::jsonb, $3::text::jsonb, $4::text::jsonb)";
        cli.db
            .client
            .execute(event, &[&key, &text, &snapshot, &details])
            .await
            .unwrap();
    }
    cli
}

#[track_caller]
fn is_tight(output: &crate::support::Output) {
    let all = output.transcript();
    let digits: String = all.chars().filter(|c| !matches!(c, ' ' | '-' | '.')).collect();
    assert!(!digits.contains(CARD), "{all}");
    assert!(!all.contains(HUSH), "{all}");
    // Nor behind base64.
    for cell in all.split(|c: char| !c.is_ascii_alphanumeric() && !"+/=".contains(c)) {
        use base64::Engine;
        let decoded = base64::engine::general_purpose::STANDARD
            .decode(cell)
            .unwrap_or_default();
        let decoded = String::from_utf8_lossy(&decoded).into_owned();
        assert!(!decoded.contains(CARD) && !decoded.contains(HUSH), "{all}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_format_of_any_command_shows_a_secret() {
    let cli = leaky().await;
    let mut shown = 0;
    for command in [
        &["list"][..],
        &["inspect", "c", "stuck"],
        &["inspect", "c", "json", "--show-response"],
        &["inspect", "c", "form", "--show-response"],
        &["inspect", "c", "odd"],
        &["inspect", "c", "gone"],
        &["history"],
        &["history", "c", "gone"],
        &["release", "c", "stuck", "--dry-run"],
        &["release", "c", "odd", "--dry-run"],
        &["release", "--expired", "--dry-run"],
        &["janitor", "--once"],
    ] {
        for form in ["table", "json", "jsonl", "csv"] {
            let args = [command, &["-o", form, "-vvv"]].concat();
            let output = cli.run(&args).await;
            is_tight(&output);
            shown += output.stdout.matches("424242******4242").count()
                + output.stdout.matches("42** **** 4242").count();
        }
    }
    assert!(shown > 30, "masked, not left out: {shown}");
    // The question before a change.
    let mut asked = cli.command(&["release", "c", "stuck"]).pty().spawn();
    asked.wait_for_line("c stuck").await;
    asked.type_in("n").await;
    is_tight(&asked.wait().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_secret_is_exact() {
    let cli = leaky().await;
    let output = cli
        .run(&["inspect", "c", "json", "--show-response", "-o", "json"])
        .await
        .ok();
    let body = r#"{"n": "424242******4242", "x": 1.10, "deep": "{\"pin\": \"***\"}", "token": "***"}"#;
    assert!(output.contains(body), "{output}");
    let csv = cli
        .run(&["inspect", "c", "json", "--show-response", "-o", "csv"])
        .await
        .ok();
    assert!(csv.contains("1.10"), "{csv}");
    let form = cli.run(&["inspect", "c", "form", "--show-response"]).await.ok();
    assert!(
        form.contains("card[number]=424242******4242&card%5Bcvc%5D=***"),
        "{form}"
    );
    let unmask = [
        "inspect",
        "c",
        "json",
        "--show-response",
        "--unmask",
        "--reason",
        "dispute",
        "-o",
        "json",
    ];
    let json: Value = serde_json::from_str(&cli.run(&unmask).await.ok()).unwrap();
    assert!(json["last_error"].as_str().unwrap().contains(HUSH), "{json}");
    assert_eq!(json["response"]["body"]["token"], HUSH);
    assert_eq!(json["history"][0]["details"]["evidence"]["token"], HUSH);
    // A masked key cannot be typed, so keys are not masked.
    cli.execute(&format!(
        "insert into idempotency (client_id, key, fingerprint, order_id) values ('{CARD}', '{CARD}', '', '{CARD}')"
    ))
    .await;
    let json: Value =
        serde_json::from_str(&cli.run(&["inspect", CARD, CARD, "-o", "json"]).await.ok()).unwrap();
    for field in ["client_id", "key", "order_id"] {
        assert_eq!(json[field], CARD, "{field}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_not_shown_as_base64() {
    let cli = cli().await;
    let body = [b"\xff ".as_slice(), CARD.as_bytes()].concat();
    let insert = "insert into idempotency (client_id, key, fingerprint, status, status_code, response_body)
                  values ('c', 'k', '', 'done', 200, $1)";
    cli.db.client.execute(insert, &[&body]).await.unwrap();
    let show = ["inspect", "c", "k", "--show-response"];
    for form in ["table", "json", "csv"] {
        let output = cli.run(&[&show[..], &["-o", form]].concat()).await;
        is_tight(&output);
        assert!(output.stdout.contains("--unmask"), "{}", output.stdout);
    }
    let unmasked = [&show[..], &["-o", "json", "--unmask", "--reason", "dispute"]].concat();
    let json: Value = serde_json::from_str(&cli.run(&unmasked).await.ok()).unwrap();
    assert_eq!(json["response"]["body_base64"], "/yA0MjQyNDI0MjQyNDI0MjQy");
    assert_eq!(
        cli.number("select count(*) from idempotency_event where action = 'unmask'")
            .await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_configuration_names_more_places() {
    let cli = filled().await;
    let show = ["inspect", "shop-1", "order-7", "-o", "json", "--show-response"];
    let config = cli.config("[output]\nmask = [\"/charge_id\", \"/items/*\"]\n");
    let json: Value =
        serde_json::from_str(&cli.run(&[&show[..], &["-c", &config]].concat()).await.ok()).unwrap();
    assert_eq!(
        json["response"]["body"],
        serde_json::json!({"charge_id": "***", "card": "424242******4242", "client_secret": "***"})
    );
    let effective = cli.run(&["config", "-c", &config, "-o", "csv"]).await.ok();
    assert!(
        effective.contains("output.mask,\"/charge_id, /items/*\",") && effective.contains("line 2"),
        "{effective}"
    );
    for (text, line, word) in [
        (
            "[output]\nmask = [\n  \"/card\",\n  \"card\",\n]\n",
            "line 2",
            "slash",
        ),
        ("[output]\nmask = [\"/a~\"]\n", "line 2", "~"),
        ("[output]\nmask = [\"\"]\n", "line 2", "slash"),
        ("[output]\nmask = \"/card\"\n", "line 2", "sequence"),
        ("[output]\n\nhide = []\n", "line 3", "hide"),
    ] {
        let config = cli.config(text);
        let output = calm(cli.command(&["config", "--check", "-c", &config]).run().await);
        assert_eq!(output.code, 2, "{text}: {}", output.transcript());
        assert!(
            output.stderr.contains(line) && output.stderr.contains(word),
            "{text}: {}",
            output.stderr
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_provider_says_is_masked() {
    let cli = filled().await;
    let address = answering(&[("order-1", "weird 4242424242424242 token=hush-hush-7")]).await;
    let config = cli.config(&provider("acme", address));
    for command in [
        &["provider", "status", "order-1"][..],
        &["inspect", "shop-1", "order-1", "--provider"],
        &["release", "shop-1", "order-1", "--dry-run"],
        &["reconcile", "shop-1", "order-1", "--dry-run"],
    ] {
        for form in ["table", "json", "csv"] {
            let args = [command, &["-c", &config, "-o", form, "-vvv"]].concat();
            let output = calm(cli.command(&args).env("ACME_KEY", "k").run().await);
            assert!(
                output.transcript().contains("424242******4242"),
                "{}",
                output.transcript()
            );
            is_tight(&output);
        }
    }
    // What was asked and answered is kept, and shown masked later.
    let args = [
        "release",
        "shop-1",
        "order-1",
        "--yes",
        "--accept-double-charge",
        "--reason",
        "x",
        "-c",
        &config,
    ];
    let output = calm(cli.command(&args).env("ACME_KEY", "k").run().await);
    assert_eq!(output.code, 0, "{}", output.transcript());
    let line = cli.run(&["history", "shop-1", "order-1"]).await;
    assert!(
        line.stdout
            .contains("acme says unknown (pay_1); accept double charge"),
        "{}",
        line.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_quotes_is_masked() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let cli = leaky().await;
    cli.execute(
        "create function refuse() returns trigger language plpgsql as
         $$ begin raise exception 'refused %', old.last_error using detail = old.last_error; end $$;
         create trigger refuse before delete on idempotency for each row execute function refuse()",
    )
    .await;
    let release = [
        "release",
        "c",
        "stuck",
        "--yes",
        "--accept-double-charge",
        "--reason",
        "x",
        "-vvv",
    ];
    for form in ["table", "json"] {
        let output = cli.run(&[&release[..], &["-o", form]].concat()).await;
        assert!(
            output.transcript().contains("refused pay"),
            "{}",
            output.transcript()
        );
        is_tight(&output);
    }
}
