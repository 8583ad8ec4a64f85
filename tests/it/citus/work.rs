//! What the operations do on a distributed table.

use serde_json::Value;

use super::{distributed, text};
use crate::support::{Database, Output, idemctl};

/// Five clients, wherever they come to lie: each with an expired key, and with done ones that are due.
async fn fill(db: &Database) {
    db.client
        .batch_execute(
            "insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at, completed_at)
             select 's' || n % 8, 'd' || n, repeat('ab', 32), 'done', at, at, at
               from generate_series(1, 800) n, lateral (select now() - interval '2 d' + n * interval '1 s' as at) t;
             insert into idempotency (client_id, key, fingerprint, locked_until)
             select 's' || n, 'x', repeat('ab', 32), now() - interval '1 h' from generate_series(0, 7) n",
        )
        .await
        .unwrap();
}

async fn run(db: &Database, args: &[&str]) -> Output {
    idemctl(args).on(&db.url).run().await
}

async fn json(db: &Database, args: &[&str]) -> Value {
    let output = run(db, &[args, &["-o", "json"]].concat()).await.ok();
    serde_json::from_str(&output).unwrap()
}

/// A client on a worker's node, and one on another's.
async fn two_clients(db: &Database) -> [(String, i32); 2] {
    let rows = db
        .client
        .query(
            "select distinct on (p.nodeport) 's' || n, d.nodeid
               from generate_series(0, 7) n,
                    lateral (select get_shard_id_for_distribution_column('idempotency', 's' || n) as id) s
               join pg_dist_shard_placement p on p.shardid = s.id
               join pg_dist_node d on (d.nodename, d.nodeport) = (p.nodename, p.nodeport)
              order by p.nodeport",
            &[],
        )
        .await
        .unwrap();
    assert!(rows.len() > 1, "the clients are spread");
    [0, 1].map(|n| (rows[n].get(0), rows[n].get(1)))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn a_change_and_its_event_are_committed_in_two_phases() {
    let db = distributed().await;
    fill(&db).await;
    // Citus keeps a record of each transaction that was prepared on a node, until it has looked that none is left.
    let prepared = async || -> i32 {
        let count = text(&db, "select count(*)::text from pg_dist_transaction").await;
        count.parse().unwrap()
    };
    let before = prepared().await;
    run(&db, &["release", "s1", "x", "--yes"]).await.ok();
    assert_eq!(prepared().await, before + 1);
    assert_eq!(json(&db, &["history", "s1", "x"]).await[0]["action"], "release");
    // What the services wait for has no part in that: a claim is one statement on one node.
    db.client
        .batch_execute("insert into idempotency (client_id, key, fingerprint) values ('s1', 'y', 'f')")
        .await
        .unwrap();
    assert_eq!(prepared().await, before + 1);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn counts_sizes_and_purge_concern_every_node() {
    let db = distributed().await;
    fill(&db).await;
    let stats = json(&db, &["stats"]).await;
    assert_eq!(stats["rows"]["count"], 808, "{stats}");
    let shards: u64 = text(&db, "select current_setting('citus.shard_count')")
        .await
        .parse()
        .unwrap();
    assert_eq!(stats["storage"]["tables"], shards, "{stats}");
    let total = text(&db, "select citus_total_relation_size('idempotency')::text").await;
    assert_eq!(stats["storage"]["total_bytes"].to_string(), total, "{stats}");
    assert_eq!(stats["unknown"], serde_json::json!([]), "{stats}");
    let doctor = run(&db, &["doctor", "-o", "json"]).await;
    let doctor: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let check = |name: &str| {
        let checks = doctor.as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap().clone()
    };
    for name in [
        "citus",
        "schema",
        "indexes",
        "invalid_indexes",
        "dead_rows",
        "statistics",
    ] {
        assert_eq!(check(name)["severity"], "ok", "{}", check(name));
    }
    let purged = json(&db, &["purge"]).await;
    assert_eq!(
        (&purged["deleted"], &purged["stopped"]),
        (&800.into(), &"done".into())
    );
    assert_eq!(text(&db, "select count(*)::text from idempotency").await, "8");
    let logged =
        "select sum((details ->> 'deleted')::int)::text from idempotency_event where action = 'purge'";
    assert_eq!(text(&db, logged).await, "800");
    let ids = run(&db, &["list", "--state", "expired", "--all", "-o", "ids"])
        .await
        .ok();
    assert_eq!(ids.lines().count(), 8, "{ids}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn a_row_that_is_locked_on_a_node_does_not_hold_the_purge_up() {
    let db = distributed().await;
    fill(&db).await;
    let locker = db.connect().await;
    locker
        .batch_execute("begin; update idempotency set owner = owner where client_id = 's1' and key = 'd1'")
        .await
        .unwrap();
    // Without a limit on the node it would wait until its statement's 30 seconds are over.
    let started = std::time::Instant::now();
    let purged = json(&db, &["purge"]).await;
    let (deleted, skipped) = (
        purged["deleted"].as_u64().unwrap(),
        purged["skipped"].as_u64().unwrap(),
    );
    assert!(
        deleted > 700 && skipped > 0 && deleted + skipped == 800,
        "{purged}"
    );
    assert!(started.elapsed().as_secs() < 25, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn a_dead_worker_stops_its_own_clients_alone() {
    let db = distributed().await;
    fill(&db).await;
    let [(alive, _), (dead, node)] = two_clients(&db).await;
    // For this database the node is where nobody listens; others of the same servers do not notice.
    db.client
        .execute("update pg_dist_node set nodeport = 1 where nodeid = $1", &[&node])
        .await
        .unwrap();
    run(&db, &["inspect", &alive, "x"]).await.ok();
    run(&db, &["release", &alive, "x", "--yes"]).await.ok();
    db.connect()
        .await
        .execute(
            "insert into idempotency (client_id, key, fingerprint) values ($1, 'new', 'f')",
            &[&alive],
        )
        .await
        .unwrap();
    for args in [
        &["inspect", &dead, "x"][..],
        &["release", &dead, "x", "--yes"],
        &["list"],
        &["purge"],
        &["release", "--expired", "--yes"],
    ] {
        let output = run(&db, args).await;
        assert_eq!(output.code, 7, "{}", output.transcript());
        assert!(
            output.stderr.contains("a node of the Citus cluster is down"),
            "{}",
            output.transcript()
        );
    }
    let stats = run(&db, &["stats"]).await;
    assert!(
        stats.stderr.contains("shards did not answer"),
        "{}",
        stats.transcript()
    );
    for unknown in ["rows      ? in", "expired   unknown", "backlog   ? rows"] {
        assert!(stats.stdout.contains(unknown), "{}", stats.transcript());
    }
}

/// Citus hands times on as text in the session's style, and a node may read another day in it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn a_style_of_dates_that_nodes_may_misread_is_refused() {
    let db = distributed().await;
    let name = &db.name;
    db.client
        .batch_execute(&format!("alter database {name} set datestyle = 'SQL, DMY'"))
        .await
        .unwrap();
    let output = run(&db, &["list"]).await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("set it to ISO"), "{}", output.transcript());
    let service = db.connect().await;
    let options = idemctl::protocol::Options::default();
    let refused = idemctl::protocol::Idempotency::open(&service, None, options).await;
    assert!(refused.unwrap_err().to_string().contains("DateStyle"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn each_statement_is_planned_over_the_shards() {
    let db = distributed().await;
    let keys = crate::protocol::open(&db.client).await;
    for statement in keys.store().statements() {
        let prepared = db.client.prepare_typed(&statement.text, statement.types).await;
        prepared.unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
    }
}

/// A size that nobody tells is unknown, not 0, and no whole table is read for it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn without_any_worker_the_size_is_unknown() {
    let db = distributed().await;
    db.client
        .batch_execute("update pg_dist_node set nodeport = groupid where groupid > 0")
        .await
        .unwrap();
    let stats = json(&db, &["stats"]).await;
    assert_eq!(stats["storage"], Value::Null, "{stats}");
    let unknown = stats["unknown"].to_string();
    assert!(unknown.contains("shards did not answer: "), "{unknown}");
    assert!(unknown.contains("not read without an exact count"), "{unknown}");
}

/// The reason that a node gives is shown as it gave it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn the_words_of_a_node_are_shown_as_they_are() {
    let db = super::cluster().await;
    let schema = ["--schema", "a<b&c"];
    run(&db, &[&["migrate", "--citus"], &schema[..]].concat())
        .await
        .ok();
    let drop = r#"select bool_and(success)::text
                    from run_command_on_shards('"a<b&c".idempotency',
                             'set citus.enable_manual_changes_to_shards to on; drop table %s')"#;
    assert_eq!(text(&db, drop).await, "true");
    let doctor = run(&db, &[&["doctor", "-o", "json"], &schema[..]].concat()).await;
    assert!(
        doctor.stdout.contains("shards did not answer: ") && doctor.stdout.contains("a<b&c.idempotency_"),
        "{}",
        doctor.transcript()
    );
    assert!(!doctor.stdout.contains("&lt;"), "{}", doctor.transcript());
}

/// The extension alone changes nothing for a table that this server holds by itself.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn a_plain_table_takes_any_style_of_dates() {
    let db = super::cluster().await;
    run(&db, &["migrate"]).await.ok();
    let name = &db.name;
    db.client
        .batch_execute(&format!("alter database {name} set datestyle = 'SQL, DMY'"))
        .await
        .unwrap();
    run(&db, &["list"]).await.ok();
}

/// A coordinator spends more on a claim than a plain server; so services may ask any node.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Citus: IDEMCTL_TEST_DATABASE_URL"]
async fn services_claim_by_way_of_a_worker() {
    use crate::protocol::{acquire, open, replay, request, response};
    let db = distributed().await;
    let row = db
        .client
        .query_one(
            "select nodename::text, nodeport from pg_dist_node where groupid > 0 order by groupid limit 1",
            &[],
        )
        .await
        .unwrap();
    let worker = crate::support::connect(&db.url_at(row.get(0), row.get(1))).await;
    let keys = open(&worker).await;
    for key in ["a", "b", "c"] {
        let mut lease = acquire(&keys, &worker, &request(key)).await;
        lease.complete(&worker, &response("paid")).await.unwrap();
        // The same row, by way of the coordinator.
        let answer = replay(&open(&db.client).await, &db.client, &request(key)).await;
        assert_eq!(answer.body(), b"paid");
    }
    let ids = run(&db, &["list", "-o", "ids"]).await.ok();
    assert_eq!(ids.lines().count(), 3, "{ids}");
}
