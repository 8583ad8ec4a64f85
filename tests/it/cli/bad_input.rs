//! What people and scripts get wrong: the code of the contract, a line that helps, and nothing changed.

use std::os::unix::ffi::OsStringExt;

use super::fixture::{calm, filled};
use crate::support::idemctl;

#[tokio::test(flavor = "multi_thread")]
async fn usage_errors() {
    let cli = filled().await;
    let before = cli.everything().await;
    let long = "k".repeat(256);
    let wide = "\u{e9}".repeat(256);
    for (args, word) in [
        (&["inspect", "shop-1", &long][..], "256 characters"),
        (&["inspect", &wide, "k"], "256 characters"),
        (&["inspect", "shop-1", ""], "is empty"),
        (&["inspect", "shop-1", "a\x1b[31mb"], "U+001B"),
        (&["inspect", "shop-1", "a\nb"], "U+000A"),
        (&["inspect", "shop-1", "a\u{9b}b"], "U+009B"),
        (&["release", "shop-1", &long, "--yes"], "256 characters"),
        (&["release", "shop-1", "--yes"], "key is missing"),
        (&["release", "--yes"], "required"),
        (
            &["release", "--expired", "shop-1", "order-1", "--yes"],
            "cannot be used with",
        ),
        (
            &["release", "shop-1", "order-1", "--older-than", "1h", "--yes"],
            "cannot be used with",
        ),
        (
            &["release", "shop-1", "order-1", "--accept-double-charge", "--yes"],
            "--reason",
        ),
        (&["release", "--expired", "--limit", "0", "--yes"], "0"),
        (&["provider", "status", &long], "256 characters"),
        (&["list", "--older-than=-1h"], "no whole number"),
        (&["list", "--older-than", "24"], "no unit"),
        (&["list", "--older-than", ""], "empty"),
        (&["list", "--older-than", "1000000000000000000s"], "too long"),
        (&["list", "--older-than", "99999999999999999999d"], "too long"),
        (&["list", "--newer-than", "1 h"], "unknown unit"),
        (&["list", "--state", "stale"], "possible values"),
        (&["list", "--sort", "sideways"], "possible values"),
        (&["list", "--limit", "0"], "0"),
        (&["list", "--limit", "-5"], "-5"),
        (&["list", "--limit", "9999999999999"], "9999999999999"),
        (&["list", "--all", "--limit", "5"], "cannot be used with"),
        (&["list", "--cursor", "zz"], "cursor"),
        (&["list", "-o", "yaml"], "possible values"),
        (&["list", "--color", "mauve"], "possible values"),
        (&["list", "-q", "-v"], "cannot be used with"),
        (&["list", "--statement-timeout", "0s"], "1 ms"),
        (&["inspect", "shop-1", "order-7", "--unmask"], "--show-response"),
        (&["provider", "list", "-o", "ids"], "ids"),
        (&["purge", "-o", "ids"], "ids"),
        (&["config", "-o", "ids"], "ids"),
        (&["obliterate"], "unrecognized"),
        (&["lis"], "unrecognized"),
    ] {
        let output = cli.run(args).await;
        assert_eq!(output.code, 2, "{args:?}: {}", output.transcript());
        assert!(output.stderr.contains(word), "{args:?}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args:?}");
        assert!(!output.stderr.contains('\x1b'), "{args:?}: {:?}", output.stderr);
    }
    let none: [&str; 0] = [];
    let output = idemctl(&none).run().await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert_eq!(cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_are_none() {
    for (url, word) in [
        ("http://host/db", "postgres://"),
        ("postgres://host:port/db", "port"),
        ("postgres://u@host/db?sslmode=sometimes", "sslmode"),
        ("postgres://u@host/db?nonsense=1", "nonsense"),
        ("host=a nonsense=1", "nonsense"),
        ("just-a-name", "="),
    ] {
        let output = calm(idemctl(&["list", "-d", url]).run().await);
        assert_eq!(output.code, 2, "{url}: {}", output.transcript());
        assert!(output.stderr.contains(word), "{url}: {}", output.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn arguments_that_are_no_text() {
    let cli = filled().await;
    for place in ["shop-1 \"$BAD\"", "\"$BAD\" order-1"] {
        let bad = std::ffi::OsString::from_vec(b"or\xffder".to_vec());
        let output = std::process::Command::new("/bin/sh")
            .args([
                "-c",
                &format!("\"$0\" inspect {place}"),
                env!("CARGO_BIN_EXE_idemctl"),
            ])
            .env("BAD", bad)
            .env("IDEMCTL_DATABASE_URL", &cli.db.url)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("UTF-8"), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn words_that_look_like_options_can_be_keys() {
    let cli = filled().await;
    cli.execute("insert into idempotency (client_id, key, fingerprint) values ('-c', '--yes', '')")
        .await;
    let output = cli.run(&["inspect", "-o", "ids", "--", "-c", "--yes"]).await;
    assert_eq!(output.ok(), "-c\t--yes\n");
}
