//! Questions before changes: on a terminal, and without one.

use std::time::{Duration, Instant};

use super::fixture::{Cli, calm, filled};
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
        "update idempotency set lease_token = gen_random_uuid(), attempt = 2, locked_until = now() + interval '1 min'
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
