//! Completions and manual pages: what the program tells of itself, without configuration and database.

use std::path::Path;

use crate::support::{Run, Spawned, idemctl, require_program, temp_dir};

/// With nothing that could be configured, or reached.
fn bare(args: &[&str]) -> Run {
    idemctl(args)
        .env("IDEMCTL_CONFIG", "/nonexistent/c.toml")
        .env("IDEMCTL_DATABASE_URL", "postgres://nobody@192.0.2.1/x")
}

/// What the formatter says about a page; nothing if all is well.
async fn lint(page: &Path) -> String {
    let page = page.to_string_lossy().into_owned();
    let groff = require_program("groff", "groff-base");
    let output = Run::new(&groff.to_string_lossy(), &["-ww", "-man", "-Tutf8", "-z", &page])
        .run()
        .await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    let man = require_program("man", "man-db");
    let shown = Run::new(&man.to_string_lossy(), &["--warnings", "-l", &page])
        .env("MANWIDTH", "80")
        .run()
        .await;
    assert_eq!(shown.code, 0, "{}", shown.transcript());
    format!("{}{}", output.stderr, shown.stderr)
}

/// Every command, as the help lists them.
async fn commands(above: &[&str], found: &mut Vec<String>) {
    found.push([&["idemctl"], above].concat().join("-"));
    let help = idemctl(&[above, &["--help"]].concat()).run().await.ok();
    let Some((_, list)) = help.split_once("\nCommands:\n") else {
        return;
    };
    for line in list.lines().take_while(|line| line.starts_with("  ")) {
        let name = line.split_whitespace().next().unwrap_or_default();
        // A continued explanation is indented further.
        if line.starts_with("   ") || name == "help" {
            continue;
        }
        Box::pin(commands(&[above, &[name]].concat(), found)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_has_a_page_without_a_warning() {
    let dir = temp_dir();
    let path = dir.path().to_string_lossy().into_owned();
    bare(&["man", "--dir", &path]).run().await.ok();
    let mut written: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    written.sort();
    let mut wanted = Vec::new();
    commands(&[], &mut wanted).await;
    assert!(wanted.len() > 20, "{wanted:?}");
    let mut wanted: Vec<String> = wanted.into_iter().map(|name| name + ".1").collect();
    wanted.sort();
    assert_eq!(written, wanted);
    for name in &written {
        assert_eq!(lint(&dir.path().join(name)).await, "", "{name}");
        let page = std::fs::read_to_string(dir.path().join(name)).unwrap();
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS", "SEE ALSO"] {
            let quoted = format!(".SH \"{heading}\"");
            assert!(
                page.contains(&quoted) || page.contains(&format!(".SH {heading}\n")),
                "{name} has no {heading}"
            );
        }
    }
    // The check finds what it is for.
    let wrong = dir.path().join("wrong.1");
    std::fs::write(&wrong, ".TH wrong 1\n.SH NAME\n\\*(XY\n.nosuchmacro\n").unwrap();
    assert_ne!(lint(&wrong).await, "");
}

#[tokio::test]
async fn one_page_as_it_is_read() {
    let page = bare(&["man", "provider", "status"]).run().await.ok();
    let dir = temp_dir();
    let file = dir.path().join("page.1").to_string_lossy().into_owned();
    std::fs::write(&file, page).unwrap();
    let groff = require_program("groff", "groff-base");
    // -P-cbou: plain text without overstriking.
    let shown = Run::new(
        &groff.to_string_lossy(),
        &["-man", "-Tutf8", "-P-cbou", "-rLL=100n", &file],
    )
    .run()
    .await
    .ok();
    let shown = shown.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    // What every page has is in the snapshot of the help.
    let (own, rest) = shown.split_once("CONNECTION OPTIONS").unwrap();
    let (_, rest) = rest.split_once("EXIT STATUS").unwrap();
    insta::assert_snapshot!(format!("{own}[...]\n\nEXIT STATUS{rest}"));
    let own = bare(&["man"]).run().await.ok();
    for word in [
        "CREDENTIALS_DIRECTORY",
        "/etc/idemctl/config.toml",
        "ENVIRONMENT",
        "FILES",
    ] {
        assert!(own.contains(word), "{word}");
    }
    for code in ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "70", "130"] {
        assert!(own.contains(&format!("\n.TP\n\\fB{code}\\fR\n")), "{code}: {own}");
    }
}

#[tokio::test]
async fn the_runbook_whole_and_in_parts() {
    let whole = bare(&["runbook"]).run().await.ok();
    assert!(whole.contains("\nThe provider is down\n") && whole.contains("\n    idemctl inspect "));
    assert!(!whole.contains('\u{1b}') && !whole.contains("```"), "{whole}");
    let part = bare(&["runbook", "LEASE"]).run().await.ok();
    assert!(
        part.starts_with("A live lease\n") && !part.contains("provider is down"),
        "{part}"
    );
    let coloured = bare(&["runbook", "lease", "--color", "always"]).run().await.ok();
    assert!(
        coloured.starts_with("\u{1b}[1mA live lease\u{1b}[0m\n"),
        "{coloured}"
    );
}

#[tokio::test]
async fn what_is_not_there_is_said() {
    let output = bare(&["runbook", "unicorns"]).run().await;
    assert_eq!(output.code, 3, "{}", output.transcript());
    assert!(output.stderr.contains("A live lease"), "{}", output.stderr);
    let output = bare(&["man", "provider", "stat"]).run().await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("status, list, key"), "{}", output.stderr);
    let output = bare(&["man", "--dir", "/nonexistent/dir"]).run().await;
    assert_eq!(output.code, 1, "{}", output.transcript());
    assert!(output.stderr.contains("/nonexistent/dir"), "{}", output.stderr);
    let output = bare(&["completions", "csh"]).run().await;
    assert_eq!(output.code, 2, "{}", output.transcript());
    assert!(output.stderr.contains("bash, zsh, fish"), "{}", output.stderr);
}

/// Writes the completions of a shell to a file.
async fn completions(shell: &str, dir: &Path, name: &str) -> String {
    let script = bare(&["completions", shell]).run().await.ok();
    let path = dir.join(name);
    std::fs::write(&path, script).unwrap();
    path.to_string_lossy().into_owned()
}

#[tokio::test]
async fn bash_completes() {
    let dir = temp_dir();
    let file = completions("bash", dir.path(), "idemctl").await;
    let script = format!(
        "source {file}
         words() {{ COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
                   _idemctl idemctl \"${{@: -1}}\" \"${{@: -2:1}}\"; echo \"${{COMPREPLY[*]}}\"; }}
         words idemctl re; words idemctl provider s; words idemctl list --st; words idemctl -o js"
    );
    let said = Run::new("/bin/bash", &["--norc", "-euc", &script])
        .run()
        .await
        .ok();
    assert_eq!(
        said,
        "release reconcile resolve\nstatus\n--state --statement-timeout\njson jsonl\n"
    );
}

#[tokio::test]
async fn fish_completes() {
    let dir = temp_dir();
    let file = completions("fish", dir.path(), "idemctl.fish").await;
    let fish = require_program("fish", "fish");
    let script = format!("source {file}; complete -C 'idemctl rel'; complete -C 'idemctl provider s'");
    let said = Run::new(&fish.to_string_lossy(), &["--no-config", "-c", &script])
        .run()
        .await
        .ok();
    let words: Vec<&str> = said.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(words, ["release", "status"], "{said}");
}

/// The completion of zsh works in its line editor alone, so this is typed.
#[tokio::test]
async fn zsh_completes() {
    let dir = temp_dir();
    completions("zsh", dir.path(), "_idemctl").await;
    let zsh = require_program("zsh", "zsh");
    let mut shell: Spawned = Run::new(&zsh.to_string_lossy(), &["-f", "-i"]).pty().spawn();
    let path = dir.path().to_string_lossy();
    shell
        .type_in(&format!(
            "fpath=({path} $fpath); autoload -Uz compinit; compinit -u -d {path}/dump; \
             idemctl() {{ print -r -- \"called with <$*>\" }}; print ready''now\n"
        ))
        .await;
    shell.wait_for_line("readynow").await;
    shell.type_in("idemctl rel\t --acc\t\n").await;
    shell
        .wait_for_line("called with <release --accept-double-charge>")
        .await;
    shell.type_in("exit\n").await;
    assert_eq!(shell.wait().await.code, 0);
}
