//! What happens between the batches and the cut-over, and that nobody can charge beside the new table.

use idemctl::key::KeyId;
use idemctl::protocol::Reservation;

use super::{adopt, ask, halves, migrated, psql};
use crate::support::{Database, database};

/// Services of theirs at work.
const KEYS: &str = "create table keys (tenant_id text, request_id text, request_hash text, status text, status_code int,
    response json, created_at timestamptz default now(), locked_until timestamptz, primary key (tenant_id, request_id));
    insert into keys
    select 't', k, encode(sha256('one'), 'hex'), s, c, r::json, now() - interval '1 h', now() + interval '1 h'
      from (values ('failed to done', 'failed', 500, '{\"e\": 1}'), ('claimed anew', 'done', 201, '{\"id\": 1}'),
                   ('deleted', 'done', 201, '{\"id\": 2}'), ('deleted live', 'in_progress', null, null),
                   ('live to done', 'in_progress', null, null), ('live', 'in_progress', null, null),
                   ('other answer', 'done', 201, '{\"id\": 3}'), ('other body', 'done', 201, '{\"id\": 4}'),
                   ('other lease', 'in_progress', null, null), ('same', 'done', 201, '{\"id\": 5}')) v(k, s, c, r)";

const CHANGES: &str = "update keys set status = 'done', status_code = 201, response = '{\"id\": 9}'
     where request_id in ('failed to done', 'live to done');
    delete from keys where request_id in ('claimed anew', 'deleted', 'deleted live');
    insert into keys values ('t', 'claimed anew', encode(sha256('two'), 'hex'), 'in_progress', null, null, now(),
                             now() + interval '1 h'),
                            ('t', 'new', encode(sha256('one'), 'hex'), 'done', 202, '[]', now(), now()),
                            ('t', 'new live', encode(sha256('one'), 'hex'), 'in_progress', null, null, now(), now());
    update keys set response = '{\"id\":3}' where request_id = 'other answer';
    update keys set request_hash = encode(sha256('two'), 'hex') where request_id = 'other body';
    update keys set locked_until = now() + interval '2 h' where request_id = 'other lease'";

/// The script for these arguments, in its two halves.
async fn script(db: &Database, args: &[&str]) -> (String, String) {
    let args: Vec<&str> = args.iter().chain(&["--show-sql"]).copied().collect();
    let script = adopt(db, &args).run().await.ok();
    let (batches, cut_over) = halves(&script);
    (batches.to_owned(), cut_over.to_owned())
}

async fn strings(db: &Database, query: &str) -> Vec<String> {
    let rows = db.client.query(query, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_changed_is_as_it_is_now() {
    let db = database().await;
    db.client.batch_execute(KEYS).await.unwrap();
    let (batches, cut_over) = script(&db, &["keys"]).await;
    psql(&db, &batches).await.ok();
    db.client.batch_execute(CHANGES).await.unwrap();
    psql(&db, &cut_over).await.ok();
    let row = |table: &str, client: &str, key: &str, print: &str| {
        format!(
            "select concat_ws('|', {client}, {key}, {print}, status, status_code, response::text, created_at, \
             locked_until) from {table} order by {key}"
        )
    };
    let theirs = strings(
        &db,
        &row("keys_retired", "tenant_id", "request_id", "request_hash"),
    )
    .await;
    let ours = strings(&db, &row("idempotency", "client_id", "key", "fingerprint")).await;
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 10, "{ours:#?}");
}

/// A row that is not the one of their table, however it came there, ends the cut-over.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_somebody_else_wrote_into_is_refused() {
    for spoil in [
        "insert into idempotency_adopting (client_id, key, fingerprint, lease_token)
         values ('t', 'theirs alone', '', gen_random_uuid())",
        "update idempotency_adopting set status_code = 299, lease_token = gen_random_uuid() where key = 'same'",
    ] {
        let db = database().await;
        db.client.batch_execute(KEYS).await.unwrap();
        let (batches, cut_over) = script(&db, &["keys"]).await;
        psql(&db, &batches).await.ok();
        db.client.batch_execute(spoil).await.unwrap();
        let output = psql(&db, &cut_over).await;
        assert_eq!(output.code, 3, "{spoil}: {}", output.transcript());
        assert!(
            output.stderr.contains("1 rows "),
            "{spoil}: {}",
            output.transcript()
        );
        db.client.batch_execute("select from keys").await.unwrap();
    }
}

/// Until the copy is complete no key can be claimed in it; afterwards none in theirs.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_claims_in_a_half_copy_or_in_the_retired_table() {
    let db = database().await;
    db.client
        .batch_execute(&format!(
            "{KEYS}; create view by_another_name as select * from keys"
        ))
        .await
        .unwrap();
    let (batches, cut_over) = script(&db, &["keys"]).await;
    psql(&db, &batches).await.ok();
    let there = "select to_regclass('idempotency') is null";
    assert!(db.client.query_one(there, &[]).await.unwrap().get::<_, bool>(0));
    let again = adopt(&db, &["keys"]).run().await;
    assert_eq!(again.code, 4, "{}", again.transcript());
    assert!(
        again
            .stderr
            .contains("public.idempotency_adopting is there already"),
        "{}",
        again.transcript()
    );
    psql(&db, &cut_over).await.ok();
    for write in [
        "insert into by_another_name (tenant_id, request_id, status) values ('t', 'beside', 'in_progress')",
        "update by_another_name set status = 'in_progress' where request_id = 'same'",
    ] {
        let error = db.client.batch_execute(write).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "23514", "{write}: {error}");
    }
    let names =
        "select conname::text from pg_constraint where conrelid = 'idempotency'::regclass and contype = 'p'";
    assert_eq!(strings(&db, names).await, ["idempotency_pkey"]);
}

/// Nothing was in progress when it was looked at, and something is at the cut-over, in whatever case.
#[tokio::test(flavor = "multi_thread")]
async fn known_words_that_come_later() {
    let db = database().await;
    db.client
        .batch_execute(&format!(
            "{KEYS}; delete from keys where status <> 'done'; update keys set status = 'Completed'"
        ))
        .await
        .unwrap();
    let (batches, cut_over) = script(&db, &["keys"]).await;
    psql(&db, &batches).await.ok();
    db.client
        .batch_execute(
            "insert into keys select 't', s, '', s from unnest(array['in_progress', 'Processing', 'done', 'FAILED']) s",
        )
        .await
        .unwrap();
    psql(&db, &cut_over).await.ok();
    let states = "select key || ': ' || status from idempotency where fingerprint = encode(sha256(''), 'hex')
                  order by key collate \"C\"";
    assert_eq!(
        strings(&db, states).await,
        [
            "FAILED: failed",
            "Processing: in_progress",
            "done: done",
            "in_progress: in_progress"
        ]
        .map(str::to_owned)
    );
}

/// A word without a meaning stops the batches, too, by its name.
#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_word_in_the_batches() {
    let db = database().await;
    db.client.batch_execute(KEYS).await.unwrap();
    let (batches, _) = script(&db, &["keys"]).await;
    db.client
        .batch_execute("update keys set status = 'parked' where request_id = 'same'")
        .await
        .unwrap();
    let output = psql(&db, &batches).await;
    assert_eq!(output.code, 3, "{}", output.transcript());
    for part in [
        "the word \"parked\"",
        "drop table \"public\".idempotency_adopting",
    ] {
        assert!(output.stderr.contains(part), "{part}: {}", output.transcript());
    }
}

/// Names that are lists, variables or other collations.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_the_script_itself() {
    for (client, key) in [("ten, ant", "begun"), ("low1", "high1"), ("odd", "wrong")] {
        let db = database().await;
        db.client
            .batch_execute(&format!(
                "create table k (\"{client}\" text collate \"C\", \"{key}\" text collate \"C\", status text collate \"C\",
                                 request_hash text collate \"C\", owner text collate \"POSIX\",
                                 primary key (\"{client}\", \"{key}\"));
                 insert into k select 'c' || i % 3, 'k' || i, 'done', '' from generate_series(1, 11000) i"
            ))
            .await
            .unwrap();
        let (client, key) = (format!("{client}=client_id"), format!("{key}=key"));
        let args = ["k", "--map", &client, "--map", &key];
        migrated(&db, &args, "public").await;
        let rows = strings(
            &db,
            "select count(*)::text from idempotency where status = 'done'",
        )
        .await;
        assert_eq!(rows, ["11000"], "{client}, {key}");
    }
}

/// Their table may have our name, in another schema.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_our_name() {
    let db = database().await;
    db.client
        .batch_execute(&format!("{KEYS}; alter table keys rename to idempotency"))
        .await
        .unwrap();
    let args = ["idempotency", "--schema", "d2"];
    assert!(super::rehearsed(&db, &args).await.is_empty());
    let keys = migrated(&db, &args, "d2").await;
    let live = ask(&db, &keys, "d2", &KeyId::new("t", "live").unwrap()).await;
    assert!(matches!(live, Reservation::InProgress(_)), "{live:?}");
}

/// The owner, for whom a policy hides rows, runs what somebody else had printed.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_a_policy_hides_from_the_script() {
    let _private = crate::support::privately("it makes roles");
    let db = database().await;
    let role = format!("owner_{}", db.name);
    db.client
        .batch_execute(&format!(
            "{KEYS}; create role {role} login; grant create, usage on schema public to {role};
             alter table keys owner to {role}; alter table keys enable row level security;
             alter table keys force row level security; create policy p on keys using (request_id <> 'same')"
        ))
        .await
        .unwrap();
    let (batches, cut_over) = script(&db, &["keys"]).await;
    let script = format!("set role {role};{batches}{cut_over}");
    // Not made by this role, which has no right to make schemas; this one is there.
    let script = script.replace("create schema if not exists \"public\";", "");
    let output = psql(&db, &script).await;
    assert_eq!(output.code, 3, "{}", output.transcript());
    assert!(
        output.stderr.contains("row-level security"),
        "{}",
        output.transcript()
    );
    db.client.batch_execute("select from keys").await.unwrap();
}

/// The library does not know how it is asked.
#[test]
fn the_library_names_no_flag() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = vec![root.join("ops/adopt.rs"), root.join("store/adopt.rs")];
    for dir in ["ops/adopt", "store/adopt"] {
        let found = std::fs::read_dir(root.join(dir)).unwrap();
        files.extend(found.map(|entry| entry.unwrap().path()));
    }
    assert!(files.len() > 10, "{files:?}");
    let flags = regex::Regex::new(r"--[a-z]|psql|idemctl [a-z]+").unwrap();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for line in text.lines().filter(|line| !line.contains("-- idemctl:")) {
            assert!(!flags.is_match(line), "{}: {line}", file.display());
        }
    }
}
