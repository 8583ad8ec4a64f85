//! `idemctl release`.

use serde_json::Value;

use super::fixture::{Cli, SECRET, answering, calm, filled, provider, redactor};
use crate::support::Output;

fn results(output: &Output) -> Vec<(String, String)> {
    let json: Value =
        serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", output.transcript()));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items = json["released"].as_array().unwrap().iter();
    items
        .map(|item| {
            (
                format!("{} {}", text(&item["client_id"]), text(&item["key"])),
                text(&item["result"]),
            )
        })
        .collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(id, result)| ((*id).to_owned(), (*result).to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_state_gets() {
    let cli = filled().await;
    for (client, key, code, result, word) in [
        ("shop-2", "order-9", 4, "refused", "the lease is alive"),
        ("shop-1", "order-7", 4, "refused", "final answer"),
        ("shop-2", "order-3", 4, "refused", "final answer"),
        ("shop-2", "never", 3, "not_found", "no such key"),
    ] {
        let before = cli.everything().await;
        let output = cli.run(&["release", client, key, "--yes", "-o", "json"]).await;
        assert_eq!(output.code, code, "{}", output.transcript());
        assert_eq!(results(&output)[0].1, result);
        assert!(output.stderr.contains(word), "{}", output.stderr);
        assert_eq!(cli.everything().await, before);
    }
    cli.execute("update idempotency set status = 'paused' where key = 'order-9'")
        .await;
    let output = cli
        .run(&["release", "shop-2", "order-9", "--yes", "--steal"])
        .await;
    assert_eq!(output.code, 4, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_gives_the_same_report_and_changes_nothing() {
    let cli = filled().await;
    let before = cli.everything().await;
    let dry = cli
        .run(&["release", "shop-9", "order-1", "--dry-run", "-o", "json"])
        .await;
    assert_eq!(dry.code, 0, "{}", dry.transcript());
    assert_eq!(cli.everything().await, before);
    let real = cli
        .run(&[
            "release",
            "shop-9",
            "order-1",
            "--yes",
            "-o",
            "json",
            "--reason",
            "they asked",
        ])
        .await;
    assert_eq!(
        dry.stdout.replace("\"dry_run\": true", "\"dry_run\": false"),
        real.stdout
    );
    assert_eq!(results(&real), pairs(&[("shop-9 order-1", "released")]));
    let event = cli.db.client.query_one(
        "select before::text, after::text, details::text, reason, os_user is not null, host is not null, xmin::text
           from idempotency_event where action = 'release' and client_id = 'shop-9'",
        &[],
    );
    let event = event.await.unwrap();
    let before: Value = serde_json::from_str(event.get(0)).unwrap();
    assert_eq!(before["status"], "in_progress");
    assert_eq!(event.get::<_, Option<String>>(1), None);
    let details: Value = serde_json::from_str(event.get(2)).unwrap();
    assert!(
        details["evidence"]["why"].is_string() && details["steal"] == false,
        "{details}"
    );
    assert_eq!(event.get::<_, String>(3), "they asked");
    assert!(event.get::<_, bool>(4) && event.get::<_, bool>(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_event_and_the_change_are_one_transaction() {
    let cli = filled().await;
    for statement in [
        "create function no() returns trigger language plpgsql as $$ begin raise exception 'disk on fire'; end $$",
        "create trigger no before insert on idempotency_event for each row execute function no()",
    ] {
        cli.execute(statement).await;
    }
    let output = cli
        .run(&["release", "shop-9", "order-1", "--yes", "-o", "json"])
        .await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    assert!(output.stderr.contains("disk on fire"), "{}", output.stderr);
    assert_eq!(
        cli.number("select count(*) from idempotency where client_id = 'shop-9'")
            .await,
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_as_failed_and_stolen() {
    let cli = filled().await;
    let kept = cli
        .run(&[
            "release", "shop-9", "order-1", "--as", "failed", "--yes", "-o", "json",
        ])
        .await;
    assert_eq!(
        results(&kept),
        pairs(&[("shop-9 order-1", "failed")]),
        "{}",
        kept.transcript()
    );
    let row = cli.text(
        "select status || ' ' || status_code from idempotency where (client_id, key) = ('shop-9', 'order-1')",
    );
    assert_eq!(row.await, "failed 500");
    // No provider is configured, so the one that the row names cannot be asked, and money may hang on it.
    let stolen = cli
        .run(&["release", "shop-2", "order-9", "--steal", "--yes"])
        .await;
    assert_eq!(stolen.code, 4, "{}", stolen.transcript());
    assert!(stolen.stderr.contains("acme"), "{}", stolen.stderr);
    cli.execute("update idempotency set provider = null where key = 'order-9'")
        .await;
    let stolen = cli
        .run(&["release", "shop-2", "order-9", "--steal", "--yes"])
        .await;
    assert_eq!(stolen.code, 0, "{}", stolen.transcript());
    assert_eq!(
        cli.text("select details->>'steal' from idempotency_event where key = 'order-9'")
            .await,
        "true"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn in_bulk_each_is_listed() {
    let cli = filled().await;
    let input = "shop-9\torder-1\nshop-1\torder-7\nshop-0\tnone\nshop-9\torder-2\n";
    let output = calm(cli.command(&["release", "-", "--yes"]).stdin(input).run().await);
    insta::assert_snapshot!(redactor(&cli).redact(&output.transcript()));
    assert_eq!(
        cli.number("select count(*) from idempotency where client_id = 'shop-9'")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_in_bulk_with_filters() {
    let cli = filled().await;
    let none = cli
        .run(&[
            "release",
            "--expired",
            "--client",
            "shop-0",
            "--yes",
            "-o",
            "json",
        ])
        .await;
    assert_eq!((none.code, results(&none).len()), (0, 0), "{}", none.transcript());
    let young = cli
        .run(&[
            "release",
            "--expired",
            "--older-than",
            "3h",
            "--yes",
            "-o",
            "json",
        ])
        .await;
    assert_eq!(results(&young).len(), 0);
    let one = cli
        .run(&[
            "release",
            "--expired",
            "--older-than",
            "1h",
            "--limit",
            "1",
            "--yes",
            "-o",
            "json",
        ])
        .await;
    assert_eq!(results(&one), pairs(&[("shop-9 order-1", "released")]));
    assert!(
        one.stderr.contains("--limit"),
        "says that it was cut: {}",
        one.stderr
    );
    // The row that names a provider which nobody configured is refused, the rest is released.
    let rest = cli.run(&["release", "--expired", "--yes", "-o", "json"]).await;
    assert_eq!(rest.code, 6, "{}", rest.transcript());
    let mut rest = results(&rest);
    rest.sort();
    assert_eq!(
        rest,
        pairs(&[("shop-1 order-1", "refused"), ("shop-9 order-2", "released")])
    );
}

async fn with_provider(cli: &Cli, config: &str, args: &[&str]) -> Output {
    let args = [args, &["-c", config]].concat();
    calm(cli.command(&args).env("ACME_KEY", SECRET).run().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provider_is_asked_first() {
    let cli = filled().await;
    let address = answering(&[
        ("o-charged", "succeeded"),
        ("o-held", "held"),
        ("o-pending", "processing"),
        ("o-strange", "whatever"),
        ("o-down", "500"),
        ("o-failed", "failed"),
    ])
    .await;
    let config = cli.config(&provider("acme", address));
    for order in [
        "o-charged",
        "o-held",
        "o-pending",
        "o-strange",
        "o-down",
        "o-failed",
        "o-unheard-of",
    ] {
        cli.execute(&format!(
            "insert into idempotency (client_id, key, fingerprint, provider, locked_until, created_at)
             values ('p', '{order}', '', 'acme', now() - interval '1 h', now() - interval '1 h')"
        ))
        .await;
        let output = with_provider(&cli, &config, &["release", "p", order, "--yes", "-o", "json"]).await;
        let free = ["o-failed", "o-unheard-of"].contains(&order);
        assert_eq!(
            output.code,
            if free { 0 } else { 4 },
            "{order}: {}",
            output.transcript()
        );
        let left = cli
            .number(&format!("select count(*) from idempotency where key = '{order}'"))
            .await;
        assert_eq!(left, i64::from(!free), "{order}");
    }
    // A miss right after the last attempt proves nothing.
    cli.execute("insert into idempotency (client_id, key, fingerprint, provider, locked_until) values ('p', 'young', '', 'acme', now())").await;
    let young = with_provider(&cli, &config, &["release", "p", "young", "--yes"]).await;
    assert_eq!(young.code, 4, "{}", young.transcript());

    let accept = ["release", "p", "o-charged", "--yes", "--accept-double-charge"];
    assert_eq!(
        with_provider(&cli, &config, &accept).await.code,
        2,
        "needs a reason"
    );
    let accept = [&accept[..], &["--reason", "refunded by hand"]].concat();
    assert_eq!(with_provider(&cli, &config, &accept).await.code, 0);
    let details = cli
        .text("select details::text from idempotency_event where key = 'o-charged'")
        .await;
    let details: Value = serde_json::from_str(&details).unwrap();
    assert_eq!(details["evidence"]["verdict"], "charged");
    assert_eq!(details["evidence"]["accept_double_charge"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_asked_is_refused() {
    let cli = filled().await;
    let address = answering(&[]).await;
    // The row names acme, which is not configured.
    let config = cli.config(&provider("other", address));
    let output = with_provider(&cli, &config, &["release", "shop-1", "order-1", "--yes"]).await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    // The row names none, and two are configured.
    let config = cli.config(&(provider("one", address) + &provider("two", address)));
    let output = with_provider(&cli, &config, &["release", "shop-9", "order-1", "--yes"]).await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    assert!(output.stderr.contains("several providers"), "{}", output.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn input_is_checked_as_a_whole_before_anything() {
    let cli = filled().await;
    let before = cli.everything().await;
    for (input, word) in [
        (&b"shop-9\torder-1\nnonsense\n"[..], "line 2"),
        (b"shop-9\torder-1\nshop-9\t\n", "line 2"),
        (b"shop-9\torder-1\n\xff\tx\n", "line 2"),
    ] {
        let output = calm(cli.command(&["release", "-", "--yes"]).stdin(input).run().await);
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stderr.contains(word), "{}", output.stderr);
    }
    assert_eq!(cli.everything().await, before);
    assert_eq!(
        calm(cli.command(&["release", "-", "--yes"]).run().await).code,
        0,
        "nothing to do"
    );
}

/// Ending a key by hand takes two, so one alone cannot do worse.
#[tokio::test(flavor = "multi_thread")]
async fn where_it_takes_two_nobody_accepts_a_double_charge_alone() {
    let cli = filled().await;
    let address = answering(&[("order-1", "succeeded")]).await;
    let before = cli.everything().await;
    let accept = ["--accept-double-charge", "--reason", "x"];
    for approval in ["two-person", "two-database-users"] {
        let section = provider("acme", address);
        let config = cli.config(&format!("[audit]\napproval = \"{approval}\"\n{section}"));
        for more in [&["--yes"][..], &["--dry-run"], &["--yes", "--as", "failed"]] {
            let args = [&["release", "shop-1", "order-1"], &accept[..], more].concat();
            let output = with_provider(&cli, &config, &args).await;
            assert_eq!(output.code, 4, "{}", output.transcript());
            assert!(output.stderr.contains("idemctl resolve"), "{}", output.stderr);
        }
        let args = [&["release", "--expired", "--yes"], &accept[..]].concat();
        assert_eq!(with_provider(&cli, &config, &args).await.code, 4);
        assert_eq!(cli.everything().await, before);
    }
    // What the provider makes safe needs nobody's word.
    let config = cli.config(&format!(
        "[audit]\napproval = \"two-person\"\n{}",
        provider("acme", answering(&[("order-1", "failed")]).await)
    ));
    let output = with_provider(&cli, &config, &["release", "shop-1", "order-1", "--yes"]).await;
    assert_eq!(output.code, 0, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn from_list_to_release() {
    let cli = filled().await;
    let line = "\"$0\" list --state expired --client shop-9 -o ids | \"$0\" release - --yes -o ids";
    let run = crate::support::Run::new("/bin/sh", &["-c", line, env!("CARGO_BIN_EXE_idemctl")]);
    let output = calm(run.on(&cli.db.url).run().await).ok();
    let mut ids: Vec<&str> = output.lines().collect();
    ids.sort_unstable();
    assert_eq!(ids, ["shop-9\torder-1", "shop-9\torder-2"]);
}
