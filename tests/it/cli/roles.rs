//! The roles of `idemctl migrate --roles` can do what they are for and nothing else; and rows of older services are
//! not called safe.

mod script;

use idemctl::store::Store;
use serde_json::Value;
use tokio_postgres::Client;

use super::fixture::{Cli, ROWS, calm, cli, filled};
use crate::protocol::Table;
use crate::support::{Output, connect, idemctl, temp_dir};

/// A body that must be nowhere but in its two columns.
const BODY: &str = "body-that-nobody-sees";

/// The filled tables, plain and partitioned, with the roles made twice and a body in each row; every row has one.
async fn tables() -> Vec<Cli> {
    let plain = filled().await;
    let partitioned = Cli {
        db: Table::partitioned().await.db,
        dir: temp_dir(),
    };
    partitioned.execute(ROWS).await;
    let tables = vec![plain, partitioned];
    for cli in &tables {
        cli.execute(&format!(
            "update idempotency set response = '{{\"secret\": \"{BODY}\"}}', response_body = '{BODY}'"
        ))
        .await;
        grant(cli).await;
        grant(cli).await;
    }
    tables
}

/// Runs the script that is printed for the DBA.
async fn grant(cli: &Cli) {
    let script = cli
        .run(&["migrate", "--roles", "--role-prefix", &prefix(cli)])
        .await;
    cli.execute(&script.ok()).await;
}

/// Roles belong to the whole cluster, and so does a database's name.
fn prefix(cli: &Cli) -> String {
    format!("Odd {}", cli.db.name)
}

/// The URL of a login that is a member of one of the roles.
async fn member(cli: &Cli, of: &str) -> String {
    let login = format!("{of}_{}", cli.db.name);
    cli.execute(&format!(
        "create role {login} login; grant \"{}_{of}\" to {login}",
        prefix(cli)
    ))
    .await;
    let url = cli.db.url.replacen("idemctl@", &format!("{login}@"), 1);
    assert_ne!(url, cli.db.url, "the URL names the user");
    url
}

async fn run_as(url: &str, args: &[&str]) -> Output {
    calm(idemctl(args).on(url).run().await)
}

async fn works(url: &str, args: &[&str]) -> String {
    let output = run_as(url, args).await;
    assert_eq!(output.code, 0, "{args:?}: {}", output.transcript());
    output.stdout
}

/// Every one of the statements is refused for want of a privilege.
async fn denied(client: &Client, statements: &[&str]) {
    for sql in statements {
        let error = client.batch_execute(sql).await.expect_err(sql);
        let code = error.code().map(tokio_postgres::error::SqlState::code);
        assert_eq!(code, Some("42501"), "{sql}: {error:?}");
    }
}

/// What nobody but the owner may do, and of events nobody but the janitor.
const FOR_NOBODY: &[&str] = &[
    "update idempotency_event set reason = 'another'",
    "truncate idempotency_event",
    "truncate idempotency",
    "truncate idempotency_job",
    "delete from idempotency_job",
    "update idempotency_job set known_since = now()",
    "insert into idempotency_job (job, known_since) values ('x', now())",
    "create table mine (a int)",
    "alter table idempotency_event add column x int",
    "insert into idempotency_migration (version, name, sha256, app_version) values (99, 'x', 'x', 'x')",
    "insert into idempotency_event (action, db_user) values ('release', 'somebody else')",
    "insert into idempotency_event (action, at) values ('release', now() - interval '1 year')",
    "insert into idempotency_event (id, action) overriding system value values (1000, 'release')",
];

/// What steers a key to another order, request or holder: no operator and no janitor may.
const NOT_AN_END: &[&str] = &[
    "update idempotency set order_id = 'another'",
    "update idempotency set provider = 'another'",
    "update idempotency set fingerprint = ''",
    "update idempotency set operation = 'another'",
    "update idempotency set client_id = 'another'",
    "update idempotency set key = 'another'",
    "update idempotency set lease_token = null",
    "update idempotency set attempt = 1",
    "update idempotency set locked_until = now()",
    "update idempotency set created_at = now()",
    "update idempotency set owner = 'another'",
    "update idempotency set status = 'done', order_id = 'another'",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_sees_everything_but_bodies_and_changes_nothing() {
    let _private = crate::support::privately("it makes roles");
    for cli in tables().await {
        let url = member(&cli, "viewer").await;
        let before = cli.everything().await;
        for args in [
            &["inspect", "shop-1", "order-1"][..],
            &["list"],
            &["list", "--state", "expired", "-o", "csv"],
            &["history"],
            &["migrate", "status"],
            &["release", "shop-9", "order-1", "--dry-run"],
            &["purge", "--dry-run"],
        ] {
            let shown = works(&url, args).await;
            assert!(!shown.contains(BODY), "{shown}");
        }
        let shown = works(&url, &["inspect", "shop-1", "order-7"]).await;
        assert!(
            shown.contains("201 application/json, body hidden from this database role"),
            "{shown}"
        );
        let json = works(&url, &["inspect", "shop-1", "order-7", "-o", "json"]).await;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["response"]["status_code"], 201);
        assert_eq!(json["response"]["body_bytes"], Value::Null);
        assert_eq!(json["response"]["body_sha256"], Value::Null);
        let refused = run_as(&url, &["inspect", "shop-1", "order-7", "--show-response"]).await;
        assert_eq!(refused.code, 4, "{}", refused.transcript());
        assert!(
            refused.stderr.contains("may not read stored responses"),
            "{}",
            refused.stderr
        );
        for args in [
            &["release", "shop-9", "order-1", "--yes"][..],
            &["purge", "--ttl", "1m", "--yes"],
        ] {
            let output = run_as(&url, args).await;
            assert!([1, 6].contains(&output.code), "{}", output.transcript());
            assert!(output.stderr.contains("permission denied"), "{}", output.stderr);
        }
        assert_eq!(cli.everything().await, before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_reads_no_body_by_any_statement() {
    let _private = crate::support::privately("it makes roles");
    for cli in tables().await {
        let url = member(&cli, "viewer").await;
        let before = cli.everything().await;
        let client = connect(&url).await;
        every_look_is_allowed(&client).await;
        denied(&client, FOR_NOBODY).await;
        denied(
            &client,
            &[
                "select * from idempotency",
                "select k from idempotency k",
                "select response from idempotency",
                "select count(response_body) from idempotency",
                "select key from idempotency where response_body is not null",
                "select key from idempotency order by response::text",
                "copy idempotency to stdout",
                "copy idempotency (response) to stdout",
                "create temp table c as table idempotency",
                "insert into idempotency (client_id, key, fingerprint) values ('a', 'b', '')",
                "update idempotency set status = 'done'",
                "delete from idempotency",
                "select from idempotency for update",
                "insert into idempotency_event (action) values ('release')",
                "delete from idempotency_event",
                "insert into idempotency_job (job) values ('x')",
                "update idempotency_job set held_until = now()",
            ],
        )
        .await;
        client.batch_execute("table idempotency_job").await.unwrap();
        assert_eq!(cli.everything().await, before);
        cli.execute("analyze idempotency").await;
        let stats =
            "select count(*) from pg_stats where tablename = 'idempotency' and attname like 'response%'";
        let seen: i64 = client
            .query_one(&format!("{stats} and attname <> 'response_headers'"), &[])
            .await
            .unwrap()
            .get(0);
        assert_eq!((seen, cli.number(stats).await), (0, 3));
    }
}

/// Every statement that reads records, also those of commands that are not run here.
async fn every_look_is_allowed(client: &Client) {
    let store = Store::open(client, None).await.unwrap();
    assert!(!store.reads_bodies());
    let mut looks = 0;
    for statement in store.statements().filter(|s| s.text.contains("as body_sha256")) {
        looks += 1;
        // The server checks privileges when it runs a statement, and EXPLAIN counts as that.
        let types: Vec<&str> = statement
            .types
            .iter()
            .map(tokio_postgres::types::Type::name)
            .collect();
        let (nulls, types) = (vec!["null"; types.len()].join(", "), types.join(", "));
        let sql = format!(
            "prepare look ({types}) as {}; explain execute look ({nulls}); deallocate look",
            statement.text
        );
        client
            .batch_execute(&sql)
            .await
            .unwrap_or_else(|error| panic!("{}: {error:?}", statement.name));
    }
    assert!(looks >= 6, "{looks}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_is_no_way_around() {
    let _private = crate::support::privately("it makes roles");
    let tables = tables().await;
    let cli = &tables[1];
    cli.execute("grant select on p0, p1, p2, p3 to public").await;
    let client = connect(&member(cli, "viewer").await).await;
    client.batch_execute("select response from p0").await.unwrap();
    grant(cli).await;
    denied(&client, &["select response from p0", "select key from p3"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_works_and_cannot_rewrite_what_was_done() {
    let _private = crate::support::privately("it makes roles");
    for cli in tables().await {
        cli.execute(
            "insert into idempotency_event (at, action) values (now() - interval '401 days', 'release')",
        )
        .await;
        let url = member(&cli, "operator").await;
        works(&url, &["release", "shop-9", "order-1", "--yes"]).await;
        works(&url, &["release", "shop-9", "order-2", "--yes", "--as", "failed"]).await;
        let why = ["--evidence", "e", "--reason", "r", "--yes"];
        works(
            &url,
            &[&["resolve", "shop-1", "order-1", "--failed"], &why[..]].concat(),
        )
        .await;
        works(
            &url,
            &[
                "inspect",
                "shop-1",
                "order-7",
                "--show-response",
                "--unmask",
                "--reason",
                "x",
            ],
        )
        .await;
        let reports = [
            works(&url, &["purge", "--ttl", "1h", "--dry-run", "-o", "json"]).await,
            works(&url, &["purge", "--ttl", "1h", "--yes", "-o", "json"]).await,
        ];
        for report in reports {
            let report: Value = serde_json::from_str(&report).unwrap();
            assert_eq!(report["deleted"], 2, "{report}");
            assert_eq!(
                (&report["events_deleted"], &report["events_left"]),
                (&0.into(), &true.into())
            );
        }
        let text = works(&url, &["purge"]).await;
        assert!(text.contains("old ones were left"), "{text}");
        let janitor = run_as(&url, &["janitor", "--once"]).await;
        assert_eq!(janitor.code, 0, "{}", janitor.transcript());
        assert!(
            janitor.transcript().contains("old events were left"),
            "{}",
            janitor.transcript()
        );

        let login = format!("operator_{}", cli.db.name);
        let named = format!("select count(*) from idempotency_event where db_user = '{login}'");
        assert!(cli.number(&named).await >= 4, "{}", cli.everything().await);
        let before = cli.everything().await;
        let client = connect(&url).await;
        denied(&client, FOR_NOBODY).await;
        denied(&client, NOT_AN_END).await;
        denied(
            &client,
            &[
                "delete from idempotency_event",
                "select from idempotency_event for update",
                "insert into idempotency (client_id, key, fingerprint) values ('a', 'b', '')",
            ],
        )
        .await;
        assert_eq!(cli.everything().await, before);

        works(&member(&cli, "janitor").await, &["purge"]).await;
        let old = "select count(*) from idempotency_event where at < now() - interval '1 year'";
        assert_eq!(cli.number(old).await, 0);
    }
}

/// Also those of rows that had one when they were released, failed, or purged.
#[tokio::test(flavor = "multi_thread")]
async fn the_event_log_holds_no_bodies() {
    let _private = crate::support::privately("it makes roles");
    for cli in tables().await {
        let url = member(&cli, "operator").await;
        works(&url, &["release", "shop-9", "order-1", "--yes"]).await;
        works(&url, &["release", "shop-9", "order-2", "--yes", "--as", "failed"]).await;
        works(
            &url,
            &["inspect", "shop-1", "order-7", "--show-response", "--unmask"],
        )
        .await;
        works(&url, &["purge", "--ttl", "1m", "--yes"]).await;
        let client = connect(&member(&cli, "viewer").await).await;
        let log: String = client
            .query_one("select string_agg(e::text, ' ') from idempotency_event e", &[])
            .await
            .unwrap()
            .get(0);
        assert!(log.contains("response_bytes"), "{log}");
        let hex: Vec<String> = BODY.bytes().map(|byte| format!("{byte:02x}")).collect();
        let hex = hex.concat();
        for form in [BODY, &hex, "Outcome unknown"] {
            assert!(!log.replace("secret", "").contains(form), "{form}: {log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_janitor_deletes_old_events_and_changes_none() {
    let _private = crate::support::privately("it makes roles");
    for cli in tables().await {
        cli.execute(
            "insert into idempotency_event (at, action) values (now() - interval '401 days', 'release')",
        )
        .await;
        let url = member(&cli, "janitor").await;
        // Its policies end keys, and lock them before.
        let config = cli.config("[janitor.expired]\npolicy = \"fail\"\nolder_than = \"1h\"\n");
        works(&url, &["janitor", "--once", "-c", &config]).await;
        let ended = "select count(*) from idempotency where client_id = 'shop-9' and status = 'failed'";
        assert_eq!(cli.number(ended).await, 2);
        let old = "select count(*) from idempotency_event where at < now() - interval '1 year'";
        assert_eq!(cli.number(old).await, 0);
        assert_eq!(
            cli.number("select count(*) from idempotency_event where action = 'purge_events'")
                .await,
            1
        );
        let client = connect(&url).await;
        denied(&client, FOR_NOBODY).await;
        denied(&client, NOT_AN_END).await;
        let insert = "insert into idempotency (client_id, key, fingerprint) values ('a', 'b', '')";
        denied(&client, &[insert]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_an_older_services_row_is_not_called_safe() {
    let _private = crate::support::privately("it makes roles");
    let cli = cli().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, locked_until)
         values ('shop-1', 'old', '', now() - interval '1 h')",
    )
    .await;
    let output = cli.run(&["inspect", "shop-1", "old"]).await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(
        output.stdout.contains("a retry may charge again"),
        "{}",
        output.stdout
    );
    assert!(!output.stdout.contains("retry is safe"), "{}", output.stdout);
}
