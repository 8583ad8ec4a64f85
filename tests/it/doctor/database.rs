//! What is wrong with the tables or with what the server does to them.

use super::{cluster, find, login, run, sound, sound_on, systemctl};
use crate::cli::fixture::Cli;
use crate::doctor::Findings;
use crate::support::{temp_dir, until};

/// SQL that breaks one thing, and which checks say so with which exit code.
async fn broken(sql: &str, names: &[&str], code: i32) -> Findings {
    let cli = sound().await;
    for statement in sql.split(";;") {
        cli.execute(&statement.replace("{db}", &cli.db.name)).await;
    }
    let findings = find(&cli, &[]).await;
    findings.are(names, code);
    findings
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema() {
    let cli = Cli {
        db: cluster().await.database().await,
        dir: temp_dir(),
    };
    systemctl(&cli, "enabled");
    let findings = find(&cli, &[]).await;
    findings.are(&["schema"], 9);
    assert_eq!(findings.get("schema")["mend"], "idemctl migrate");
    assert_eq!(findings.get("backlog")["severity"], "unknown");
    let wide = "alter table idempotency alter column attempt type bigint";
    for (sql, names) in [
        (
            "delete from idempotency_migration where version = 6",
            &["schema"][..],
        ),
        (
            "update idempotency_migration set sha256 = 'ff' where version = 2",
            &["schema"],
        ),
        ("drop table idempotency_event", &["schema"]),
        (wide, &["schema", "columns"]),
        (
            "alter table idempotency drop column owner",
            &["schema", "columns"],
        ),
        (
            "alter table idempotency drop constraint idempotency_pkey",
            &["schema", "columns"],
        ),
        (
            "alter table idempotency alter column fingerprint drop not null",
            &["columns"],
        ),
        ("create unique index narrow on idempotency (key)", &["columns"]),
        ("drop index idempotency_created_at_idx", &["indexes"]),
    ] {
        broken(sql, names, 9).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_a_failed_build_left_behind() {
    let cli = sound().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, owner, status)
         select 'c', 'k' || i, '', 'same', 'done' from generate_series(1, 2) i",
    )
    .await;
    let build = "create unique index concurrently bad on idempotency (owner)";
    cli.db.client.batch_execute(build).await.unwrap_err();
    let findings = find(&cli, &[]).await;
    findings.are(&["invalid_indexes"], 0);
    assert!(
        findings.get("invalid_indexes")["found"]
            .as_str()
            .unwrap()
            .contains("public.bad")
    );
    assert_eq!(find(&cli, &["--strict"]).await.code, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_to_the_table() {
    for (sql, name, code) in [
        ("alter table idempotency set unlogged", "logged", 4),
        (
            "alter table idempotency set (autovacuum_enabled = off)",
            "autovacuum",
            4,
        ),
        (
            "create function nothing() returns trigger language plpgsql as 'begin return null; end';
             create trigger swallow before insert on idempotency for each row execute function nothing()",
            "triggers",
            0,
        ),
        (
            "create rule swallow as on delete to idempotency do instead nothing",
            "triggers",
            0,
        ),
        (
            "alter database {db} set synchronous_commit = off",
            "durability",
            4,
        ),
        (
            "alter database {db} set default_transaction_read_only = on",
            "read_write",
            4,
        ),
        (
            "create schema other; create table other.idempotency (client_id text);
             alter database {db} set search_path = public, other",
            "search_path",
            0,
        ),
    ] {
        broken(sql, &[name], code).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_level_security_hides_keys_from_the_role_that_it_is_for() {
    let cli = sound().await;
    let (login, url) = login(&cli, "secured").await;
    cli.execute(&format!(
        "grant all on all tables in schema public to {login}; alter table idempotency enable row level security"
    ))
    .await;
    Findings::of(run(&cli, &[]).on(&url).run().await).are(&["row_security"], 4);
    find(&cli, &[]).await.are(&[], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_piles_up() {
    let done = "insert into idempotency (client_id, key, fingerprint, status, created_at, completed_at)";
    let overdue =
        format!("{done} values ('s', 'k', '', 'done', now() - interval '4 d', now() - interval '3 d')");
    broken(&overdue, &["backlog"], 0).await;
    // Due since a moment: the next purge takes it.
    let due = overdue.replace("3 d", "25 h");
    broken(&due, &[], 0).await;
    let stuck = "insert into idempotency (client_id, key, fingerprint, locked_until)
                 values ('s', 'k', '', now() - interval '1 h')";
    let findings = broken(stuck, &["expired"], 0).await;
    assert!(
        findings.get("expired")["found"]
            .as_str()
            .unwrap()
            .starts_with("1 stuck, the oldest for 1h")
    );
    broken(&stuck.replace("1 h", "1 min"), &[], 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_purge_that_does_not_come() {
    for sql in [
        "delete from idempotency_job",
        "update idempotency_job set last_success_at = null",
        "update idempotency_job set last_success_at = now() - interval '2 d'",
        "update idempotency_job set last_outcome = 'failed', last_summary = 'the disk is full'",
        "update idempotency_job set holder = 'host:1:2', token = gen_random_uuid(), held_until = now() - interval '1 min'",
    ] {
        broken(sql, &["janitor"], 0).await;
    }
    let cli = sound().await;
    systemctl(&cli, "disabled");
    find(&cli, &["--strict"]).await.are(&[], 0);
    cli.execute("delete from idempotency_job").await;
    find(&cli, &[]).await.are(&["janitor", "timer"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_and_stale_statistics() {
    let cli = sound().await;
    cli.execute(
        "alter table idempotency set (autovacuum_vacuum_threshold = 1000000000, autovacuum_analyze_threshold = 1000000000,
                                      autovacuum_vacuum_insert_threshold = 1000000000)",
    )
    .await;
    let rows = "insert into idempotency (client_id, key, fingerprint, status)
                select 's', 'k' || i, '', 'done' from generate_series(1, 30000) i";
    cli.execute(rows).await;
    until("the server knows of the rows", async || {
        find(&cli, &[]).await.bad() == ["statistics"]
    })
    .await;
    cli.execute("analyze idempotency").await;
    until("the server knows of the analyze", async || {
        find(&cli, &[]).await.bad().is_empty()
    })
    .await;
    cli.execute("delete from idempotency").await;
    // A session tells the server what it did a little later, perhaps only after the first of these.
    until("the server knows that they are dead", async || {
        cli.execute("analyze idempotency").await;
        find(&cli, &[]).await.bad() == ["dead_rows"]
    })
    .await;
    cli.execute("vacuum idempotency").await;
    until("they are gone", async || find(&cli, &[]).await.bad().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoding_that_is_not_unicode() {
    let db = cluster().await.database().await;
    let name = format!("{}_ascii", db.name);
    db.client
        .batch_execute(&format!(
            "create database {name} template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'"
        ))
        .await
        .unwrap();
    let url = db.url.replace(&db.name, &name);
    let client = crate::support::connect(&url).await;
    let cli = sound_on(crate::support::Database {
        name,
        url,
        client,
        ..db
    })
    .await;
    find(&cli, &[]).await.are(&["encoding"], 0);
}
