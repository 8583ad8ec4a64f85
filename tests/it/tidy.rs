//! What keeps the source readable, as tests.

use std::path::{Path, PathBuf};

/// Most lines of a file.
const MOST_LINES: usize = 400;

fn sources(dir: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(dir)];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn name(path: &Path) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    path.strip_prefix(root).unwrap().to_string_lossy().into_owned()
}

#[test]
fn files_are_short() {
    let mut long = Vec::new();
    for path in sources("src").into_iter().chain(sources("tests")) {
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        if lines > MOST_LINES {
            long.push(format!("{}: {lines} lines", name(&path)));
        }
    }
    assert!(long.is_empty(), "over {MOST_LINES} lines: {long:#?}");
}

#[test]
fn functions_are_short() {
    let clippy = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("clippy.toml")).unwrap();
    assert!(
        clippy.contains("too-many-lines-threshold = 70"),
        "clippy counts lines of functions"
    );
}

#[test]
fn only_render_writes_to_stdout() {
    for path in sources("src") {
        let text = std::fs::read_to_string(&path).unwrap();
        let file = name(&path);
        let render = file.starts_with("src/bin/idemctl/render");
        for word in ["println!", "print!(", "stdout()"] {
            let found = text.lines().enumerate().find(|(_, line)| {
                let code = line.trim_start();
                // `eprintln!` holds the word, and stderr is another matter; asking whether there is a terminal
                // writes nothing.
                let talk = code
                    .replace("eprintln!", "")
                    .replace("eprint!", "")
                    .replace("stdout().is_terminal()", "");
                !code.starts_with("//") && talk.contains(word)
            });
            if let (Some((at, line)), false) = (found, render) {
                panic!("{file}, line {}: {line}", at + 1);
            }
        }
    }
}

#[test]
fn only_the_store_has_sql() {
    for path in sources("src") {
        let file = name(&path);
        if file.starts_with("src/store") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("-- idemctl:"), "{file} holds a statement");
    }
}
