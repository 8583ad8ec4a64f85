//! Questions before changes: on a terminal, and without one.

use std::time::{Duration, Instant};

use super::fixture::{Cli, calm, cli, filled};
use crate::reconcile::provider::{Fault, Provider, section};
use crate::support::Spawned;

async fn asked(cli: &Cli, args: &[&str]) -> Spawned {
    let mut spawned = cli.command(args).pty().spawn();
    spawned.wait_for_line("shop-9 order-1").await;
    spawned
}

const RELEASE: [&str; 3] = ["release", "shop-9", "order-1"];

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_nothing_is_asked_or_done() {
    let cli = filled().await;
    let before = cli.everything().await;
    let started = Instant::now();
    let output = cli.run(&RELEASE).await;
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("--yes"), "{}", output.stderr);
    // Not even a database that answers nobody holds it up.
    let silent = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("postgresql://x@{}/x", silent.local_addr().unwrap());
    let started = Instant::now();
    let output = calm(crate::support::idemctl(&RELEASE).on(&url).run().await);
    assert!(
        output.code == 2 && started.elapsed() < Duration::from_secs(1),
        "{}",
        output.transcript()
    );
    assert_eq!(cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_decides() {
    for (typed, code, left) in [
        ("n", 4, 1),
        ("\x1b", 4, 1),
        ("\r", 4, 1),
        ("\x04", 4, 1),
        ("xX?\x04", 4, 1),
        ("\x03", 130, 1),
        ("y", 0, 0),
    ] {
        let cli = filled().await;
        let mut spawned = asked(&cli, &RELEASE).await;
        let output = if typed == "\x03" {
            spawned.press_ctrl_c().await
        } else {
            spawned.type_in(typed).await;
            spawned.wait().await
        };
        assert_eq!(output.code, code, "{typed:?}: {}", output.transcript());
        let rows =
            cli.number("select count(*) from idempotency where (client_id, key) = ('shop-9', 'order-1')");
        assert_eq!(rows.await, left, "{typed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_changes_while_somebody_thinks_is_left_alone() {
    let cli = filled().await;
    let mut spawned = asked(&cli, &RELEASE).await;
    cli.execute(
        "update idempotency set lease_token = 'a0000000-0000-4000-8000-00000000000f', attempt = 2, locked_until = now() + interval '1 min'
          where (client_id, key) = ('shop-9', 'order-1')",
    )
    .await;
    spawned.type_in("y").await;
    let output = spawned.wait().await;
    assert_eq!(output.code, 5, "{}", output.transcript());
    assert_eq!(
        cli.number("select count(*) from idempotency where client_id = 'shop-9'")
            .await,
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reason_can_be_compulsory() {
    let cli = filled().await;
    let config = cli.config("[audit]\nrequire_reason = true\n");
    for reason in [&[][..], &["--reason", "  "]] {
        let args = [&RELEASE[..], &["--yes", "-c", &config], reason].concat();
        let output = cli.run(&args).await;
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stderr.contains("--reason"), "{}", output.stderr);
    }
    let args = [&RELEASE[..], &["--yes", "-c", &config, "--reason", "ticket 4"]].concat();
    assert_eq!(cli.run(&args).await.code, 0);
}

/// Five keys that are stuck, and what their provider says of them at first.
async fn before_a_long_thought(cli: &Cli, provider: &Provider) {
    for (client, key) in [
        ("bulk", "late"),
        ("bulk", "same"),
        ("over", "late"),
        ("hand", "late"),
        ("hand", "same"),
    ] {
        cli.execute(&format!(
            "insert into idempotency (client_id, key, fingerprint, locked_until, created_at, lease_token, provider,
                                      order_id)
             values ('{client}', '{key}', '', now() - interval '1 h', now() - interval '2 h', gen_random_uuid(),
                     'acme', '{client}-{key}')"
        ))
        .await;
    }
    for unknown in ["over-late", "hand-late"] {
        provider.fault(Some(unknown), Some(Fault::Status(500)));
    }
    provider.book("hand-same", "quantum");
}

/// The one test that really lets time pass: an answer is fresh for 30 s of the process's own clock.
#[tokio::test(flavor = "multi_thread")]
async fn who_thinks_for_long_acts_on_what_the_provider_says_then() {
    let cli = cli().await;
    let provider = Provider::start().await;
    let config = cli.config(&section("acme", provider.address));
    before_a_long_thought(&cli, &provider).await;
    let accept = ["--accept-double-charge", "--reason", "r"];
    let why = ["--evidence", "e", "--reason", "r", "--against-provider"];
    let commands = [
        ["release", "--expired", "--client", "bulk"].to_vec(),
        [&["release", "over", "late"], &accept[..]].concat(),
        [&["resolve", "hand", "late", "--failed"], &why[..]].concat(),
        [&["resolve", "hand", "same", "--failed"], &why[..]].concat(),
    ];
    let mut asked = Vec::new();
    for (args, question) in commands
        .iter()
        .zip(["bulk same", "over late", "hand late", "hand same"])
    {
        let args = [args, &["-c", &config][..]].concat();
        let mut spawned = cli.command(&args).pty().spawn();
        spawned.wait_for_line(question).await;
        asked.push(spawned);
    }
    // Meanwhile late holders are shown.
    for late in ["bulk-late", "over-late", "hand-late"] {
        provider.fault(Some(late), None);
        provider.book(late, "succeeded");
    }
    let before = provider.questions().len();
    tokio::time::sleep(Duration::from_secs(31)).await;
    let expected = [
        (6, "acme says charged"),
        (5, "acme says charged"),
        (5, "says something else"),
        (0, "failed"),
    ];
    for (mut spawned, (code, word)) in asked.into_iter().zip(expected) {
        spawned.type_in("y").await;
        let output = spawned.wait().await;
        assert_eq!(output.code, code, "{}", output.transcript());
        assert!(output.stdout.contains(word), "{}", output.transcript());
    }
    assert_eq!(
        provider.questions().len() - before,
        5,
        "each is asked about again, once"
    );
    let rows = "select string_agg(client_id || ' ' || key || ' ' || status, ', ' order by client_id, key) from idempotency";
    assert_eq!(
        cli.text(rows).await,
        "bulk late in_progress, hand late in_progress, hand same failed, over late in_progress"
    );
}
