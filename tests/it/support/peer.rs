//! Servers of other people's making that stand for a provider, one of each for the whole test process.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use super::process::require_program;
use super::tied::Tied;

/// How long a server may take to start on a busy machine.
const LIMIT: Duration = Duration::from_mins(1);

/// A running server with Stripe's API. It ends with the test process, however that ends.
pub(crate) struct Peer {
    /// The port on 127.0.0.1.
    pub(crate) port: u16,
    _process: Tied,
}

/// localstripe (PyPI): payment intents with their states; no search, and idempotency keys are ignored.
pub(crate) async fn localstripe() -> &'static Peer {
    static SHARED: OnceLock<Peer> = OnceLock::new();
    start(&SHARED, || {
        let modules = installed("pip/modules");
        Peer::start("python3", "python3", "start_localstripe.py", move |command| {
            command.env("PYTHONPATH", modules);
        })
    })
    .await
}

/// stripe-stateful-mock (npm): charges, with idempotency keys that work.
pub(crate) async fn stateful_mock() -> &'static Peer {
    static SHARED: OnceLock<Peer> = OnceLock::new();
    start(&SHARED, || {
        let modules = installed("npm/node_modules");
        Peer::start("node", "nodejs", "start_stateful_mock.js", move |command| {
            command.env("NODE_PATH", modules).env("LOG_LEVEL", "error");
        })
    })
    .await
}

async fn start(shared: &'static OnceLock<Peer>, peer: fn() -> Peer) -> &'static Peer {
    tokio::task::spawn_blocking(move || shared.get_or_init(peer))
        .await
        .expect("the server starts")
}

/// What tests/run has installed; the test fails if it has not.
pub(crate) fn installed(what: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("target/test-peers")
        .join(what);
    assert!(
        path.is_dir(),
        "this test needs {}; tests/run installs it",
        path.display()
    );
    path
}

impl Peer {
    fn start(program: &str, package: &str, script: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let program = require_program(program, package);
        let script = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/it/stripe/peers")
            .join(script);
        let (output, input) = std::io::pipe().expect("a pipe");
        let process = Tied::spawn(&[program.as_os_str(), script.as_os_str()], |command| {
            command
                .stdout(input.try_clone().expect("our own pipe"))
                .stderr(input);
            prepare(command);
        });
        let seen = Arc::new(Mutex::new(String::new()));
        let (send, ports) = mpsc::channel();
        let collected = Arc::clone(&seen);
        // Reads to the end, so that the server never waits for us.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(port) = line.strip_prefix("listening on ") {
                    let _ = send.send(port.parse::<u16>());
                }
                let mut seen = collected.lock().expect("no panic while it is held");
                seen.push_str(&line);
                seen.push('\n');
            }
        });
        match ports.recv_timeout(LIMIT) {
            Ok(Ok(port)) => Self {
                port,
                _process: process,
            },
            // The sender is gone as soon as the server is.
            problem => panic!(
                "{} did not start ({problem:?}); it said:\n{}",
                script.display(),
                seen.lock().expect("no panic while it is held")
            ),
        }
    }
}
