//! Pipes, full disks, colours, widths, quiet and verbose.

use super::fixture::{Cli, calm, cli, filled};
use crate::support::{Output, Run};

async fn shell(cli: &Cli, line: &str) -> Output {
    let run = Run::new("/bin/bash", &["-c", line, env!("CARGO_BIN_EXE_idemctl")]);
    run.on(&cli.db.url).run().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pipe_ends_quietly() {
    let cli = cli().await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, owner)
         select 'shop', 'k' || i, repeat('a', 64), repeat('o', 200) from generate_series(1, 5000) i",
    )
    .await;
    for form in ["table", "json", "jsonl", "csv", "ids"] {
        let output = shell(
            &cli,
            &format!("\"$0\" list --all -o {form} | head -1; exit ${{PIPESTATUS[0]}}"),
        )
        .await;
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{form}");
        assert_eq!(output.stdout.lines().count(), 1);
    }
    let help = shell(&cli, "\"$0\" --help | true; exit ${PIPESTATUS[0]}").await;
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_error() {
    let cli = filled().await;
    for args in [
        "list",
        "list -o json",
        "list -o csv",
        "inspect shop-1 order-1",
        "config",
        "--help",
        "--version",
        "provider key shop-1 order-1",
    ] {
        let output = calm(shell(&cli, &format!("\"$0\" {args} > /dev/full")).await);
        assert_eq!(output.code, 1, "{args}: {}", output.transcript());
        assert!(
            output.stderr.contains("couldn't write"),
            "{args}: {}",
            output.stderr
        );
    }
    // Nobody can be told, but the code still speaks.
    let output = shell(&cli, "\"$0\" inspect shop-1 none 2> /dev/full").await;
    assert_eq!(output.code, 3, "{}", output.transcript());
    let output = shell(&cli, "\"$0\" inspect shop-1 none 2>&- >&-").await;
    assert_eq!(output.code, 3, "{}", output.transcript());
    let dir = cli.dir.path().join("none");
    for args in [
        "list --limit 1",
        "history shop-1 order-1",
        "migrate --show-sql",
        &format!("dev down --dir {}", dir.display()),
    ] {
        let output = shell(&cli, &format!("\"$0\" {args} 2> /dev/full")).await;
        assert_eq!(output.code, 0, "{args}: {}", output.transcript());
        let output = shell(&cli, &format!("\"$0\" {args} -q")).await;
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{args}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_where_they_are_wanted() {
    let cli = filled().await;
    let colour = async |args: &[&str], env: &[(&str, &str)], pty: bool| {
        let run = cli.command(&[&["inspect", "shop-1", "order-1"], args].concat());
        let run = env.iter().fold(run, |run, (name, value)| run.env(name, *value));
        let output = if pty { run.pty() } else { run }.run().await;
        calm(output).ok().contains("\x1b[")
    };
    assert!(!colour(&[], &[], false).await);
    assert!(colour(&[], &[], true).await);
    assert!(!colour(&[], &[("NO_COLOR", "1")], true).await);
    assert!(!colour(&[], &[("TERM", "dumb")], true).await);
    assert!(!colour(&["--color", "never"], &[], true).await);
    assert!(colour(&["--color", "always"], &[], false).await);
    assert!(colour(&[], &[("CLICOLOR_FORCE", "1")], false).await);
    assert!(
        !colour(&["--color", "always", "-o", "json"], &[], true).await,
        "never in data"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_go_before_lines_wrap() {
    let cli = filled().await;
    for (columns, heads) in [
        (
            200,
            "CLIENT_ID KEY STATE ATTEMPT AGE LEASE CODE OPERATION PROVIDER OWNER",
        ),
        (
            100,
            "CLIENT_ID KEY STATE ATTEMPT AGE LEASE CODE OPERATION PROVIDER",
        ),
        (60, "CLIENT_ID KEY STATE AGE LEASE"),
        (50, "CLIENT_ID KEY STATE LEASE"),
    ] {
        let line = format!("stty cols {columns} rows 24; exec \"$0\" list");
        let run = Run::new("/bin/sh", &["-c", &line, env!("CARGO_BIN_EXE_idemctl")])
            .on(&cli.db.url)
            .pty();
        let output = run.run().await.ok();
        let longest = output
            .lines()
            .map(|line| line.trim_end().chars().count())
            .max()
            .unwrap();
        assert!(longest <= columns, "{longest} > {columns}\n{output}");
        let found: Vec<&str> = output.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(found.join(" "), heads, "{columns}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn quiet_and_verbose_touch_stderr_only() {
    let cli = filled().await;
    let plain = cli.run(&["list", "--limit", "2", "-o", "ids"]).await;
    assert!(plain.stderr.contains("note: there are more"), "{}", plain.stderr);
    let quiet = cli.run(&["list", "--limit", "2", "-o", "ids", "-q"]).await;
    assert_eq!(
        (quiet.stdout.as_str(), quiet.stderr.as_str()),
        (plain.stdout.as_str(), "")
    );
    let error = cli.run(&["inspect", "shop-1", "none", "-q"]).await;
    assert!(
        error.stderr.contains("error: no key"),
        "errors are not silenced: {}",
        error.stderr
    );
    let verbose = cli.run(&["list", "--limit", "2", "-o", "ids", "-vvv"]).await;
    assert_eq!(verbose.stdout, plain.stdout);
    assert!(verbose.stderr.len() > plain.stderr.len());
}
