//! `idemctl stats`.

use serde_json::{Value, json};

use super::fixture::{Cli, calm, cli, filled, without_widths};
use crate::protocol::Table;
use crate::support::{PgbouncerOptions, pgbouncer, temp_dir, until};

async fn stats(cli: &Cli, args: &[&str]) -> Value {
    let args = [&["stats", "-o", "json"], args].concat();
    let output = calm(cli.command(&args).run().await).ok();
    serde_json::from_str(&output).unwrap()
}

fn count(of: &Value) -> u64 {
    of["count"].as_u64().unwrap_or_else(|| panic!("{of}"))
}

fn of_state<'a>(stats: &'a Value, name: &str) -> &'a Value {
    let all = stats["states"].as_array().unwrap();
    all.iter().find(|state| state["state"] == name).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_table_is_counted() {
    let cli = filled().await;
    let stats = stats(&cli, &["--top", "2"]).await;
    assert_eq!(stats["estimated"], false);
    assert_eq!(
        stats["rows"],
        json!({"count": 7, "estimated": false, "at_least": false})
    );
    for (name, rows) in [("in_progress", 1), ("expired", 3), ("done", 2), ("failed", 1)] {
        let found = of_state(&stats, name);
        assert_eq!(count(found), rows, "{name}");
        let ages = found["ages"].as_array().unwrap();
        assert_eq!(ages.iter().map(count).sum::<u64>(), rows, "{name}");
    }
    // 15 minutes old, and twice 2 hours.
    let ages: Vec<u64> = of_state(&stats, "expired")["ages"]
        .as_array()
        .unwrap()
        .iter()
        .map(count)
        .collect();
    assert_eq!(ages, [0, 0, 1, 2, 0, 0, 0]);
    assert_eq!(count(&stats["taken_over"]), 1);
    assert_eq!(stats["losers_share"], Value::Null);
    assert_eq!(stats["clients"]["known"], 3);
    let top = stats["clients"]["top"].as_array().unwrap();
    assert_eq!(top.len(), 2);
    assert_eq!(
        (&top[0]["name"], count(&top[0]), &top[0]["expired"]),
        (&json!("shop-2"), 3, &json!(0))
    );
    let providers = stats["providers"]["top"].as_array().unwrap();
    assert_eq!((&providers[0]["name"], count(&providers[0])), (&json!("acme"), 4));
    assert_eq!((&providers[1]["name"], count(&providers[1])), (&Value::Null, 3));
    assert_eq!(stats["oldest_expired"]["client_id"], "shop-9");
    assert!(stats["storage"]["total_bytes"].as_u64().unwrap() >= 8192);
    assert_eq!(count(&stats["backlog"]["rows"]), 0);
    assert_eq!(stats["backlog"]["eta_seconds"], 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn forms() {
    let _private =
        crate::support::not_on_citus("it gives a row to another client, which Citus refuses").await;
    let cli = filled().await;
    let text = calm(cli.command(&["stats"]).run().await).ok();
    for part in [
        "rows      7 in schema public",
        "1 keys acquired more than once (14.29 %)",
        "idemctl_reserve_total",
        "the oldest is shop-9 order-",
        "backlog   0 rows are past their retention",
        "STATE       ",
        "CLIENT ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        without_widths(&text).contains("expired  3  0  0  1  2  0  0  0"),
        "{text}"
    );
    let csv = calm(cli.command(&["stats", "-o", "csv"]).run().await).ok();
    assert!(
        csv.starts_with("metric,name,value,estimated\nrows,,7,false\nstate,in_progress,1,false\n"),
        "{csv}"
    );
    let output = calm(cli.command(&["stats", "-o", "ids"]).run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
    let output = calm(cli.command(&["stats", "--rate", "0"]).run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
    // What drives a terminal stays where it is.
    cli.execute("update idempotency set client_id = E'\\x1b[31mred', provider = E'\\x1b[31m' where client_id = 'shop-9'")
        .await;
    let text = calm(cli.command(&["stats"]).run().await).ok();
    assert!(
        !text.contains('\u{1b}') && text.contains("\\u{1b}[31mred"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_are_summed_and_an_empty_table_has_numbers_too() {
    let cli = Cli {
        db: Table::partitioned().await.db,
        dir: temp_dir(),
    };
    let empty = stats(&cli, &[]).await;
    assert_eq!(count(&empty["rows"]), 0);
    assert_eq!(empty["oldest_expired"], Value::Null);
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, status)
         select 'shop-' || i % 50, 'k' || i, repeat('ab', 32), 'done' from generate_series(1, 5000) i;
         analyze",
    )
    .await;
    // Up to PostgreSQL 14 the server's counters come a little later.
    until("the server knows of the analyze", async || {
        stats(&cli, &[]).await["storage"]["never_analyzed"] == 0
    })
    .await;
    let stats = stats(&cli, &[]).await;
    assert_eq!(count(&stats["rows"]), 5000);
    let storage = &stats["storage"];
    let leaves = cli
        .number("select count(*) from pg_partition_tree('idempotency') where isleaf")
        .await;
    assert_eq!(storage["tables"].as_i64().unwrap(), leaves);
    let bytes = cli
        .number(
            "select sum(pg_total_relation_size(relid))::int8 from pg_partition_tree('idempotency') where isleaf",
        )
        .await;
    assert_eq!(storage["total_bytes"].as_i64().unwrap(), bytes);
    assert_eq!(storage["never_analyzed"], 0);
    assert_eq!(storage["never_vacuumed"].as_i64().unwrap(), leaves);
    assert!(storage["last_analyze"].is_string());
    assert_eq!(stats["clients"]["known"], 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backlog_and_how_long_it_takes() {
    let cli = cli().await;
    let insert = "insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at)
                  select 's', 'k' || clock_timestamp() || i, '', 'done', now() - interval '3 d', now() - interval '2 d'
                    from generate_series(1, 300) i";
    cli.execute(insert).await;
    let before = stats(&cli, &[]).await;
    assert_eq!(count(&before["backlog"]["rows"]), 300);
    assert_eq!(
        before["backlog"]["eta_seconds"],
        Value::Null,
        "no purge has been there: {before}"
    );
    let given = stats(&cli, &["--rate", "100"]).await;
    assert_eq!(given["backlog"]["eta_seconds"], 3.0);
    assert_eq!(given["backlog"]["rate_source"], "given");
    calm(cli.command(&["purge", "--batch-size", "100"]).run().await).ok();
    cli.execute(insert).await;
    let after = stats(&cli, &[]).await;
    assert_eq!(after["backlog"]["rate_source"], "last_purges");
    assert!(after["backlog"]["eta_seconds"].as_f64().unwrap() > 0.0, "{after}");
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler() {
    let _private = crate::support::privately("a pooler stands before its server");
    let cli = filled().await;
    let pooler = pgbouncer(&cli.db, PgbouncerOptions::default()).await;
    let output = cli.command(&["stats", "-o", "json"]).on(&pooler.url).run().await;
    let stats: Value = serde_json::from_str(&calm(output).ok()).unwrap();
    assert_eq!(count(&stats["rows"]), 7);
    assert_eq!(stats["unknown"], json!([]));
}

/// The questions about keys in progress never read the table, even where the planner thinks that there are many.
async fn plans(cli: &Cli) {
    cli.execute("set plan_cache_mode = force_custom_plan; analyze")
        .await;
    let store = idemctl::store::Store::open(&cli.db.client, None).await.unwrap();
    for (name, args) in [
        ("stats_live", "(100001)"),
        ("stats_expired", "(100001, 0)"),
        ("stats_oldest_expired", ""),
    ] {
        let text = store
            .statements()
            .find(|sql| sql.name == name)
            .unwrap()
            .text
            .to_string();
        cli.execute(&format!("prepare {name} as {text}")).await;
        let rows = cli
            .db
            .client
            .query(&format!("explain execute {name} {args}"), &[])
            .await
            .unwrap();
        let plan: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(
            plan.contains("idempotency_expired_idx") && !plan.contains("Seq Scan"),
            "{name}: {plan}"
        );
    }
}

/// 80 MB of pages, of which 16 are looked at.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_table_is_sampled_and_says_so() {
    let _private = crate::support::not_on_citus("the plan is one of shards").await;
    let cli = cli().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, status, owner, attempt, provider)
         select case when i % 4 = 0 then 'big' else 'shop-' || i % 7 end, 'k' || i, '',
                case when i % 10 = 0 then 'failed' else 'done' end, repeat('o', 700), 1 + (i % 5 = 0)::int, 'acme'
           from generate_series(1, 100000) i;
         insert into idempotency (client_id, key, fingerprint, locked_until)
         select 'late', 'k' || i, '', now() - make_interval(mins => i) from generate_series(1, 17) i;
         insert into idempotency (client_id, key, fingerprint, locked_until)
         select 'live', 'k' || i, '', now() + interval '1 h' from generate_series(1, 3) i",
    )
    .await;
    let near = |found: u64, wanted: u64| {
        let (low, high) = (wanted * 8 / 10, wanted * 12 / 10);
        assert!((low..=high).contains(&found), "{found} is not about {wanted}");
    };
    let sampled = stats(&cli, &[]).await;
    assert_eq!(sampled["estimated"], true);
    assert_eq!(sampled["rows"]["estimated"], true);
    near(count(&sampled["rows"]), 100_020);
    near(count(of_state(&sampled, "failed")), 10_000);
    near(count(&sampled["taken_over"]), 20_000);
    assert_eq!(sampled["clients"]["top"][0]["name"], "big");
    near(count(&sampled["clients"]["top"][0]), 25_000);
    // Every part looks at the same pages, so that they fit each other.
    let providers = sampled["providers"]["top"].as_array().unwrap();
    let together: u64 = providers.iter().map(count).sum();
    assert!(together.abs_diff(count(&sampled["rows"])) <= 1, "{sampled}");
    // From the index, not from the sample.
    for (name, rows) in [("expired", 17), ("in_progress", 3)] {
        let found = of_state(&sampled, name);
        assert_eq!(
            (count(found), &found["estimated"]),
            (rows, &json!(false)),
            "{name}"
        );
    }
    let text = calm(cli.command(&["stats"]).run().await).ok();
    assert!(
        text.contains("rows      ~") && text.contains("from a sample of"),
        "{text}"
    );
    let exact = stats(&cli, &["--exact"]).await;
    assert_eq!(exact["estimated"], false);
    assert_eq!(count(&exact["rows"]), 100_020);
    assert_eq!(count(of_state(&exact, "failed")), 10_000);
    plans(&cli).await;
    // More are due than are counted: then the sample says how many, but never less than was counted.
    cli.execute(
        "update idempotency set locked_until = now() - interval '3 d', created_at = now() - interval '3 d'
          where status in ('done', 'failed');
         insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at)
         select 'due', 'k' || i, '', 'done', now() - interval '3 d', now() - interval '3 d'
           from generate_series(1, 1000) i",
    )
    .await;
    let backlog = &stats(&cli, &[]).await["backlog"]["rows"];
    assert!(count(backlog) >= 100_000, "{backlog}");
    near(count(backlog), 101_000);
    assert!(
        backlog["estimated"] == true || backlog["at_least"] == true,
        "{backlog}"
    );
    let exact = stats(&cli, &["--exact"]).await;
    assert_eq!(count(&exact["backlog"]["rows"]), 101_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_told_is_unknown() {
    let _private = crate::support::privately("it makes roles");
    let cli = filled().await;
    let reader = format!("reader_{}", cli.db.name);
    cli.execute(&format!(
        "create role {reader} login; grant usage on schema public to {reader};
         grant select on idempotency to {reader}"
    ))
    .await;
    let url = cli.db.url.replacen("idemctl@", &format!("{reader}@"), 1);
    let output = calm(cli.command(&["stats", "-o", "json"]).on(&url).run().await);
    let stderr = output.stderr.clone();
    let stats: Value = serde_json::from_str(&output.ok()).unwrap();
    assert_eq!(count(&stats["rows"]), 7);
    assert_eq!(stats["backlog"]["rate_per_second"], Value::Null);
    let unknown = stats["unknown"].as_array().unwrap();
    assert!(
        unknown[0].as_str().unwrap().contains("may not see"),
        "{unknown:?}"
    );
    assert!(stderr.contains("the pace of the last purges"), "{stderr}");
    // Somebody else's lock: nothing is known of the rows, and that is said within the time limit.
    let mut other = cli.db.connect().await;
    let tx = other.transaction().await.unwrap();
    tx.batch_execute("lock table idempotency").await.unwrap();
    let output = calm(
        cli.command(&["stats", "-o", "json", "--lock-timeout", "50ms"])
            .run()
            .await,
    );
    let stats: Value = serde_json::from_str(&output.stdout).unwrap_or(Value::Null);
    assert!(
        output.code == 7 || stats["rows"] == Value::Null,
        "{}",
        output.transcript()
    );
}

/// A size that is not known is not 0: else a table of any size would be read as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_size_nothing_is_read_as_a_whole() {
    let _private = crate::support::privately("it makes roles");
    let cli = filled().await;
    let reader = format!("reader_{}", cli.db.name);
    cli.execute(&format!(
        "create role {reader} login; grant select on all tables in schema public to {reader};
         revoke execute on function pg_table_size(regclass) from public"
    ))
    .await;
    let url = cli.db.url.replacen("idemctl@", &format!("{reader}@"), 1);
    let stats = |more: &'static [&'static str]| {
        let run = cli.command(&[&["stats"], more].concat()).on(&url);
        async { calm(run.run().await).ok() }
    };
    let json: Value = serde_json::from_str(&stats(&["-o", "json"]).await).unwrap();
    for part in ["storage", "event_log", "rows"] {
        assert_eq!(json[part], Value::Null, "{json}");
    }
    let unknown = json["unknown"].to_string();
    for part in ["the size of idempotency: ", "not read without an exact count"] {
        assert!(unknown.contains(part), "{unknown}");
    }
    assert_eq!(json["oldest_expired"]["client_id"], "shop-9");
    let text = stats(&[]).await;
    for part in [
        "rows      ? in schema",
        "size      unknown\n",
        "events    unknown\n",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let csv = stats(&["-o", "csv"]).await;
    assert!(csv.contains("backlog") && !csv.contains("size"), "{csv}");
    let json: Value = serde_json::from_str(&stats(&["--exact", "-o", "json"]).await).unwrap();
    assert_eq!(count(&json["rows"]), 7);
}
