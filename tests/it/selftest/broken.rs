//! Databases in which a guarantee does not hold: each is found, by name.
//!
//! Event triggers change the scratch table just after the migrations have made it, as a DBA's well-meant rules might.

use super::{json, named, schemas, short};
use crate::support::{Database, Output, database, until};

/// Runs this SQL once, as soon as the table `idempotency` (or the one named) is there.
async fn sabotage(table: &str, then: &str) -> Database {
    let _private = crate::support::privately("it makes an event trigger");
    let db = database().await;
    db.client
        .batch_execute(&format!(
            "create schema tools;
             create function tools.meddle() returns event_trigger language plpgsql as $meddle$
             declare made record;
             begin
               for made in select * from pg_event_trigger_ddl_commands() loop
                 if made.object_type = 'table' and made.command_tag = 'CREATE TABLE'
                    and made.object_identity like '%.{table}' then
                   {then}
                 end if;
               end loop;
             end $meddle$;
             create event trigger meddle on ddl_command_end when tag in ('CREATE TABLE')
               execute function tools.meddle();"
        ))
        .await
        .unwrap();
    db
}

/// A trigger before each row of these statements, with this body.
pub(super) async fn trigger(table: &str, on: &str, body: &str) -> Database {
    let db = sabotage(
        table,
        &format!(
            "execute format('create trigger meddle before {on} on %s for each row execute function tools.row()',
                            made.object_identity);"
        ),
    )
    .await;
    db.client
        .batch_execute(&format!(
            "create function tools.row() returns trigger language plpgsql as $row$ begin {body} end $row$"
        ))
        .await
        .unwrap();
    db
}

async fn run(db: &Database) -> Output {
    let output = short(&["-o", "json"]).on(&db.url).run().await;
    assert_eq!(schemas(db).await, ["tools"], "{}", output.transcript());
    output
}

/// The run fails by exactly these checks.
async fn fails(db: &Database, checks: &[&str]) {
    let output = run(db).await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    let report = json(&output);
    assert_eq!(report["verdict"], "failed");
    assert_eq!(named(&report, "failed"), checks, "{}", output.transcript());
    let error = format!("error: self test failed: {}", checks.join(", "));
    assert!(output.stderr.contains(&error), "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_unique_key_is_found_before_any_race() {
    let db = sabotage(
        "idempotency",
        "execute format('alter table %s drop constraint idempotency_pkey', made.object_identity);",
    )
    .await;
    let output = run(&db).await;
    assert_eq!(output.code, 9, "{}", output.transcript());
    assert!(
        output.stderr.contains("unique index on (client_id, key)"),
        "{}",
        output.transcript()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_never_equal_let_everybody_work() {
    let body = "new.key := new.key || ' ' || gen_random_uuid(); return new;";
    let db = trigger("idempotency", "insert", body).await;
    let output = run(&db).await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    let failed = named(&json(&output), "failed");
    assert!(failed.contains(&"race".to_owned()), "{}", output.transcript());
}

/// The claims win, and the key is free again at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_lets_go_lets_two_work() {
    let db = sabotage(
        "idempotency",
        "execute format('create trigger meddle after update on %s for each row execute function tools.row()',
                        made.object_identity);",
    )
    .await;
    // A result that is forgotten as soon as it is stored: the next one does the work again.
    db.client
        .batch_execute(
            "create function tools.row() returns trigger language plpgsql as $row$ begin
               execute format('delete from %I.%I where client_id = $1 and key = $2 and status = ''done''',
                              tg_table_schema, tg_table_name) using new.client_id, new.key;
               return null;
             end $row$",
        )
        .await
        .unwrap();
    let output = run(&db).await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    let report = json(&output);
    let failed = named(&report, "failed");
    assert!(failed.contains(&"race".to_owned()), "{}", output.transcript());
    let race = &report["checks"][0];
    assert_eq!(
        race["found"].as_str().unwrap().split(';').next().unwrap(),
        "3 keys, 12 requests, 12 works"
    );
    assert!(
        race["meaning"]
            .as_str()
            .unwrap()
            .contains("12 payments for 3 orders"),
        "{}",
        output.transcript()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_swallowed_is_not_replayed() {
    let body = "if new.status = 'done' then return null; end if; return new;";
    let db = trigger("idempotency", "update", body).await;
    let output = run(&db).await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    let failed = named(&json(&output), "failed");
    for check in ["race", "replay.json"] {
        assert!(failed.contains(&check.to_owned()), "{}", output.transcript());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_changed_is_seen() {
    let body = "if new.status_code = 402 then new.status_code := 400; end if; return new;";
    let db = trigger("idempotency", "update", body).await;
    fails(&db, &["replay.error"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_put_back_lets_the_late_holder_write() {
    let body = "if old.lease_token is not null then new.lease_token := old.lease_token; end if; return new;";
    let db = trigger("idempotency", "update", body).await;
    let output = run(&db).await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    let report = json(&output);
    let failed = named(&report, "failed");
    for check in [
        "fencing.complete",
        "fencing.renew",
        "fencing.abandon",
        "fencing.outcome_unknown",
    ] {
        assert!(failed.contains(&check.to_owned()), "{}", output.transcript());
    }
    assert!(!failed.contains(&"race".to_owned()), "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_cut_short_is_taken_from_the_dead_too_early() {
    let body = "new.locked_until := now(); return new;";
    let db = trigger("idempotency", "insert", body).await;
    let output = run(&db).await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    let failed = named(&json(&output), "failed");
    assert!(
        failed.contains(&"kill.blocked".to_owned()),
        "{}",
        output.transcript()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_that_write_are_seen() {
    // As a trigger that counts requests would.
    let body = "execute format('update %I.%I set last_error = last_error where client_id = $1 and key = $2',
                               tg_table_schema, tg_table_name) using new.client_id, new.key;
                return new;";
    let db = trigger("idempotency", "insert", body).await;
    fails(&db, &["quiet.replay", "quiet.in_progress"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_deletes_nothing_is_seen() {
    let body = "if old.status <> 'in_progress' then return null; end if; return old;";
    let db = trigger("idempotency", "delete", body).await;
    fails(&db, &["purge.old"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_that_deletes_too_much_is_seen() {
    let body = "if old.key = 'purge-done-old' then
                  execute format('delete from %I.%I where key = ''purge-busy''', tg_table_schema, tg_table_name);
                end if;
                return old;";
    let db = trigger("idempotency", "delete", body).await;
    fails(&db, &["purge.kept"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_keeps_nothing_is_seen() {
    let db = trigger("idempotency_event", "insert", "return null;").await;
    let output = run(&db).await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    let failed = named(&json(&output), "failed");
    assert!(
        !failed.contains(&"purge.kept".to_owned()),
        "{}",
        output.transcript()
    );
    let report = json(&output);
    let passed = named(&report, "passed");
    assert!(!passed.contains(&"events".to_owned()), "{}", output.transcript());
}

/// The first lease is over as soon as it begins, as for a machine that does nothing else in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_was_too_short_is_tried_again_with_a_longer_one() {
    let early = "new.created_at := now() - interval '1 minute'; end if; return new;";
    let db = trigger(
        "idempotency",
        "insert",
        &format!("if new.key = 'kill-0' then {early}"),
    )
    .await;
    let output = run(&db).await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    let db = trigger(
        "idempotency",
        "insert",
        &format!("if new.key like 'kill-%' then {early}"),
    )
    .await;
    let output = run(&db).await;
    assert_eq!(output.code, 6, "{}", output.transcript());
    assert_eq!(named(&json(&output), "not_checked"), ["kill.blocked"]);
    assert!(
        output.stdout.contains("the lease of 16 s was over"),
        "{}",
        output.transcript()
    );
}

/// A winner that takes longer to store its answer than the losers ask for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_pool_is_no_broken_guarantee() {
    let body = "if new.key = 'race-0' and new.status = 'done' then perform pg_sleep(6); end if; return new;";
    let db = trigger("idempotency", "update", body).await;
    let output = run(&db).await;
    assert_eq!(output.code, 0, "{}", output.transcript());
}

/// Everybody may read the arguments of a process.
#[tokio::test(flavor = "multi_thread")]
async fn the_password_is_no_argument_of_the_process_that_is_killed() {
    let body = "if new.key = 'kill-0' then perform pg_advisory_xact_lock(1); end if; return new;";
    let db = trigger("idempotency", "insert", body).await;
    db.client
        .batch_execute("select pg_advisory_lock(1)")
        .await
        .unwrap();
    let url = db.url.replace("idemctl@", "idemctl:hush@");
    let own = short(&["-d", &url]).spawn();
    let parent = format!("\nPPid:\t{}\n", own.pid());
    let children = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|process| {
            let status = std::fs::read_to_string(process.path().join("status"));
            status.is_ok_and(|status| status.contains(&parent))
        })
        .filter_map(|process| std::fs::read_to_string(process.path().join("cmdline")).ok())
        .find(|args| args.contains("--hold"))
    };
    until("there is a process to be killed", async || children().is_some()).await;
    let args = children().unwrap();
    db.client
        .batch_execute("select pg_advisory_unlock(1)")
        .await
        .unwrap();
    assert!(!args.contains("hush"), "{args}");
    let output = own.wait().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
}
