//! What cannot be meant is refused before the database is asked.

use super::{BODY, EVIDENCE, file, resolve};
use crate::cli::fixture::{calm, filled};
use crate::support::idemctl;

/// Arguments, apart from the key and `--yes`, and a word of the complaint.
type Case<'a> = (Vec<&'a str>, &'a str);

fn texts(long: &str) -> Vec<Case<'_>> {
    vec![
        (vec!["--reason", "r"], "--evidence"),
        (vec!["--evidence", "e"], "--reason"),
        (vec!["--evidence", " ", "--reason", "r"], "evidence is blank"),
        (vec!["--evidence", "e", "--reason", "\t"], "reason is blank"),
        (vec!["--evidence", long, "--reason", "r"], "4001 characters"),
        (vec!["--evidence", "e", "--reason", long], "4001 characters"),
        (vec!["--evidence", "\u{1b}[2J", "--reason", "r"], "U+001B"),
        (vec!["--evidence", "e", "--reason", "a\u{7}"], "U+0007"),
    ]
}

fn decisions<'a>(body: &'a str, huge: &'a str, dir: &'a str) -> Vec<Case<'a>> {
    let with = |code: &'a str| vec!["--done", "--response", body, "--status-code", code];
    let header = |header: &'a str| [with("200"), vec!["--header", header]].concat();
    let response = |path: &'a str| vec!["--done", "--response", path, "--status-code", "200"];
    vec![
        (vec![], "--done"),
        (vec!["--done"], "--response"),
        (vec!["--done", "--failed"], "cannot be used with"),
        (vec!["--done", "--status-code", "200"], "--response"),
        (vec!["--failed", "--response", body], "--status-code"),
        (vec!["--failed", "--header", "a: b"], "--response"),
        (
            vec!["--failed", "--response", body, "--status-code", "201"],
            "success",
        ),
        (response(huge), "larger than 1048576 bytes"),
        (response("/dev/zero"), "larger than 1048576 bytes"),
        (response("/nowhere/x"), "/nowhere/x"),
        (response(dir), "directory"),
        (with("99"), "99"),
        (with("102"), "ends nothing"),
        (with("204"), "no body"),
        (with("70000"), "70000"),
        (header("no colon"), "colon"),
        (header("a b: c"), "token"),
        (header("a: b\r\nc: d"), "visible ASCII"),
        (header("Content-Length: 3"), "content-length"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_is_code_2_and_changes_nothing() {
    let cli = filled().await;
    let (body, huge) = (
        file(&cli, "body", BODY),
        file(&cli, "huge", vec![b'x'; 1024 * 1024 + 1]),
    );
    let (long, dir) = ("x".repeat(4_001), cli.dir.path().to_string_lossy().into_owned());
    let before = cli.everything().await;
    let key = ["resolve", "shop-9", "order-1"];
    let said = ["--evidence", EVIDENCE, "--reason", "ticket 7"];
    let texts = texts(&long)
        .into_iter()
        .map(|(args, word)| ([&["--failed", "--yes"][..], &args].concat(), word));
    let decisions = decisions(&body, &huge, &dir)
        .into_iter()
        .map(|(args, word)| ([&["--yes"][..], &args, &said].concat(), word));
    // Nobody to ask, and no --yes.
    let unasked = ([&["--failed"][..], &said].concat(), "--yes");
    for (args, word) in texts.chain(decisions).chain([unasked]) {
        let output = cli.run(&[&key[..], &args].concat()).await;
        assert_eq!(output.code, 2, "{args:?}: {}", output.transcript());
        assert!(output.stderr.contains(word), "{word}: {}", output.stderr);
    }
    let piped = ["--done", "--response", "-", "--status-code", "200", "--yes"];
    let run = cli.command(&[&key[..], &piped, &said].concat());
    let output = calm(run.stdin(vec![b'x'; 1024 * 1024 + 1]).run().await);
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
