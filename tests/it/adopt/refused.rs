//! What it does not do, and why, by name.

use nix::sys::signal::Signal;

use super::{adopt, shapes};
use crate::support::{Database, database, until};

/// A table that fits, to be spoilt.
const GOOD: &str = "create table keys (tenant_id text, request_id text, status text, response json,
    created_at timestamptz, status_code int, primary key (tenant_id, request_id))";

async fn refused(sql: &str, args: &[&str], code: i32, parts: &[&str]) {
    let db = database().await;
    db.client.batch_execute(sql).await.unwrap();
    let output = adopt(&db, args).run().await;
    assert_eq!(output.code, code, "{sql}: {}", output.transcript());
    for part in parts {
        assert!(output.stderr.contains(part), "{part}: {}", output.transcript());
    }
    assert!(
        !output.transcript().contains("4111"),
        "a value: {}",
        output.transcript()
    );
    // A pipe into psql gets nothing.
    let all: Vec<&str> = args.iter().chain(&["--show-sql"]).copied().collect();
    let output = adopt(&db, &all).run().await;
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (code, ""),
        "{}",
        output.transcript()
    );
}

async fn with(more: &str, parts: &[&str]) {
    refused(&format!("{GOOD}; {more}"), &["keys"], 4, parts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_such_table() {
    refused("select 1", &["nowhere"], 3, &["there is no table nowhere"]).await;
    refused(
        "create view v as select 1 as key",
        &["v"],
        4,
        &["public.v is no table"],
    )
    .await;
    refused(
        crate::protocol::OLD_TABLE,
        &["idempotency"],
        4,
        &["has our columns already: the migrations", "`idemctl migrate`"],
    )
    .await;
    refused(
        GOOD,
        &["keys", "--map", "other=key"],
        2,
        &["names the column other"],
    )
    .await;
    refused(
        GOOD,
        &["keys", "--map", "status=states"],
        2,
        &["gives status to states"],
    )
    .await;
    refused(
        GOOD,
        &["keys", "--status", "a=b"],
        2,
        &["in_progress, done and failed"],
    )
    .await;
}

/// Refused before a row is read: this one could not be.
#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense() {
    for (args, part) in [
        (
            ["--time-zone", "+03:00"],
            "+03:00 is no name of pg_timezone_names",
        ),
        (["--time-zone", "UTC+3"], "UTC+3 is no name of pg_timezone_names"),
        (["--time-zone", "Mars"], "Mars is no name of pg_timezone_names"),
        (["--lease", "0s"], "1 second to 24 hours"),
        (["--lease", "25h"], "1 second to 24 hours"),
    ] {
        refused(
            "create table keys (tenant_id text, request_id text primary key, status text, http_status text);
             insert into keys values ('t', 'k', 'done', '4111-1111')",
            &[&["keys"][..], &args].concat(),
            2,
            &[part],
        )
        .await;
    }
    let twice = ["keys", "--status", "a=done", "--status", "a=failed"];
    refused(GOOD, &twice, 2, &["a: two meanings are given"]).await;
}

/// What a row in progress may have as well says nothing of its end.
#[tokio::test(flavor = "multi_thread")]
async fn signs_of_an_end_that_are_none() {
    let table = "create table keys (tenant_id text, request_id text primary key, created_at timestamptz default now(),";
    for column in [
        "response jsonb not null default '{}'",
        "response jsonb not null",
        "response jsonb default '{}'",
        "status_code int default 200",
        "completed_at timestamptz default now()",
    ] {
        let sql = format!("{table} {column})");
        refused(&sql, &["keys"], 4, &["give --map COLUMN=status"]).await;
    }
    for answer in ["null", "{}", "[]"] {
        let sql = format!(
            "{table} response jsonb default null); insert into keys values ('t', 'k', now(), '{answer}')"
        );
        refused(&sql, &["keys"], 4, &["1 rows have no state"]).await;
    }
    let sql = format!(
        "{table} response text default null, completed_at timestamptz);
         insert into keys values ('t', 'k', now(), 'so far', null), ('t', 'l', now(), null, now()), ('t', 'm', now(), '', null)"
    );
    refused(&sql, &["keys"], 4, &["1 rows have no state"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_in_which_two_requests_might_not_meet() {
    refused(
        "create table keys (tenant_id text, request_id text, status text, response json)",
        &["keys"],
        4,
        &["nothing keeps (tenant_id, request_id) unique"],
    )
    .await;
    refused(
        "create table keys (tenant_id text, request_id text, status text, region text);
         create unique index on keys (tenant_id, request_id, region);
         create unique index on keys (tenant_id, request_id) where status = 'done';
         create unique index on keys (tenant_id, lower(request_id))",
        &["keys"],
        4,
        &["nothing keeps (tenant_id, request_id) unique"],
    )
    .await;
    refused(
        "create table keys (tenant_id text, request_id numeric, status text, primary key (tenant_id, request_id))",
        &["keys"],
        4,
        &["key: one value of numeric may have several texts"],
    )
    .await;
    refused(
        "create collation blurred (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         create table keys (tenant_id text, request_id text collate blurred, status text,
                            primary key (tenant_id, request_id))",
        &["keys"],
        4,
        &["key: its collation takes different texts for one key"],
    )
    .await;
    refused(
        "create table keys (x text, status text)",
        &["keys"],
        4,
        &["client_id: no column says who", "key: no column looks like"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_break_a_rule() {
    with(
        "insert into keys values ('t', repeat('x', 256), 'done'), ('t', E'a\\nb', 'done'), ('', 'k', 'done')",
        &[
            "3 rows have a client or key that no request can name",
            "3 rows have no time of creation",
        ],
    )
    .await;
    with(
        "insert into keys values ('t', 'k', 'done', null, now(), 42)",
        &["1 rows have a status code that is no HTTP status"],
    )
    .await;
    with(
        "insert into keys values ('t', 'k', 'parked', null, now()), ('t', 'l', null, null, now())",
        &[
            "the word \"parked\" in status (1 rows) may mean anything",
            "--status 'parked=in_progress'",
            "1 rows have no status",
        ],
    )
    .await;
    refused(
        "create table keys (tenant_id text, request_id text, status text, unique (tenant_id, request_id));
         insert into keys values (null, 'k', 'done'), (null, 'k', 'done'), ('t', null, 'done')",
        &["keys"],
        4,
        &["2 rows have no client", "1 rows have no key"],
    )
    .await;
    refused(
        "create table keys (tenant_id text, request_id text primary key, status text, http_status text);
         insert into keys values ('t', 'k', 'done', '4111-1111')",
        &["keys"],
        4,
        &[
            "a value that cannot be converted as planned (SQLSTATE 22P02)",
            "--map COLUMN=-",
        ],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_are_taken_and_rows_that_are_not_seen() {
    let _private = crate::support::privately("it makes roles");
    with(
        "create table idempotency (x int)",
        &["public.idempotency is there already"],
    )
    .await;
    let db = database().await;
    let role = format!("blind_{}", db.name);
    db.client
        .batch_execute(&format!(
            "{GOOD}; create role {role} login; alter table keys enable row level security;
             create policy p on keys using (false)"
        ))
        .await
        .unwrap();
    let url = db.url.replace("idemctl@", &format!("{role}@"));
    let output = adopt(&db, &["keys"]).on(&url).run().await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    assert!(
        output.stderr.contains("may not read public.keys"),
        "{}",
        output.transcript()
    );
    db.client
        .batch_execute(&format!("grant select on keys to {role}"))
        .await
        .unwrap();
    let output = adopt(&db, &["keys"]).on(&url).run().await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    assert!(
        output.stderr.contains("row-level security hides"),
        "{}",
        output.transcript()
    );
}

/// A rehearsal that would never end: the scratch schema goes all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_rehearsal_leaves_nothing() {
    let _private = crate::support::privately("it makes an event trigger");
    let db = database().await;
    db.client.batch_execute(shapes::RAILS).await.unwrap();
    db.client
        .batch_execute(
            "create function slow() returns event_trigger language plpgsql as $$ begin
               if exists (select from pg_event_trigger_ddl_commands() where object_identity like '%.idempotency_adopting') then
                 perform pg_sleep(3600);
               end if; end $$;
             create event trigger slow on ddl_command_end when tag in ('CREATE TABLE') execute function slow()",
        )
        .await
        .unwrap();
    let args: Vec<&str> = shapes::RAILS_ARGS
        .iter()
        .chain(&["--rehearse"])
        .copied()
        .collect();
    let run = adopt(&db, &args).spawn();
    let asleep =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
    until("the rehearsal hangs", async || {
        db.client.query_one(asleep, &[]).await.unwrap().get::<_, i64>(0) == 1
    })
    .await;
    run.signal(Signal::SIGINT);
    let output = run.wait().await;
    assert_eq!(output.code, 130, "{}", output.transcript());
    assert_eq!(scratches(&db).await, 0, "{}", output.transcript());
}

/// Scratch schemas that are there.
async fn scratches(db: &Database) -> i64 {
    let query = "select count(*) from pg_namespace where nspname like 'idemctl%'";
    db.client.query_one(query, &[]).await.unwrap().get(0)
}

/// What a rehearsal finds that no look at rows does: here a trigger of the database's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_rehearsal_that_goes_wrong() {
    let _private = crate::support::privately("it makes an event trigger");
    let db = database().await;
    db.client.batch_execute(shapes::RAILS).await.unwrap();
    db.client
        .batch_execute(
            "create function no() returns event_trigger language plpgsql as $$ begin
               if exists (select from pg_event_trigger_ddl_commands() where object_identity like '%.idempotency_adopting') then
                 raise exception 'no new tables on Fridays';
               end if; end $$;
             create event trigger no on ddl_command_end when tag in ('CREATE TABLE') execute function no()",
        )
        .await
        .unwrap();
    let args: Vec<&str> = shapes::RAILS_ARGS
        .iter()
        .chain(&["--rehearse"])
        .copied()
        .collect();
    let output = adopt(&db, &args).run().await;
    assert_eq!(output.code, 6, "{}", output.transcript());
    assert!(
        output.stdout.contains("no new tables on Fridays"),
        "{}",
        output.transcript()
    );
    assert!(
        output.stderr.contains("the rehearsal went wrong: script"),
        "{}",
        output.transcript()
    );
    assert_eq!(scratches(&db).await, 0);
}

/// What would be claimed again although it may have been done, or could not be replayed.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_contradict_themselves() {
    with(
        "insert into keys values ('a', 'k', 'in_progress', '{}', now(), 201), ('a', 'l', 'in_progress', '{}', now(), null)",
        &["1 rows have a state that means in progress, and a status code"],
    )
    .await;
    with(
        "alter table keys add response_headers jsonb;
         insert into keys values ('a', 'k', 'done', '{}', now(), 201, '{\"x\": 5}'),
                                 ('a', 'l', 'done', '{}', now(), 201, '[[\"x\", \"y\"], \"z\"]'),
                                 ('a', 'm', 'done', '{}', now(), 201, '[[\"x\", \"y\"]]'),
                                 ('a', 'n', 'done', '{}', now(), 201, '{\"x\": \"y\"}')",
        &["2 rows have headers that are neither"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_unique_in_another_way() {
    with(
        "create unique index folded on keys (tenant_id, lower(request_id))",
        &["the unique index folded is over an expression"],
    )
    .await;
    with(
        "create table child () inherits (keys)",
        &["public.keys inherits or is inherited from"],
    )
    .await;
}
