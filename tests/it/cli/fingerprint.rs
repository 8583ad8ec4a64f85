//! `idemctl fingerprint`.

use idemctl::fingerprint::{Fields, Fingerprint};
use serde_json::Value;

use super::fixture::{Cli, calm, cli};
use crate::support::{Output, idemctl};

const BODY: &str = r#"{"currency":"EUR","amount":49.90,"sent_at":"2026-11-29T10:00:00Z"}"#;

async fn offline(args: &[&str], body: &str) -> Output {
    calm(
        idemctl(&[&["fingerprint"], args].concat())
            .stdin(body)
            .run()
            .await,
    )
}

async fn compare(cli: &Cli, key: &str, args: &[&str], body: &str) -> Output {
    let args = [&["fingerprint", "--compare", "shop-1", key], args].concat();
    calm(cli.command(&args).stdin(body).run().await)
}

async fn stored(fingerprint: &Fingerprint) -> Cli {
    let cli = cli().await;
    cli.execute(&format!(
        "insert into idempotency (client_id, key, fingerprint, operation)
         values ('shop-1', 'order-1', '{fingerprint}', 'POST /payments')"
    ))
    .await;
    cli
}

#[tokio::test(flavor = "multi_thread")]
async fn the_digest_alone_and_what_it_is_made_over() {
    let whole = Fingerprint::of_json(BODY.as_bytes()).unwrap();
    assert_eq!(offline(&[], BODY).await.ok(), format!("{whole}\n"));
    assert_eq!(offline(&["-"], BODY).await.ok(), format!("{whole}\n"));
    let fields = Fields::new(["/amount", "/currency"]).unwrap();
    let some = Fingerprint::of_json_fields(BODY.as_bytes(), &fields).unwrap();
    for args in [
        &["--fields", "/amount,/currency"][..],
        &["--fields", "/currency", "--fields", "/amount"],
    ] {
        assert_eq!(offline(args, BODY).await.ok(), format!("{some}\n"), "{args:?}");
    }
    let explained = offline(&["--explain", "--fields", "/amount,/currency"], BODY)
        .await
        .ok();
    assert_eq!(
        explained,
        format!("{{\"amount\":49.9,\"currency\":\"EUR\"}}\n{some}\n")
    );
    let json: Value = serde_json::from_str(&offline(&["--explain", "-o", "json"], BODY).await.ok()).unwrap();
    assert_eq!(json["fingerprint"], whole.as_str());
    assert_eq!(json["made_over"], "body");
    assert_eq!(
        json["canonical"],
        r#"{"amount":49.9,"currency":"EUR","sent_at":"2026-11-29T10:00:00Z"}"#
    );
    let bytes = offline(&["--bytes"], "a=1").await.ok();
    assert_eq!(bytes, format!("{}\n", Fingerprint::of_bytes(b"a=1")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_json_is_refused_with_the_place() {
    let cli = cli().await;
    let path = cli.dir.path().join("body.json");
    std::fs::write(&path, "{\"a\":1,\n \"a\":2}").unwrap();
    let path = path.to_string_lossy().into_owned();
    for args in [&["fingerprint", &path][..], &["fingerprint", "--explain", &path]] {
        let output = calm(idemctl(args).run().await);
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stdout.is_empty());
        for part in ["body.json", "line 2", "--bytes"] {
            assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
        }
    }
    for (args, part) in [
        (&["--fields", "amount"][..], "amount"),
        (&["--fields", "/other"], "has none of the fields"),
        (&["--fields", "/a", "--bytes"], "cannot be used with"),
        (&["/nowhere/body.json"], "couldn't read /nowhere/body.json"),
    ] {
        let output = offline(args, BODY).await;
        assert_eq!(output.code, 2, "{args:?}: {}", output.transcript());
        assert!(output.stderr.contains(part), "{args:?}: {}", output.stderr);
    }
    let long = format!("\"{}\"", "a".repeat(2 * 1024 * 1024));
    let output = offline(&[], &long).await;
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains("1048576"), "{}", output.stderr);
    let output = idemctl(&["fingerprint"]).pty().spawn().wait().await;
    assert_eq!(
        output.code,
        2,
        "a terminal is not waited for: {}",
        output.transcript()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_key_is_the_same_request_or_another() {
    let cli = stored(&Fingerprint::of_json(BODY.as_bytes()).unwrap()).await;
    let other_spelling = r#"{ "amount": 4.99e1, "sent_at":"2026-11-29T10:00:00Z", "currency" : "EUR" }"#;
    let output = compare(&cli, "order-1", &[], other_spelling).await.ok();
    assert!(
        output.contains("the same request") && output.contains("POST /payments"),
        "{output}"
    );
    // Fields that the service did not select: the whole body says it all the same.
    let output = compare(&cli, "order-1", &["--fields", "/amount"], BODY)
        .await
        .ok();
    assert!(output.contains("made over the whole JSON body"), "{output}");
    let changed = BODY.replace("49.90", "49.91");
    let output = compare(&cli, "order-1", &["-o", "json"], &changed).await;
    assert_eq!(output.code, 4, "{}", output.transcript());
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(json["compared"]["same"], false);
    assert_eq!(json["compared"]["same_by"], Value::Null);
    assert!(output.stderr.contains("cannot be told"), "{}", output.stderr);
    let output = compare(&cli, "order-2", &[], BODY).await;
    assert_eq!(output.code, 3, "{}", output.transcript());

    let fields = Fields::new(["/amount", "/currency"]).unwrap();
    let cli = stored(&Fingerprint::of_json_fields(BODY.as_bytes(), &fields).unwrap()).await;
    let later = BODY.replace("10:00", "10:05");
    compare(&cli, "order-1", &["--fields", "/amount,/currency"], &later)
        .await
        .ok();
    assert_eq!(compare(&cli, "order-1", &[], &later).await.code, 4);

    let cli = stored(&Fingerprint::of_bytes(b"a=1")).await;
    compare(&cli, "order-1", &["--bytes"], "a=1").await.ok();
    assert_eq!(compare(&cli, "order-1", &["--bytes"], "a=2").await.code, 4);
}
