//! The row moves between the look and the change, and questions on a terminal.

use super::{BODY, actions, file, resolve, row};
use crate::cli::fixture::{Cli, SECRET, calm, filled};
use crate::support::{Spawned, until};

/// Waits until somebody waits for a lock in this database.
pub(super) async fn somebody_waits(cli: &Cli) {
    let waiting = format!(
        "select count(*) from {} where wait_event_type = 'Lock' and datname = current_database()",
        cli.db.activity()
    );
    until("somebody waits for the lock", async || {
        cli.number(&waiting).await > 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_taken_over_meanwhile_is_left() {
    for change in [
        "update idempotency set lease_token = gen_random_uuid(), attempt = 2, locked_until = now() + interval '1 min'",
        // A service that knows only the old columns moves nothing but the lease.
        "update idempotency set locked_until = now() + interval '1 min'",
        "update idempotency set locked_until = now() - interval '1 s'",
        "update idempotency set status = 'done', status_code = 201, response = '{\"by\":\"its holder\"}'",
        "delete from idempotency",
    ] {
        let cli = filled().await;
        let other = cli.db.connect().await;
        other
            .batch_execute(
                "begin; select from idempotency where (client_id, key) = ('shop-9', 'order-1') for update",
            )
            .await
            .unwrap();
        let change = format!("{change} where (client_id, key) = ('shop-9', 'order-1'); commit");
        let taking = async {
            somebody_waits(&cli).await;
            other.batch_execute(&change).await.unwrap();
        };
        let args = ["shop-9", "order-1", "--failed"];
        let ((code, json, output), ()) = tokio::join!(resolve(&cli, &args), taking);
        assert_eq!(
            (code, json["result"].as_str()),
            (5, Some("changed")),
            "{change}: {}",
            output.transcript()
        );
        assert_eq!(actions(&cli).await, "", "{change}");
        assert!(
            !row(&cli, "shop-9", "order-1").await.starts_with("failed"),
            "{change}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_at_once_ends_it() {
    let cli = filled().await;
    let args = ["shop-9", "order-1", "--failed"];
    let runs = futures_util::future::join_all((0..6).map(|_| resolve(&cli, &args))).await;
    let mut codes: Vec<i32> = runs.iter().map(|(code, ..)| *code).collect();
    codes.sort_unstable();
    assert_eq!(codes[0], 0, "{codes:?}");
    assert!(codes[1..].iter().all(|code| [4, 5].contains(code)), "{codes:?}");
    assert_eq!(actions(&cli).await, "resolve");
}

async fn asked(cli: &Cli) -> Spawned {
    let body = file(
        cli,
        "body",
        format!("{BODY}\n\u{1b}[2J{SECRET}").replace(SECRET, "password=hunter2"),
    );
    let args = [
        "resolve",
        "shop-9",
        "order-1",
        "--done",
        "--status-code",
        "201",
        "--response",
        &body,
        "--header",
        "x-api-key: hunter2",
        "--evidence",
        "e",
        "--reason",
        "r",
    ];
    let mut spawned = cli.command(&args).pty().spawn();
    spawned.wait_for_line("password=").await;
    spawned
}

#[tokio::test(flavor = "multi_thread")]
async fn the_question_shows_what_repeats_will_get() {
    for (typed, code, state) in [
        ("n", 4, "in_progress"),
        ("\r", 4, "in_progress"),
        ("y", 0, "done 201"),
    ] {
        let cli = filled().await;
        let mut spawned = asked(&cli).await;
        spawned.type_in(typed).await;
        let output = calm_pty(spawned.wait().await);
        assert_eq!(output.code, code, "{typed:?}: {}", output.transcript());
        for part in [
            "HTTP 201",
            "x-api-key: ***",
            "sha256 ",
            "424242******4242",
            "\\u{1b}[2J",
            "password=***",
        ] {
            assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
        }
        assert!(!output.stdout.contains("hunter2"), "{}", output.stdout);
        assert_eq!(row(&cli, "shop-9", "order-1").await, state);
    }
}

/// On a terminal everything comes as stdout.
fn calm_pty(output: crate::support::Output) -> crate::support::Output {
    assert!(!output.stdout.contains("panicked"), "{}", output.stdout);
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_moves_while_somebody_thinks_is_left() {
    let cli = filled().await;
    let mut spawned = asked(&cli).await;
    cli.execute("update idempotency set lease_token = gen_random_uuid() where (client_id, key) = ('shop-9', 'order-1')")
        .await;
    spawned.type_in("y").await;
    let output = spawned.wait().await;
    assert_eq!(output.code, 5, "{}", output.transcript());
    assert_eq!(row(&cli, "shop-9", "order-1").await, "in_progress");
    let (code, _, output) = resolve(&cli, &["shop-9", "order-1", "--failed"]).await;
    assert_eq!(code, 0, "and then it goes: {}", calm(output).transcript());
}
