//! What cannot be meant is refused before the database is asked.

use super::{BODY, EVIDENCE, file, resolve};
use crate::cli::fixture::{calm, filled};
use crate::support::idemctl;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_is_code_2_and_changes_nothing() {
    let cli = filled().await;
    let body = file(&cli, "body", BODY);
    let huge = file(&cli, "huge", vec![b'x'; 1024 * 1024 + 1]);
    let before = cli.everything().await;
    let key = ["resolve", "shop-9", "order-1", "--yes"];
    let said = ["--evidence", EVIDENCE, "--reason", "ticket 7"];
    let with = ["--response", &body, "--status-code"];
    let long = "x".repeat(4_001);
    let dir = cli.dir.path().to_string_lossy().into_owned();
    for (args, word) in [
        (&["--failed", "--reason", "r"][..], "--evidence"),
        (&["--failed", "--evidence", "e"], "--reason"),
        (
            &["--failed", "--evidence", " ", "--reason", "r"],
            "evidence is blank",
        ),
        (
            &["--failed", "--evidence", "e", "--reason", "\t"],
            "reason is blank",
        ),
        (
            &["--failed", "--evidence", &long, "--reason", "r"],
            "4001 characters",
        ),
        (
            &["--failed", "--evidence", "e", "--reason", &long],
            "4001 characters",
        ),
        (
            &["--failed", "--evidence", "\u{1b}[2J", "--reason", "r"],
            "U+001B",
        ),
        (&["--failed", "--evidence", "e", "--reason", "a\u{7}"], "U+0007"),
    ] {
        let output = calm(idemctl(&[&key[..], args].concat()).on(&cli.db.url).run().await);
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
    for (args, word) in [
        (&[][..], "--done"),
        (&["--done"], "--response"),
        (&["--done", "--failed"], "cannot be used with"),
        (&["--done", "--status-code", "200"], "--response"),
        (&["--failed", "--response", &body], "--status-code"),
        (&["--failed", "--header", "a: b"], "--response"),
        (
            &["--done", "--response", &huge, "--status-code", "200"],
            "larger than 1048576 bytes",
        ),
        (
            &["--done", "--response", "/nowhere/x", "--status-code", "200"],
            "/nowhere/x",
        ),
        (
            &["--done", "--response", &dir, "--status-code", "200"],
            "directory",
        ),
        (&[&["--done"][..], &with, &["99"]].concat(), "99"),
        (&[&["--done"][..], &with, &["102"]].concat(), "ends nothing"),
        (&[&["--done"][..], &with, &["204"]].concat(), "no body"),
        (&[&["--done"][..], &with, &["70000"]].concat(), "70000"),
        (&[&["--failed"][..], &with, &["201"]].concat(), "success"),
        (
            &[&["--done"][..], &with, &["200", "--header", "no colon"]].concat(),
            "colon",
        ),
        (
            &[&["--done"][..], &with, &["200", "--header", "a b: c"]].concat(),
            "token",
        ),
        (
            &[&["--done"][..], &with, &["200", "--header", "a: b\r\nc: d"]].concat(),
            "visible ASCII",
        ),
        (
            &[&["--done"][..], &with, &["200", "--header", "Content-Length: 3"]].concat(),
            "content-length",
        ),
    ] {
        let output = calm(
            idemctl(&[&key[..], args, &said].concat())
                .on(&cli.db.url)
                .run()
                .await,
        );
        assert_eq!(output.code, 2, "{args:?}: {}", output.transcript());
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
    let output = idemctl(
        &[
            &key[..],
            &["--done", "--response", "-", "--status-code", "200"],
            &said,
        ]
        .concat(),
    );
    let output = calm(
        output
            .on(&cli.db.url)
            .stdin(vec![b'x'; 1024 * 1024 + 1])
            .run()
            .await,
    );
    assert_eq!(output.code, 2, "{}", output.transcript());
    // Nobody to ask, and no --yes.
    let output = idemctl(&[&key[..3], &["--failed"], &said].concat());
    let output = calm(output.on(&cli.db.url).run().await);
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert_eq!(cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_text_is_kept_as_it_is_and_shown_escaped() {
    let cli = filled().await;
    let evidence = "line 1\r\n\tline 2 \u{202e}drow 'quoted\" \\u0000 %s {key} 😀";
    let args = [
        "resolve",
        "shop-9",
        "order-1",
        "--failed",
        "--yes",
        "--evidence",
        evidence,
        "--reason",
        evidence,
    ];
    let output = cli.run(&args).await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(
        !output.transcript().contains('\u{202e}'),
        "{}",
        output.transcript()
    );
    assert!(
        output.stderr.contains("line 1\\r\\n\\tline 2"),
        "{}",
        output.stderr
    );
    let kept = cli.text("select details->>'evidence' from idempotency_event where action = 'resolve'");
    assert_eq!(kept.await, evidence);
    let kept = cli.text("select reason from idempotency_event where action = 'resolve'");
    assert_eq!(kept.await, evidence);
    // The limit of one argument lies below a megabyte, so that no process even begins with more.
    let most = "é".repeat(4_000);
    let output = calm(
        idemctl(&[
            "resolve",
            "shop-9",
            "order-2",
            "--failed",
            "--yes",
            "--evidence",
            &most,
            "--reason",
            &most,
        ])
        .on(&cli.db.url)
        .run()
        .await,
    );
    assert_eq!(output.code, 0, "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_body_that_is_allowed() {
    let cli = filled().await;
    let body = file(&cli, "body", vec![b'x'; 1024 * 1024]);
    let args = [
        "shop-9",
        "order-1",
        "--done",
        "--status-code",
        "200",
        "--response",
        &body,
    ];
    let (code, _, output) = resolve(&cli, &args).await;
    assert_eq!(code, 0, "{}", output.transcript());
    assert!(output.stderr.contains("no content type"), "{}", output.stderr);
    assert!(output.stderr.len() < 4_000, "only its beginning is shown");
    let stored = cli.number("select octet_length(response_body)::int8 from idempotency where (client_id, key) = ('shop-9', 'order-1')");
    assert_eq!(stored.await, 1024 * 1024);
}
