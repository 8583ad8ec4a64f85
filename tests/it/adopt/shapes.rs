//! Five tables as they are met in the wild, each really copied.

use idemctl::key::KeyId;
use idemctl::protocol::Reservation;

use super::{adopt, ask, claims, halves, migrated, psql, rehearsed, replays};
use crate::support::database;

/// As Rails services have it: a number for the client, a recovery point, the beginning of the lock.
pub(super) const RAILS: &str = r#"create table idempotency_keys (
    id bigserial primary key, created_at timestamptz not null default now(), idempotency_key text not null,
    last_run_at timestamptz not null default now(), locked_at timestamptz,
    request_method varchar(10) not null, request_params jsonb not null, request_path varchar(100) not null,
    response_code int, response_body jsonb, recovery_point varchar(50) not null, user_id bigint not null);
    create unique index on idempotency_keys (user_id, idempotency_key);
    insert into idempotency_keys (idempotency_key, request_method, request_params, request_path, response_code,
                                  response_body, recovery_point, user_id)
    select 'ride-' || i, 'POST', jsonb_build_object('amount', i), '/rides', 201, jsonb_build_object('id', i),
           'finished', i % 7 from generate_series(1, 12000) i;
    insert into idempotency_keys (idempotency_key, locked_at, request_method, request_params, request_path,
                                  recovery_point, user_id)
    values ('live', now(), 'POST', '{"amount": 1}', '/rides', 'started', 1),
           ('dead', now() - interval '1 h', 'POST', '{"amount": 1}', '/rides', 'charge_created', 1),
           ('free', null, 'POST', '{"amount": 1}', '/rides', 'started', 1);"#;

pub(super) const RAILS_ARGS: [&str; 5] = [
    "idempotency_keys",
    "--status",
    "charge_created=in_progress",
    "--lease",
    "90s",
];

#[tokio::test(flavor = "multi_thread")]
async fn rails() {
    let db = database().await;
    db.client.batch_execute(RAILS).await.unwrap();
    assert!(rehearsed(&db, &RAILS_ARGS).await.is_empty());
    let keys = migrated(&db, &RAILS_ARGS, "public").await;
    replays(&db, &keys, "public", ("3", "ride-10"), 201, b"{\"id\": 10}").await;
    let one = |key| KeyId::new("1", key).unwrap();
    let live = ask(&db, &keys, "public", &one("live")).await;
    assert!(matches!(live, Reservation::InProgress(_)), "{live:?}");
    for key in ["dead", "free"] {
        let answer = ask(&db, &keys, "public", &one(key)).await;
        assert!(matches!(answer, Reservation::Expired(_)), "{key}: {answer:?}");
    }
    claims(&db, &keys).await;
    let counts = db
        .client
        .query_one(
            "select (select count(*) from idempotency), (select count(*) from idempotency_keys_retired),
                    (select extract(epoch from locked_until - locked_at)::int from idempotency
                       join idempotency_keys_retired r on r.idempotency_key = key where key = 'live')",
            &[],
        )
        .await
        .unwrap();
    let counts: (i64, i64, i32) = (counts.get(0), counts.get(1), counts.get(2));
    assert_eq!(counts, (12_004, 12_003, 90));
}

/// What happens between the batches and the cut-over is in the copy.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_change_while_it_copies() {
    let db = database().await;
    db.client.batch_execute(RAILS).await.unwrap();
    let args: Vec<&str> = RAILS_ARGS.iter().chain(&["--show-sql"]).copied().collect();
    let script = adopt(&db, &args).run().await.ok();
    let (batches, cut_over) = halves(&script);
    psql(&db, batches).await.ok();
    db.client
        .batch_execute(
            "update idempotency_keys set recovery_point = 'finished', response_code = 402, response_body = '{}'
              where idempotency_key = 'live';
             insert into idempotency_keys (idempotency_key, request_method, request_params, request_path,
                                           response_code, response_body, recovery_point, user_id)
             values ('late', 'POST', '{}', '/rides', 200, '[1]', 'finished', 0)",
        )
        .await
        .unwrap();
    psql(&db, cut_over).await.ok();
    let rows: Vec<(String, String, i32)> = db
        .client
        .query(
            "select key, status, status_code from idempotency where key in ('live', 'late') order by key",
            &[],
        )
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let done = |key: &str, code| (key.to_owned(), "done".to_owned(), code);
    assert_eq!(rows, [done("late", 200), done("live", 402)]);
    // An old service that goes on fails, rather than charging beside the new ones.
    let old = db.client.query("select from idempotency_keys", &[]).await;
    assert_eq!(old.unwrap_err().code().unwrap().code(), "42P01");
}

/// A word that nobody has mentioned stops the copy, and nothing of the cut-over is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_comes_later_stops_the_script() {
    let db = database().await;
    db.client.batch_execute(RAILS).await.unwrap();
    let args: Vec<&str> = RAILS_ARGS.iter().chain(&["--show-sql"]).copied().collect();
    let script = adopt(&db, &args).run().await.ok();
    let (batches, cut_over) = halves(&script);
    psql(&db, batches).await.ok();
    db.client
        .batch_execute(
            "insert into idempotency_keys (idempotency_key, request_method, request_params, request_path,
                                           recovery_point, user_id)
             values ('odd', 'POST', '{}', '/rides', 'ride_created', 0)",
        )
        .await
        .unwrap();
    let output = psql(&db, cut_over).await;
    assert_eq!(output.code, 3, "{}", output.transcript());
    for part in [
        "the word \"ride_created\"",
        "drop table \"public\".idempotency_adopting",
    ] {
        assert!(output.stderr.contains(part), "{part}: {}", output.transcript());
    }
    db.client
        .query("select from idempotency_keys", &[])
        .await
        .unwrap();
}

/// An enum, times without a zone, a code and a body as text, the lease's end; the key comes first in the index.
#[tokio::test(flavor = "multi_thread")]
async fn an_enum_and_texts() {
    let db = database().await;
    db.client
        .batch_execute(
            "create schema payments;
             create type payments.step as enum ('STARTED', 'SUCCEEDED', 'FAILED', 'REVIEW');
             create table payments.request (
               request_id varchar(64) not null, merchant_id uuid not null, request_hash char(64) not null,
               state payments.step not null default 'STARTED', lease_until timestamptz, http_status varchar(3),
               response_body text, inserted_at timestamp not null, finished_at timestamp, attempts int not null default 1,
               note text, shout text generated always as (upper(note)) stored,
               primary key (request_id, merchant_id));
             insert into payments.request values
               ('r-1', '5f1c0f0a-0000-4000-8000-000000000001', repeat('AB', 32), 'SUCCEEDED', null, '201',
                E'h\\u00e9 {\"a\": 1}\\n', '2026-11-01 10:00', '2026-11-01 10:01', 2),
               ('r-2', '5f1c0f0a-0000-4000-8000-000000000001', repeat('cd', 32), 'FAILED', null, '402', null,
                '2026-11-01 10:00', '2026-11-01 10:01', 1),
               ('r-3', '5f1c0f0a-0000-4000-8000-000000000001', repeat('ef', 32), 'STARTED', now() + interval '1 h', null,
                null, '2026-11-01 10:00', null, 1),
               ('r-4', '5f1c0f0a-0000-4000-8000-000000000001', 'md5', 'FAILED', null, null, 'declined',
                '2026-11-01 10:00', null, 1)",
        )
        .await
        .unwrap();
    let args = [
        "payments.request",
        "--status",
        "REVIEW=in_progress",
        "--time-zone",
        "Asia/Tokyo",
    ];
    assert!(rehearsed(&db, &args).await.is_empty());
    let keys = migrated(&db, &args, "payments").await;
    let merchant = "5f1c0f0a-0000-4000-8000-000000000001";
    replays(
        &db,
        &keys,
        "payments",
        (merchant, "r-1"),
        201,
        "h\u{e9} {\"a\": 1}\n".as_bytes(),
    )
    .await;
    replays(&db, &keys, "payments", (merchant, "r-2"), 402, b"").await;
    // A final error without a code is no success.
    replays(&db, &keys, "payments", (merchant, "r-4"), 500, b"declined").await;
    let busy = ask(&db, &keys, "payments", &KeyId::new(merchant, "r-3").unwrap()).await;
    assert!(matches!(busy, Reservation::InProgress(_)), "{busy:?}");
    claims(&db, &keys).await;
    let row = db
        .client
        .query_one(
            "select fingerprint, attempt, (created_at at time zone 'UTC')::text from payments.idempotency
              where key = 'r-1'",
            &[],
        )
        .await
        .unwrap();
    let row: (String, i32, String) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(row, ("ab".repeat(32), 2, "2026-11-01 01:00:00".to_owned()));
}

/// A UUID for a key, no client, a truth value for the state, bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_uuid_without_a_client() {
    let db = database().await;
    db.client
        .batch_execute(
            "create table dedup (id uuid primary key, request_hash bytea not null, finished boolean not null,
                                 response_body bytea, created_at timestamptz not null default now());
             insert into dedup values
               ('0a000000-0000-4000-8000-000000000001', sha256('one'), true, '\\x00ff'),
               ('0a000000-0000-4000-8000-000000000002', '\\x1234', false, null)",
        )
        .await
        .unwrap();
    let alone = adopt(&db, &["dedup"]).run().await;
    assert_eq!(alone.code, 4, "{}", alone.transcript());
    assert!(
        alone.stderr.contains("--client-constant NAME"),
        "{}",
        alone.transcript()
    );
    let args = [
        "dedup",
        "--map",
        "id=key",
        "--map",
        "finished=status",
        "--status",
        "true=done",
        "--status",
        "false=in_progress",
        "--client-constant",
        "the app's",
        "--schema",
        "keys",
    ];
    assert!(rehearsed(&db, &args).await.is_empty());
    let keys = migrated(&db, &args, "keys").await;
    let done = ("the app's", "0a000000-0000-4000-8000-000000000001");
    replays(&db, &keys, "keys", done, 200, b"\x00\xff").await;
    claims(&db, &keys).await;
}

/// Nothing but a response tells that a request is finished, and nothing of the request was kept.
#[tokio::test(flavor = "multi_thread")]
async fn no_state_and_no_fingerprint() {
    let db = database().await;
    db.client
        .batch_execute(
            "create table seen (tenant text, idem_key text, response json, unique (tenant, idem_key));
             insert into seen values ('a', 'k', '{\"z\":1,  \"a\":2}'), ('a', 'l', null)",
        )
        .await
        .unwrap();
    assert!(rehearsed(&db, &["seen"]).await.is_empty());
    let keys = migrated(&db, &["seen"], "public").await;
    replays(&db, &keys, "public", ("a", "k"), 200, b"{\"z\":1,  \"a\":2}").await;
    claims(&db, &keys).await;
}

/// In partitions, and a key that is unique by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_table() {
    let db = database().await;
    db.client
        .batch_execute(
            "create table keys (account_id int not null, idempotency_key text not null, state text not null,
                                response jsonb, created_at timestamptz not null default now(),
                                primary key (idempotency_key)) partition by hash (idempotency_key);
             create table keys_0 partition of keys for values with (modulus 2, remainder 0);
             create table keys_1 partition of keys for values with (modulus 2, remainder 1);
             insert into keys select i % 3, 'k' || i, 'completed', to_jsonb(i) from generate_series(1, 6000) i",
        )
        .await
        .unwrap();
    assert_eq!(rehearsed(&db, &["keys"]).await, ["old key, unfinished"]);
    let keys = migrated(&db, &["keys"], "public").await;
    replays(&db, &keys, "public", ("2", "k5999"), 200, b"5999").await;
    claims(&db, &keys).await;
    let rows: i64 = db
        .client
        .query_one("select count(*) from idempotency where status = 'done'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(rows, 6_001);
}

/// Names and words that have to be quoted, wherever they go.
#[tokio::test(flavor = "multi_thread")]
async fn hostile_names() {
    let db = database().await;
    db.client
        .batch_execute(
            r#"create schema "Pay's"; create table "Pay's"."Odd ""keys$idemctl$; --" (
                 "User ID" text not null, "Idem;Key" text not null, "Sta'te" text not null, "response" jsonb,
                 "%type" timestamptz not null default now(), unique ("User ID", "Idem;Key"));
               insert into "Pay's"."Odd ""keys$idemctl$; --" values
                 ('x''; drop table "x"; --', 'k\', 'it''s \ done', '1'), ('y', 'k', 'not = yet', null)"#,
        )
        .await
        .unwrap();
    let args = [
        r#""Pay's"."Odd ""keys$idemctl$; --""#,
        "--map",
        "User ID=client_id",
        "--map",
        "Idem;Key=key",
        "--map",
        "Sta'te=status",
        "--map",
        "%type=created_at",
        "--status",
        r"it's \ done=done",
        "--status",
        "not = yet=in_progress",
        "--schema",
        "plain",
    ];
    assert!(rehearsed(&db, &args).await.is_empty());
    let keys = migrated(&db, &args, "plain").await;
    replays(
        &db,
        &keys,
        "plain",
        (r#"x'; drop table "x"; --"#, r"k\"),
        200,
        b"1",
    )
    .await;
    claims(&db, &keys).await;
}
