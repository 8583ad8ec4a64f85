//! What operators and the janitor do, on each kind of table: plain, in partitions, and (where the given server is the
//! coordinator of a Citus cluster) distributed. The answers are the same.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Database, Output, database, idemctl, temp_dir};

async fn run(db: &Database, args: &[&str]) -> Output {
    idemctl(args).on(&db.url).run().await
}

async fn json(db: &Database, args: &[&str]) -> Value {
    let output = run(db, &[args, &["-o", "json"]].concat()).await.ok();
    serde_json::from_str(&output).unwrap()
}

async fn number(db: &Database, query: &str) -> i64 {
    let row = db.client.query_one(query, &[]).await;
    row.unwrap_or_else(|error| panic!("{query}: {error}")).get(0)
}

/// Of each of eight clients: 100 keys that are due, one done a moment ago, one expired, one at work.
async fn fill(db: &Database) {
    db.client
        .batch_execute(
            "insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at, completed_at)
             select 's' || n % 8, 'd' || n, repeat('ab', 32), case n % 16 when 3 then 'failed' else 'done' end, at, at, at
               from generate_series(1, 800) n, lateral (select now() - interval '2 d' + n / 10 * interval '1 s' as at) t;
             insert into idempotency (client_id, key, fingerprint, status, completed_at)
             select 's' || n, 'new', repeat('ab', 32), 'done', now() from generate_series(0, 7) n;
             insert into idempotency (client_id, key, fingerprint, locked_until, created_at, operation)
             select 's' || n, 'x', repeat('ab', 32), now() - interval '1 h', now() - interval '1 h', 'POST /p'
               from generate_series(0, 7) n;
             insert into idempotency (client_id, key, fingerprint, locked_until)
             select 's' || n, 'live', repeat('ab', 32), now() + interval '1 h' from generate_series(0, 7) n",
        )
        .await
        .unwrap();
}

async fn ids(db: &Database, args: &[&str]) -> Vec<String> {
    let all = [&["list", "--all", "-o", "ids"], args].concat();
    let output = run(db, &all).await.ok();
    output.lines().map(str::to_owned).collect()
}

async fn lists(db: &Database) {
    let all = ids(db, &[]).await;
    assert_eq!(all.len(), 824);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 824, "none twice");
    let mut oldest = ids(db, &["--sort", "oldest"]).await;
    oldest.reverse();
    assert_eq!(oldest, all);
    // By hand, page by page.
    let (mut pages, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut args = vec!["list", "--limit", "100", "-o", "ids"];
        args.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor]));
        let page = run(db, &args).await;
        pages.extend(page.stdout.lines().map(str::to_owned));
        let next = page.stderr.split("--cursor ").nth(1);
        cursor = next.map(|rest| rest.split(',').next().unwrap().to_owned());
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(pages, all);
    for (args, count) in [
        (&["--client", "s3"][..], 103),
        (&["--state", "expired"], 8),
        (&["--state", "in_progress"], 8),
        (&["--state", "failed"], 50),
        (&["--state", "failed", "--client", "s3"], 50),
        (&["--key-prefix", "d80"], 2),
        (&["--key-prefix", "d%"], 0),
        (&["--older-than", "1d"], 800),
        (&["--newer-than", "1d", "--state", "done"], 8),
    ] {
        assert_eq!(ids(db, args).await.len(), count, "{args:?}");
    }
}

async fn endings(db: &Database) {
    assert!(run(db, &["inspect", "s1", "x"]).await.ok().contains("expired"));
    assert_eq!(run(db, &["inspect", "s1", "none"]).await.code, 3);
    assert_eq!(run(db, &["release", "s1", "live", "--yes"]).await.code, 4);
    run(db, &["release", "s1", "x", "--yes"]).await.ok();
    let bulk = json(db, &["release", "--expired", "--limit", "3", "--yes"]).await;
    let released = bulk["released"].as_array().unwrap();
    assert!(released.iter().all(|key| key["result"] == "released"), "{bulk}");
    assert_eq!(released.len(), 3);
    assert_eq!(
        number(db, "select count(*) from idempotency where key = 'x'").await,
        4
    );
    assert_eq!(
        number(
            db,
            "select count(*) from idempotency_event where action = 'release'"
        )
        .await,
        4
    );
    let history = json(db, &["history", "s1", "x"]).await;
    assert_eq!(history[0]["before"]["status"], "in_progress");
}

async fn janitor(db: &Database) {
    let dir = temp_dir();
    let config = dir.path().join("config.toml");
    std::fs::write(
        &config,
        "[janitor.expired]\nschedule = \"* * * * *\"\nolder_than = \"10m\"\npolicy = \"fail\"\n",
    )
    .unwrap();
    let config = config.to_string_lossy();
    let due = json(db, &["purge", "--dry-run"]).await;
    assert_eq!(due["deleted"], 800);
    // Two at once: one of them has each job, and what it did is done once.
    let args = ["--config", &*config, "janitor", "--once"];
    let (one, other) = tokio::join!(run(db, &args), run(db, &args));
    assert!(
        [one.code, other.code].contains(&0),
        "{}\n{}",
        one.transcript(),
        other.transcript()
    );
    assert_eq!(number(db, "select count(*) from idempotency").await, 20);
    let logged =
        "select sum((details ->> 'deleted')::int8)::int8 from idempotency_event where action = 'purge'";
    assert_eq!(number(db, logged).await, 800);
    assert_eq!(
        number(db, "select count(*) from idempotency where status = 'failed'").await,
        4
    );
    assert_eq!(
        number(db, "select count(*) from idempotency_event where action = 'fail'").await,
        4
    );
    let jobs = "select count(*) from idempotency_job where last_outcome = 'ok'";
    assert_eq!(number(db, jobs).await, 2);
}

async fn operations(db: &Database) {
    fill(db).await;
    let stats = json(db, &["stats"]).await;
    assert_eq!(stats["rows"]["count"], 824, "{stats}");
    assert_eq!(stats["backlog"]["rows"]["count"], 800, "{stats}");
    assert!(stats["storage"]["total_bytes"].as_u64().unwrap() > 0, "{stats}");
    lists(db).await;
    endings(db).await;
    janitor(db).await;
    let stats = json(db, &["stats"]).await;
    assert_eq!(stats["rows"]["count"], 20, "{stats}");
    let doctor = run(db, &["doctor", "--problems"]).await;
    for check in ["schema ", "indexes ", "invalid_indexes ", "privileges."] {
        assert!(!doctor.stdout.contains(check), "{}", doctor.transcript());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_on_a_plain_table() {
    let db = database().await;
    run(&db, &["migrate"]).await.ok();
    operations(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_on_a_table_in_partitions() {
    let db = database().await;
    run(&db, &["migrate", "--partitions", "4"]).await.ok();
    operations(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn every_operation_on_a_table_that_citus_distributes() {
    let db = database().await;
    run(&db, &["migrate", "--citus"]).await.ok();
    operations(&db).await;
}
