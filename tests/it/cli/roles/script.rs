//! The services' role, and the script itself.

use std::time::Duration;

use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::response::Response;
use tokio_postgres::Client;

use super::{BODY, FOR_NOBODY, denied, member, prefix, tables, works};
use crate::cli::fixture::{Cli, cli};
use crate::support::{connect, idemctl};

#[tokio::test(flavor = "multi_thread")]
async fn a_service_has_the_protocol_and_nothing_else() {
    let _private = crate::support::privately("it makes roles");
    for cli in tables().await {
        let url = member(&cli, "app").await;
        let client = connect(&url).await;
        protocol(&cli, &client).await;
        denied(&client, FOR_NOBODY).await;
        denied(
            &client,
            &[
                "select from idempotency_event",
                "select * from idempotency_event",
                "insert into idempotency_event (action) values ('release')",
                "delete from idempotency_event",
                "select * from idempotency_migration",
                "select * from idempotency_job",
                "insert into idempotency_job (job) values ('x')",
                "update idempotency_job set held_until = now()",
                "select setval(pg_get_serial_sequence('idempotency_event', 'id'), 1)",
            ],
        )
        .await;
    }
}

/// Every verb of the protocol.
async fn protocol(cli: &Cli, client: &Client) {
    let keys = Idempotency::open(client, None, Options::default()).await.unwrap();
    let request = |key: &str| Request::new(KeyId::new("shop-1", key).unwrap(), Fingerprint::of_bytes(b"x"));
    let reserve = async |key: &str| match keys.reserve(client, &request(key)).await.unwrap() {
        Reservation::Acquired(lease) => lease,
        other => panic!("not acquired: {other:?}"),
    };
    let response = Response::new(200, BODY).unwrap();
    let mut done = reserve("done").await;
    done.renew(client, Duration::from_mins(1)).await.unwrap();
    done.complete(client, &response).await.unwrap();
    let Reservation::Replay(replay) = keys.reserve(client, &request("done")).await.unwrap() else {
        panic!("no replay")
    };
    assert_eq!(replay.response.body(), BODY.as_bytes());
    reserve("given back").await.abandon(client).await.unwrap();
    let mut unknown = reserve("unknown").await;
    unknown.outcome_unknown(client, "timeout").await.unwrap();
    cli.execute("update idempotency set locked_until = now() - interval '1 s' where key = 'unknown'")
        .await;
    let mut taken = reserve("unknown").await;
    assert!(taken.is_takeover());
    taken.complete(client, &response).await.unwrap();
    let record = keys.store().get(client, taken.id()).await.unwrap().unwrap();
    assert_eq!(
        record.response.unwrap().body_bytes,
        Some(BODY.len().try_into().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_needs_no_connection_and_undoes_what_was_granted_before() {
    let _private = crate::support::privately("it makes roles");
    let cli = cli().await;
    let schema = "Odd schema";
    let nowhere = [
        "migrate",
        "--roles",
        "--schema",
        schema,
        "--role-prefix",
        &prefix(&cli),
    ];
    let script = idemctl(&nowhere)
        .on("postgresql://127.0.0.1:1/nobody")
        .run()
        .await
        .ok();
    works(&cli.db.url, &["migrate", "--schema", schema]).await;
    cli.execute(&script).await;
    let quoted = "\"Odd schema\"";
    let operator = format!("\"{}_operator\"", prefix(&cli));
    let may = format!(
        "select has_table_privilege('{}_operator', '{}.idempotency_event', 'delete')::int::int8",
        prefix(&cli),
        quoted
    );
    cli.execute(&format!("grant all on {quoted}.idempotency_event to {operator}"))
        .await;
    assert_eq!(cli.number(&may).await, 1);
    cli.execute(&script).await;
    assert_eq!(cli.number(&may).await, 0);

    // What it cannot take away it does not hide: the janitor's privilege comes back through a membership.
    cli.execute(&format!("grant \"{}_janitor\" to {operator}", prefix(&cli)))
        .await;
    let error = cli.db.client.batch_execute(&script).await.unwrap_err();
    let told = error.as_db_error().unwrap().message().to_owned();
    assert!(told.contains("_operator: delete of events"), "{told}");
    cli.execute(&format!(
        "rollback; revoke \"{0}_janitor\" from {operator}; grant \"{0}_app\" to {operator}",
        prefix(&cli)
    ))
    .await;
    let error = cli.db.client.batch_execute(&script).await.unwrap_err();
    let told = error.as_db_error().unwrap().message().to_owned();
    assert!(
        told.contains("_operator: update of more than a key's end"),
        "{told}"
    );
    cli.execute("rollback").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_not_made_a_group_role() {
    let _private = crate::support::privately("it makes roles");
    let cli = cli().await;
    cli.execute(&format!("create role \"{}_viewer\" login", prefix(&cli)))
        .await;
    let script = cli
        .run(&["migrate", "--roles", "--role-prefix", &prefix(&cli)])
        .await;
    let error = cli.db.client.batch_execute(&script.ok()).await.unwrap_err();
    assert!(
        error
            .as_db_error()
            .unwrap()
            .message()
            .contains("no plain group role"),
        "{error:?}"
    );
    let output = cli.run(&["migrate", "--roles", "--role-prefix", ""]).await;
    assert_eq!(output.code, 2, "{}", output.transcript());
}
