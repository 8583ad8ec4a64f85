//! `--fix`: the safe ones only, after asking.

use super::{find, run, sound};
use crate::cli::fixture::{Cli, calm};
use crate::doctor::Findings;
use crate::support::until;

/// Our own index, left INVALID by a build that ran out of time.
async fn invalid() -> Cli {
    let cli = sound().await;
    cli.execute("drop index idempotency_expired_idx").await;
    let mut other = cli.db.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("insert into idempotency (client_id, key, fingerprint) values ('open', 'k', '')")
        .await
        .unwrap();
    cli.execute("set lock_timeout = '200ms'").await;
    let build = "create index concurrently idempotency_expired_idx on idempotency (locked_until)
                 where status = 'in_progress'";
    cli.db.client.batch_execute(build).await.unwrap_err();
    tx.rollback().await.unwrap();
    let left = "select count(*) from pg_index where not indisvalid";
    assert_eq!(cli.number(left).await, 1);
    cli
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_index_is_built_again() {
    let cli = invalid().await;
    let findings = find(&cli, &[]).await;
    findings.are(&["indexes", "invalid_indexes"], 9);
    assert_eq!(findings.get("indexes")["fix"], "indexes");
    // Nobody to ask: refused at once, nothing changed.
    let output = calm(run(&cli, &["--fix"]).run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
    let output = Findings::of(run(&cli, &["--fix", "--dry-run"]).run().await);
    output.are(&["indexes", "invalid_indexes"], 9);
    assert!(
        output
            .stderr
            .contains("would build the missing and invalid indexes"),
        "{}",
        output.stderr
    );
    let mut asked = run(&cli, &["--fix"]).pty().spawn();
    asked.wait_for_line("would build").await;
    asked.type_in("n").await;
    let refused = asked.wait().await;
    assert_eq!(refused.code, 4, "{}", refused.transcript());
    find(&cli, &[]).await.are(&["indexes", "invalid_indexes"], 9);
    let mended = Findings::of(run(&cli, &["--fix", "--yes"]).run().await);
    mended.are(&[], 0);
    assert!(
        mended.stderr.contains("0005_expired_index.sql"),
        "{}",
        mended.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_are_gathered() {
    let cli = sound().await;
    cli.execute(
        "alter table idempotency set (autovacuum_analyze_threshold = 1000000000);
         insert into idempotency (client_id, key, fingerprint, status)
         select 's', 'k' || i, '', 'done' from generate_series(1, 30000) i",
    )
    .await;
    until("the server knows of the rows", async || {
        find(&cli, &[]).await.bad() == ["statistics"]
    })
    .await;
    let mended = Findings::of(run(&cli, &["--fix", "--yes"]).run().await);
    assert!(
        mended.stderr.contains("statistics: gathered"),
        "{}",
        mended.stderr
    );
    until("the server knows that it was done", async || {
        find(&cli, &[]).await.bad().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_safe_is_left_to_people() {
    let cli = sound().await;
    cli.execute("alter table idempotency set unlogged; delete from idempotency_migration where version = 5")
        .await;
    let findings = Findings::of(run(&cli, &["--fix", "--yes"]).run().await);
    assert_eq!(findings.code, 9);
    assert!(findings.bad().contains(&"logged"), "{:?}", findings.bad());
    assert!(
        findings.stderr.contains("nothing that was found can be repaired"),
        "{}",
        findings.stderr
    );
    assert_eq!(
        cli.number("select count(*) from idempotency_migration where version = 5")
            .await,
        0
    );
}
