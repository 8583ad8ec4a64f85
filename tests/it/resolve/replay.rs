//! What the client's retry gets.

use super::{file, resolve};
use crate::cli::fixture::{Cli, calm, cli};
use crate::protocol::{acquire, open, print, replay};

fn request(key: &str) -> idemctl::protocol::Request {
    idemctl::protocol::Request::new(idemctl::key::KeyId::new("shop-1", key).unwrap(), print("pay 1"))
}

/// A key that a service claimed and then forgot.
async fn stuck(cli: &Cli, key: &str) {
    let keys = open(&cli.db.client).await;
    std::mem::forget(acquire(&keys, &cli.db.client, &request(key)).await);
    cli.execute("update idempotency set locked_until = now() - interval '1 s' where status = 'in_progress'")
        .await;
}

/// Key, body, headers as they are given, headers as they are replayed.
type Case = (
    &'static str,
    &'static [u8],
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

#[tokio::test(flavor = "multi_thread")]
async fn the_same_bytes_and_headers() {
    let cli = cli().await;
    let bodies: [Case; 6] = [
        (
            "json",
            b"{\"a\":1.0,  \"b\":1e400, \"a\":\"\\u0000\"}\n",
            &[],
            &[("content-type", "application/json")],
        ),
        (
            "typed",
            b"[1]",
            &[
                "Content-Type: application/hal+json",
                "Link: <a>",
                "Link:<b>",
                "x-empty:",
            ],
            &[
                ("Content-Type", "application/hal+json"),
                ("Link", "<a>"),
                ("Link", "<b>"),
                ("x-empty", ""),
            ],
        ),
        (
            "text",
            b"Thank you!",
            &["content-type: text/plain"],
            &[("content-type", "text/plain")],
        ),
        ("bytes", b"\x00\xff\xfe\r\n", &[], &[]),
        ("empty", b"", &[], &[]),
        ("deep", &[b'['; 5_000], &[], &[]),
    ];
    let keys = open(&cli.db.client).await;
    for (key, body, headers, expected) in bodies {
        stuck(&cli, key).await;
        let path = file(&cli, key, body);
        let mut args = vec![
            "shop-1",
            key,
            "--done",
            "--status-code",
            "201",
            "--response",
            &path,
        ];
        for header in headers {
            args.extend(["--header", header]);
        }
        let (code, json, output) = resolve(&cli, &args).await;
        assert_eq!(
            (code, json["result"].as_str()),
            (0, Some("done")),
            "{}",
            output.transcript()
        );
        let response = replay(&keys, &cli.db.client, &request(key)).await;
        assert_eq!((response.status_code(), response.body()), (201, body), "{key}");
        let got: Vec<_> = response
            .headers()
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(got, expected, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn from_stdin_and_as_failed() {
    let cli = cli().await;
    let keys = open(&cli.db.client).await;
    stuck(&cli, "piped").await;
    let args = [
        "resolve",
        "shop-1",
        "piped",
        "--failed",
        "--status-code",
        "402",
        "--response",
        "-",
        "--evidence",
        "e",
        "--reason",
        "r",
        "--yes",
    ];
    calm(cli.command(&args).stdin("{\"declined\": true}").run().await).ok();
    let response = replay(&keys, &cli.db.client, &request("piped")).await;
    assert_eq!(
        (response.status_code(), response.body()),
        (402, &b"{\"declined\": true}"[..])
    );
    assert_eq!(response.header("content-type"), Some("application/json"));

    stuck(&cli, "failed").await;
    let (code, _, output) = resolve(&cli, &["shop-1", "failed", "--failed"]).await;
    assert_eq!(code, 0, "{}", output.transcript());
    let response = replay(&keys, &cli.db.client, &request("failed")).await;
    let body: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!((response.status_code(), &body["status"]), (500, &500.into()));
    assert_eq!(body["outcome"], "not_charged");
    // A new key is a new payment, as the answer says.
    drop(acquire(&keys, &cli.db.client, &request("failed-2")).await);
}
