//! `migrate --citus`: fresh, again, of what is there, refused, by many.

use super::{HELD, cluster, distributed, held, text};
use crate::protocol::OLD_TABLE;
use crate::support::{Database, Output, database, idemctl};

async fn migrate(db: &Database, args: &[&str]) -> Output {
    let args: Vec<&str> = std::iter::once("migrate").chain(args.iter().copied()).collect();
    idemctl(&args).on(&db.url).run().await
}

#[track_caller]
fn refused(output: &Output, word: &str) {
    assert_eq!(output.code, 9, "{}", output.transcript());
    assert!(output.stderr.contains(word), "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_citus_says_what_is_missing() {
    let _private = crate::support::privately("it shows a server without Citus");
    let db = database().await;
    for args in [
        &["--citus"][..],
        &["--citus", "--dry-run"],
        &["--citus", "--show-sql"],
    ] {
        refused(&migrate(&db, args).await, "create extension citus");
    }
    let there = "select count(*)::text from pg_class where relname like 'idempotency%'";
    assert_eq!(text(&db, there).await, "0");
    assert_eq!(migrate(&db, &["--citus", "--partitions", "4"]).await.code, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn a_fresh_database_and_again() {
    let db = cluster().await;
    let plan = migrate(&db, &["--citus", "--dry-run"]).await.ok();
    assert!(plan.contains("create_distributed_table"), "{plan}");
    assert_eq!(held(&db).await, "", "a dry run changes nothing");
    migrate(&db, &["--citus"]).await.ok();
    assert_eq!(held(&db).await, HELD);
    for args in [&["--citus", "-o", "json"][..], &["-o", "json"]] {
        let again = migrate(&db, args).await.ok();
        assert!(again.contains("\"steps\": []"), "{again}");
    }
    let status = migrate(&db, &["status"]).await.ok();
    assert!(status.contains("distributed by client_id over "), "{status}");
    refused(&migrate(&db, &["--partitions", "4"]).await, "not partitioned");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn the_printed_script_does_the_same() {
    let db = cluster().await;
    let script = migrate(&db, &["--citus", "--show-sql"]).await.ok();
    // One statement at a time, as psql sends them: some must stand outside a transaction.
    let mut statement = String::new();
    for line in script.lines() {
        statement.push_str(line);
        statement.push('\n');
        if line.ends_with(';') && statement.matches("$$").count().is_multiple_of(2) {
            db.client.batch_execute(&statement).await.unwrap();
            statement.clear();
        }
    }
    assert_eq!(held(&db).await, HELD);
    let status = migrate(&db, &["status"]).await;
    assert_eq!(status.code, 0, "{}", status.transcript());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn what_is_there_already() {
    // Migrated without it, and still empty.
    let db = cluster().await;
    migrate(&db, &[]).await.ok();
    migrate(&db, &["--citus"]).await.ok();
    assert_eq!(held(&db).await, HELD);
    // Of another service, and distributed by somebody: the event log joins it, asked for or not.
    for args in [&["--citus"][..], &[]] {
        let db = cluster().await;
        db.client
            .batch_execute(&format!(
                "{OLD_TABLE}; select create_distributed_table('idempotency', 'client_id');
                 insert into idempotency (client_id, key, fingerprint) values ('s', 'k', 'f')"
            ))
            .await
            .unwrap();
        migrate(&db, args).await.ok();
        assert_eq!(held(&db).await, HELD);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn what_is_refused_and_the_way_out_that_is_told() {
    let db = cluster().await;
    migrate(&db, &[]).await.ok();
    db.client
        .batch_execute("insert into idempotency (client_id, key, fingerprint) select 's' || n, 'k', 'f' from generate_series(1, 9) n")
        .await
        .unwrap();
    let output = migrate(&db, &["--citus"]).await;
    refused(&output, "has rows");
    // What it says is what helps.
    let told: Vec<&str> = output
        .stderr
        .split('`')
        .filter(|part| part.starts_with("select "))
        .collect();
    assert_eq!(told.len(), 2, "{}", output.stderr);
    for statement in told {
        db.client.batch_execute(statement).await.unwrap();
    }
    migrate(&db, &["--citus"]).await.ok();
    assert_eq!(held(&db).await, HELD);
    assert_eq!(text(&db, "select count(*)::text from idempotency").await, "9");

    let db = cluster().await;
    db.client
        .batch_execute(&format!(
            "{OLD_TABLE}; select create_distributed_table('idempotency', 'key')"
        ))
        .await
        .unwrap();
    refused(
        &migrate(&db, &["--citus"]).await,
        "by column key, not by client_id",
    );

    let db = cluster().await;
    migrate(&db, &["--partitions", "4"]).await.ok();
    refused(&migrate(&db, &["--citus"]).await, "is in partitions");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn a_worker_is_no_place_to_migrate() {
    let db = distributed().await;
    let node = "select nodename || ':' || nodeport from pg_dist_node where groupid > 0 limit 1";
    let (host, port) = {
        let node = text(&db, node).await;
        let (host, port) = node.split_once(':').unwrap();
        (host.to_owned(), port.parse().unwrap())
    };
    let worker = db.url_at(&host, port);
    for args in [&["migrate"][..], &["migrate", "--citus"], &["migrate", "status"]] {
        let output = idemctl(args).on(&worker).run().await;
        refused(&output, "connect to the coordinator");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn by_many_at_once() {
    let db = cluster().await;
    let runs: Vec<_> = (0..4)
        .map(|_| {
            let url = db.url.clone();
            tokio::spawn(async move { idemctl(&["migrate", "--citus"]).on(&url).run().await })
        })
        .collect();
    for run in runs {
        run.await.unwrap().ok();
    }
    assert_eq!(held(&db).await, HELD);
}
