//! The privileges that the README names are enough, and rows of older services are not called safe.

use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, Options, Request, Reservation};
use idemctl::response::Response;

use super::fixture::{Cli, calm, cli, filled};
use crate::support::{Output, idemctl};

/// Makes a role with these grants and gives the URL of a connection as that role.
async fn role(cli: &Cli, kind: &str, grants: &str) -> String {
    let role = format!("{kind}_{}", cli.db.name);
    cli.execute(&format!(
        "create role {role} login; grant usage on schema public to {role}; {}",
        grants.replace("{role}", &role)
    ))
    .await;
    let url = cli.db.url.replacen("idemctl@", &format!("{role}@"), 1);
    assert_ne!(url, cli.db.url, "the URL names the user");
    url
}

async fn run_as(url: &str, args: &[&str]) -> Output {
    calm(idemctl(args).on(url).run().await)
}

const LOOK: &str = "grant select on idempotency, idempotency_event, idempotency_migration to {role};";

#[tokio::test(flavor = "multi_thread")]
async fn a_viewer_may_look_and_nothing_else() {
    let cli = filled().await;
    let url = role(&cli, "viewer", LOOK).await;
    let before = cli.everything().await;
    for args in [
        &["inspect", "shop-1", "order-1"][..],
        &["list"],
        &["migrate", "status"],
        &["purge", "--dry-run"],
    ] {
        let output = run_as(&url, args).await;
        assert_eq!(output.code, 0, "{}", output.transcript());
    }
    for args in [
        &["release", "shop-9", "order-1", "--yes"][..],
        &["purge", "--ttl", "1m", "--yes"],
    ] {
        let output = run_as(&url, args).await;
        assert!([1, 6].contains(&output.code), "{}", output.transcript());
        assert!(
            output.stderr.contains("privilege") || output.stderr.contains("permission"),
            "{}",
            output.stderr
        );
    }
    assert_eq!(cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_release_and_purge() {
    let cli = filled().await;
    let more = "grant update, delete on idempotency to {role};
                grant insert, delete on idempotency_event to {role};
                grant usage on all sequences in schema public to {role};";
    let url = role(&cli, "operator", &format!("{LOOK}{more}")).await;
    for args in [
        &["release", "shop-9", "order-1", "--yes"][..],
        &["release", "shop-9", "order-2", "--yes", "--as", "failed"],
        &["purge", "--ttl", "1m", "--yes"],
        &["janitor", "--once"],
    ] {
        let output = run_as(&url, args).await;
        assert_eq!(output.code, 0, "{}", output.transcript());
    }
    assert_eq!(
        cli.number("select count(*) from idempotency_event where action in ('release', 'fail')")
            .await,
        4
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_needs_the_one_table_alone() {
    let cli = cli().await;
    let url = role(
        &cli,
        "service",
        "grant select, insert, update, delete on idempotency to {role};",
    )
    .await;
    let client = crate::support::connect(&url).await;
    let keys = Idempotency::open(&client, None, Options::default())
        .await
        .unwrap();
    let request = |key: &str| Request::new(KeyId::new("shop-1", key).unwrap(), Fingerprint::of_bytes(b"x"));
    for key in ["done", "given back"] {
        let Reservation::Acquired(mut lease) = keys.reserve(&client, &request(key)).await.unwrap() else {
            panic!("not acquired")
        };
        if key == "done" {
            lease
                .complete(&client, &Response::new(200, "x").unwrap())
                .await
                .unwrap();
        } else {
            lease.abandon(&client).await.unwrap();
        }
    }
    let again = keys.reserve(&client, &request("done")).await.unwrap();
    assert!(matches!(again, Reservation::Replay(_)), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_an_older_services_row_is_not_called_safe() {
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
