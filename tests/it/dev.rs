//! The private PostgreSQL: starts, finds, stops and recovers, whatever was killed in between.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use idemctl::dev::{Binaries, Lifetime, Options, Server};
use sha2::Digest;

use crate::support::{Run, Spawned, connect, idemctl, temp_dir, until};

mod command;
mod fetch;
mod helpers;

fn options(dir: impl Into<PathBuf>) -> Options {
    let mut options = Options::new(dir, Binaries::find(None).unwrap());
    options.throwaway = true;
    options
}

async fn one(server: &Server) -> i32 {
    connect(&server.url("idemctl"))
        .await
        .query_one("select 1", &[])
        .await
        .unwrap()
        .get(0)
}

/// Gone, or dead and not yet waited for by whoever has to.
fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'),
    }
}

fn kill9(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_cold_and_warm_and_keeps_its_data() {
    let dir = temp_dir();
    let mut options = options(dir.path().join("dev"));
    options.throwaway = false;
    let started = Instant::now();
    let server = Server::start(&options, Lifetime::Tied).await.unwrap();
    let cold = started.elapsed();
    let client = connect(&server.url("idemctl")).await;
    client
        .batch_execute("create table t as select 42 as x")
        .await
        .unwrap();
    drop(client);
    let first = server.pid();
    server.stop().await.unwrap();
    assert!(is_gone(first));
    let started = Instant::now();
    let server = Server::start(&options, Lifetime::Tied).await.unwrap();
    eprintln!("cold {cold:?}, warm {:?}", started.elapsed());
    let client = connect(&server.url("idemctl")).await;
    let x: i32 = client.query_one("select x from t", &[]).await.unwrap().get(0);
    assert_eq!(x, 42);
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_detached_server_is_found_by_its_directory_and_stopped() {
    let dir = temp_dir();
    let options = options(dir.path().join("dev"));
    assert!(Server::find(&options.dir).await.unwrap().is_none());
    let pid = {
        let server = Server::start(&options, Lifetime::Detached).await.unwrap();
        server.pid()
    };
    let found = Server::find(&options.dir)
        .await
        .unwrap()
        .expect("it outlives the value");
    assert_eq!(found.pid(), pid);
    assert_eq!(one(&found).await, 1);
    found.stop().await.unwrap();
    assert!(Server::find(&options.dir).await.unwrap().is_none());
    until("the process is gone", async || is_gone(pid)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_starts_at_once_share_one_server() {
    let dir = temp_dir();
    let options = options(dir.path().join("dev"));
    let (a, b) = tokio::join!(
        Server::start(&options, Lifetime::Detached),
        Server::start(&options, Lifetime::Detached),
    );
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.pid(), b.pid());
    assert_eq!(one(&b).await, 1);
    a.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tied_server_dies_with_a_killed_parent() {
    let dir = temp_dir();
    let path = dir.path().join("dev");
    let place = path.to_string_lossy();
    let mut parent = Spawned::test("dev::child_starts_a_tied_server", &[("IDEMCTL_TEST_DIR", &place)]);
    let line = parent.wait_for_line("started ").await;
    let server: u32 = line.split("started ").nth(1).unwrap().parse().unwrap();
    assert!(!is_gone(server));
    assert!(Server::find(&path).await.unwrap().is_some());
    parent.kill9().await;
    until("the server is gone", async || is_gone(server)).await;
    assert!(Server::find(&path).await.unwrap().is_none());
    let again = Server::start(&options(path), Lifetime::Tied).await.unwrap();
    assert_eq!(one(&again).await, 1);
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a child process"]
async fn child_starts_a_tied_server() {
    let dir = std::env::var("IDEMCTL_TEST_DIR").unwrap();
    let server = Server::start(&options(dir), Lifetime::Tied).await.unwrap();
    println!("\nstarted {}", server.pid());
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_servers_pid_file_is_no_obstacle_even_with_its_number_reused() {
    let dir = temp_dir();
    let options = options(dir.path().join("dev"));
    let server = Server::start(&options, Lifetime::Detached).await.unwrap();
    kill9(server.pid());
    // The other server processes notice, and go.
    until("nobody answers", async || {
        Server::find(&options.dir).await.unwrap().is_none()
    })
    .await;
    // As after a restart of the machine: the number in the pid file is now somebody else's.
    let pid_file = options.dir.join("data/postmaster.pid");
    let stale = std::fs::read_to_string(&pid_file).unwrap();
    let mut bystander = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    std::fs::write(
        &pid_file,
        stale.replacen(&server.pid().to_string(), &bystander.id().to_string(), 1),
    )
    .unwrap();
    assert!(Server::find(&options.dir).await.unwrap().is_none());
    let again = Server::start(&options, Lifetime::Detached).await.unwrap();
    assert_eq!(one(&again).await, 1);
    again.stop().await.unwrap();
    assert!(
        bystander.try_wait().unwrap().is_none(),
        "nobody but the server was stopped"
    );
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_initdb_leaves_no_half_cluster() {
    let dir = temp_dir();
    let path = dir.path().join("dev");
    for kill_initdb_too in [false, true] {
        let parent = Run::test("dev::child_starts_a_tied_server")
            .env("IDEMCTL_TEST_DIR", path.to_string_lossy())
            .spawn();
        until("initdb is at work", async || {
            path.join("data.new/PG_VERSION").exists()
        })
        .await;
        let children = std::fs::read_dir(format!("/proc/{}/task", parent.pid()))
            .unwrap()
            .flatten();
        let children: String = children
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .collect();
        let initdb: u32 = children
            .split_whitespace()
            .next()
            .expect("initdb runs")
            .parse()
            .unwrap();
        parent.kill9().await;
        if kill_initdb_too {
            kill9(initdb);
        }
        assert!(
            !path.join("data").exists(),
            "nothing half-made where the server looks"
        );
        assert!(Server::find(&path).await.unwrap().is_none());
        let server = Server::start(&options(&path), Lifetime::Tied).await.unwrap();
        assert_eq!(one(&server).await, 1);
        server.stop().await.unwrap();
        assert!(!path.join("data.new").exists());
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_never_runs_as_root_and_lets_nobody_in() {
    let dir = temp_dir();
    let options = options(dir.path().join("dev"));
    let server = Server::start(&options, Lifetime::Tied).await.unwrap();
    let uid = std::fs::metadata(format!("/proc/{}", server.pid()))
        .unwrap()
        .uid();
    assert_ne!(uid, 0);
    let ours = nix::unistd::geteuid();
    assert!(ours.is_root() || ours.as_raw() == uid);
    let top = std::fs::metadata(&options.dir).unwrap();
    assert_eq!((top.mode() & 0o7777, top.uid()), (0o700, uid));
    let listening = connect(&server.url("idemctl")).await;
    let row = listening
        .query_one("select current_setting('listen_addresses')", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), "");
    server.stop().await.unwrap();
}

/// The directory that is used when the path has no room for a socket.
fn short_dir(long: &Path) -> PathBuf {
    use std::fmt::Write as _;
    let mut name = "idemctl-".to_owned();
    for byte in &sha2::Sha256::digest(long.as_os_str().as_encoded_bytes())[..6] {
        write!(name, "{byte:02x}").unwrap();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_dir());
    runtime.unwrap_or_else(|| "/tmp".into()).join(name)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_too_long_for_a_socket_gets_a_short_private_one() {
    let dir = temp_dir();
    let options = options(dir.path().join("d".repeat(120)));
    let server = Server::start(&options, Lifetime::Detached).await.unwrap();
    assert_eq!(server.socket_dir(), short_dir(&options.dir));
    assert_eq!(
        std::fs::metadata(server.socket_dir()).unwrap().mode() & 0o777,
        0o700
    );
    assert_eq!(one(&server).await, 1);
    let found = Server::find(&options.dir).await.unwrap().expect("found again");
    assert_eq!(found.socket_dir(), server.socket_dir());
    server.stop().await.unwrap();
    assert!(!short_dir(&options.dir).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_directory_that_others_can_enter_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = temp_dir();
    let options = options(dir.path().join("e".repeat(120)));
    let trap = short_dir(&options.dir);
    std::fs::create_dir(&trap).unwrap();
    std::fs::set_permissions(&trap, PermissionsExt::from_mode(0o755)).unwrap();
    let error = Server::start(&options, Lifetime::Detached)
        .await
        .unwrap_err()
        .to_string();
    std::fs::remove_dir(&trap).unwrap();
    assert!(error.contains("is not a private directory"), "{error}");
    assert!(error.contains(&*trap.to_string_lossy()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn data_of_another_version_are_named_and_left_alone() {
    let dir = temp_dir();
    let options = options(dir.path().join("dev"));
    Server::start(&options, Lifetime::Tied)
        .await
        .unwrap()
        .stop()
        .await
        .unwrap();
    std::fs::write(options.dir.join("data/PG_VERSION"), "12\n").unwrap();
    let error = Server::start(&options, Lifetime::Tied)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("holds data of PostgreSQL 12"), "{error}");
    assert!(error.contains("--pg-bindir"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_the_server_refuses_is_reported_with_its_words() {
    let dir = temp_dir();
    let mut options = options(dir.path().join("dev"));
    options
        .settings
        .push(("max_connections".to_owned(), "many".to_owned()));
    let error = Server::start(&options, Lifetime::Tied)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("did not start"), "{error}");
    assert!(error.contains("max_connections"), "{error}");
    options.settings.clear();
    Server::start(&options, Lifetime::Tied)
        .await
        .unwrap()
        .stop()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_named_and_can_be_ended() {
    let home = temp_dir();
    let dir = home.path().join("dev").to_string_lossy().into_owned();
    let run = async |command: &str| {
        idemctl(&["dev", command, "--dir", &dir])
            .limit(Duration::from_mins(1))
            .run()
            .await
    };
    run("up").await.ok();
    let pid = std::fs::read_to_string(home.path().join("dev/data/postmaster.pid")).unwrap();
    let pid = nix::unistd::Pid::from_raw(pid.lines().next().unwrap().parse().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    for command in ["url", "up"] {
        let output = run(command).await;
        assert_eq!(output.code, 7, "{}", output.transcript());
        assert!(output.stderr.contains(&pid.to_string()), "{}", output.stderr);
    }
    // The children stand still as well, the postmaster goes, and its number is a stranger's now.
    let data = home.path().join("dev/data").canonicalize().unwrap();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let entry = entry.unwrap();
        let Some(raw) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == data) {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(raw), nix::sys::signal::Signal::SIGSTOP)
                .unwrap();
        }
    }
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let mut stranger = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let file = data.join("postmaster.pid");
    let text = std::fs::read_to_string(&file).unwrap();
    let (_, rest) = text.split_once('\n').unwrap();
    std::fs::write(&file, format!("{}\n{rest}", stranger.id())).unwrap();
    let output = run("down").await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(output.stderr.contains("stopped the server"), "{}", output.stderr);
    assert_eq!(run("url").await.code, 3);
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger lives");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
