//! Running `initdb` and `postgres`.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::directory::{Directory, local};
use super::server::{Lifetime, Options};
use crate::error::{Error, Result};

/// The superuser of the private cluster, and the name of its first database.
pub const USER: &str = "idemctl";

/// Runs the server until it ends, or until our end of the pipe on its stdin is closed: that is when we are
/// gone, in whatever way. `$1` is the signal to send then, `$2` a directory to remove at last, or nothing.
///
/// The reader is a process of its own, so that even a killed supervisor leaves nobody behind. It is ended
/// when the server has gone first.
const SUPERVISOR: &str = r#"
signal=$1 remove=$2
shift 2
exec 3<&0
"$@" </dev/null &
server=$!
( read -r _ <&3; kill -s "$signal" "$server" ) 2>/dev/null &
reader=$!
wait "$server"
status=$?
kill "$reader" 2>/dev/null
if [ -n "$remove" ]; then rm -rf "$remove"; fi
exit "$status"
"#;

/// Makes the cluster unless it is there: beside its place, then by rename, so that no interruption leaves half
/// of one. The caller holds `start_lock`; initdb inherits it and so keeps the next one out if we are killed.
pub(super) async fn initialise(directory: &Directory, options: &Options, start_lock: &File) -> Result<()> {
    if directory.data().exists() {
        return Ok(());
    }
    let fresh = directory.path.join("data.new");
    if fresh.exists() {
        remove_leftover(&fresh).await?;
    }
    let inherited = start_lock
        .try_clone()
        .map_err(|e| local("keep the lock of", &directory.path, &e))?;
    let mut command = program(directory, options, "initdb");
    command.args([
        "-U",
        USER,
        "--auth-local=trust",
        "--auth-host=reject",
        "-E",
        "UTF8",
        "--no-locale",
        "-D",
    ]);
    command.arg(&fresh).stdin(inherited);
    if options.throwaway {
        command.arg("--no-sync");
    }
    let output = tokio::process::Command::from(command)
        .output()
        .await
        .map_err(|e| local("run", &options.binaries.program("initdb"), &e))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Local {
            what: format!(
                "initdb failed in {} ({}): {}",
                directory.path.display(),
                output.status,
                said.trim()
            ),
        });
    }
    std::fs::rename(&fresh, directory.data()).map_err(|e| local("rename", &fresh, &e))
}

/// Starts `postgres`. The server inherits the locked `server_lock` as its stdout, to which it writes nothing.
pub(super) fn start(
    directory: &Directory,
    options: &Options,
    lifetime: Lifetime,
    socket_dir: &Path,
    server_lock: File,
) -> Result<Child> {
    let postgres = options.binaries.program("postgres");
    let mut command = match lifetime {
        Lifetime::Detached => program(directory, options, "postgres"),
        Lifetime::Tied => {
            let mut command = bare(directory, options, Path::new("/bin/sh"));
            let signal = if options.throwaway { "QUIT" } else { "INT" };
            command.args(["-c", SUPERVISOR, "idemctl-dev", signal]);
            command.arg(options.remove.as_deref().unwrap_or(Path::new("")));
            command.arg(&postgres);
            command
        }
    };
    command.arg("-D").arg(directory.data());
    let socket_setting = socket_dir.to_str().ok_or_else(|| Error::Settings {
        what: format!(
            "{} is not valid UTF-8; choose another directory",
            socket_dir.display()
        ),
    })?;
    let port = options.port.to_string();
    let throwaway: &[_] = if options.throwaway {
        &[
            ("fsync", "off"),
            ("synchronous_commit", "off"),
            ("full_page_writes", "off"),
        ]
    } else {
        &[]
    };
    let fixed = [
        ("listen_addresses", ""),
        ("unix_socket_directories", socket_setting),
        ("unix_socket_permissions", "0700"),
        ("port", &port),
    ];
    let given = options
        .settings
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    for (name, value) in fixed.into_iter().chain(throwaway.iter().copied()).chain(given) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    let stdin = match lifetime {
        Lifetime::Detached => Stdio::null(),
        Lifetime::Tied => Stdio::piped(),
    };
    command
        .stdin(stdin)
        .stdout(server_lock)
        .stderr(directory.open("server.log")?)
        // Ctrl-C in the terminal reaches us and not the server: we decide when it goes.
        .process_group(0)
        .spawn()
        .map_err(|e| local("run", &postgres, &e))
}

/// Removes what an interrupted run has left. No initdb is at work in there, for we have the lock; but a child of
/// one that was killed may need a moment to notice, and makes files until then.
async fn remove_leftover(fresh: &Path) -> Result<()> {
    let mut tries = 0;
    loop {
        match std::fs::remove_dir_all(fresh) {
            Ok(()) => return Ok(()),
            Err(e) if tries == 40 => return Err(local("remove", fresh, &e)),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
        tries += 1;
    }
}

fn program(directory: &Directory, options: &Options, name: &str) -> Command {
    bare(directory, options, &options.binaries.program(name))
}

/// A command as the server's user, in its directory, without the PG* variables: the server reads some of them
/// (PGPORT, PGDATA, PGOPTIONS ...), and they were meant for clients.
fn bare(directory: &Directory, options: &Options, program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PG") {
            command.env_remove(name);
        }
    }
    command
        .env("LC_ALL", "C")
        .envs(options.env.iter().map(|(name, value)| (name, value)));
    command.current_dir(&directory.path);
    directory.identity.apply(&mut command);
    command
}
