//! `idemctl migrate` as a process.

use serde_json::Value;

use super::interrupted::{BUILDING, snapshot};
use super::many::wait_until;
use super::{ALL, dump, old_table, status};
use crate::support::{Database, Output, PgbouncerOptions, database, idemctl, pgbouncer};

async fn migrate(db: &Database, args: &[&str]) -> Output {
    let args: Vec<&str> = std::iter::once("migrate").chain(args.iter().copied()).collect();
    idemctl(&args).on(&db.url).run().await
}

fn json(output: Output) -> Value {
    serde_json::from_str(&output.ok()).expect("one JSON document")
}

#[tokio::test(flavor = "multi_thread")]
async fn status_tells_a_deploy_script_whether_to_migrate() {
    let db = database().await;
    let pending = migrate(&db, &["status", "-o", "json"]).await;
    assert_eq!(pending.code, 9, "{}", pending.transcript());
    assert!(
        pending.stderr.contains("run `idemctl migrate`"),
        "{}",
        pending.stderr
    );
    let document: Value = serde_json::from_str(&pending.stdout).unwrap();
    assert_eq!(document["migrations"][0]["state"], "pending");
    assert_eq!(document["migrations"][0]["applied_at"], Value::Null);

    let report = json(migrate(&db, &["-o", "json"]).await);
    assert_eq!(report["schema"], "public");
    assert_eq!(report["steps"].as_array().unwrap().len(), ALL);

    let done = json(migrate(&db, &["status", "-o", "json"]).await);
    for (position, migration) in done["migrations"].as_array().unwrap().iter().enumerate() {
        assert_eq!(
            (&migration["version"], &migration["state"]),
            (&Value::from(position + 1), &Value::from("applied"))
        );
        assert!(
            migration["applied_at"].as_str().unwrap().ends_with('Z'),
            "{migration}"
        );
    }
    assert!(
        done["indexes"]
            .as_array()
            .unwrap()
            .iter()
            .all(|index| index["valid"] == true),
        "{done}"
    );

    db.client
        .batch_execute("drop index idempotency_expired_idx")
        .await
        .unwrap();
    let broken = migrate(&db, &["status"]).await;
    assert_eq!(broken.code, 9, "{}", broken.transcript());
    assert!(
        broken
            .stdout
            .contains("index idempotency_expired_idx: missing or invalid"),
        "{}",
        broken.stdout
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_and_show_sql_change_nothing_and_nobody_is_asked() {
    let db = database().await;
    let dry = json(migrate(&db, &["--dry-run", "-o", "json"]).await);
    assert_eq!(
        (&dry["dry_run"], dry["steps"].as_array().unwrap().len()),
        (&Value::from(true), ALL)
    );
    let text = migrate(&db, &["--dry-run"]).await.ok();
    assert!(
        text.contains("would run 0002_keys.sql") && text.contains("create table if not exists"),
        "{text}"
    );
    let script = migrate(&db, &["--show-sql", "--schema", "pay"]).await.ok();
    assert!(
        script.contains("create schema if not exists \"pay\";"),
        "{script}"
    );
    assert!(
        script.contains("insert into \"pay\".idempotency_migration"),
        "{script}"
    );
    assert_eq!(dump(&db.client, "public").await, "");
    let ran = migrate(&db, &[]).await.ok();
    assert!(ran.contains("ran 0005_expired_index.sql"), "{ran}");
    let again = migrate(&db, &[]).await.ok();
    assert_eq!(again, "schema public is up to date\n");
    let nothing = migrate(&db, &["--show-sql"]).await;
    assert!(nothing.stderr.contains("up to date"), "{}", nothing.transcript());
    assert_eq!(nothing.ok(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_exit_code_9_and_a_reason() {
    let db = database().await;
    db.client
        .batch_execute("create table idempotency (client_id int)")
        .await
        .unwrap();
    for args in [&[] as &[&str], &["--dry-run"], &["--show-sql"], &["status"]] {
        let output = migrate(&db, args).await;
        assert_eq!(output.code, 9, "{}", output.transcript());
        assert!(
            output.stderr.contains("column client_id is integer"),
            "{}",
            output.stderr
        );
    }
    let odd = migrate(&db, &["--schema", "a'b"]).await;
    assert_eq!(odd.code, 2, "{}", odd.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_processes_at_once() {
    let _private = crate::support::privately("a pooler stands before its server");
    let db = database().await;
    let behind = database().await;
    let pooler = pgbouncer(&behind, PgbouncerOptions::default()).await;
    for (db, url) in [(&db, &db.url), (&behind, &pooler.url)] {
        let running: Vec<_> = (0..8)
            .map(|_| idemctl(&["migrate", "-o", "json"]).on(url).spawn())
            .collect();
        let mut steps = 0;
        for process in running {
            steps += json(process.wait().await)["steps"].as_array().unwrap().len();
        }
        assert_eq!(steps, ALL, "each step was done by one of them");
        assert!(status(&db.settings()).await.is_current());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_nothing_in_the_way() {
    let db = database().await;
    old_table(&db, "jsonb", "text").await;
    let reader = snapshot(&db).await;
    let process = idemctl(&["migrate"]).on(&db.url).spawn();
    wait_until(&db, BUILDING).await;
    process.kill9().await;
    let next = idemctl(&["migrate"]).on(&db.url).spawn();
    reader.batch_execute("commit").await.unwrap();
    next.wait().await.ok();
    assert!(status(&db.settings()).await.is_current());
}
