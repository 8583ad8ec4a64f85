//! `idemctl dev demo`: one night's call, with the real output of the real commands.

use std::path::Path;
use std::process::Stdio;

use idemctl::connect::{Connection, Settings};
use idemctl::dev::{Lifetime, Server};
use idemctl::ops::migrate;
use tokio::process::Command;

use super::provider::FakeProvider;
use super::{StartArgs, seed};
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};

/// The demo's own database in the development server; made anew each time.
const DATABASE: &str = "idemctl_demo";

/// One command of the walk.
struct Step {
    /// What is said before it.
    say: &'static str,
    args: &'static [&'static str],
    /// How it has to end, or the demo is broken.
    exit: Exit,
}

const WALK: &[Step] = &[
    Step {
        say: "It is 3 a.m. and a page says that keys are stuck. Which?",
        args: &["list", "--state", "expired", "--state", "in_progress"],
        exit: Exit::Done,
    },
    Step {
        say: "shop-1 asked for order-1 to be charged, and the service died before it had an answer.",
        args: &["inspect", "shop-1", "order-1"],
        exit: Exit::Done,
    },
    Step {
        say: "The row cannot tell whether the money moved. The provider can, by the order id.",
        args: &["provider", "status", "order-1"],
        exit: Exit::Done,
    },
    Step {
        say: "It did move. To release the key now would let the next request charge again: refused.",
        args: &["release", "shop-1", "order-1", "--yes"],
        exit: Exit::Refused,
    },
    Step {
        say: "What is safe is to store the answer that the client should have had. `reconcile` asks the provider and does it.",
        args: &[
            "reconcile",
            "shop-1",
            "order-1",
            "--yes",
            "--reason",
            "paged at 3 a.m.",
        ],
        exit: Exit::Done,
    },
    Step {
        say: "Rows that were answered go after 24 hours; a dry run shows what the next purge would take.",
        args: &["purge", "--dry-run"],
        exit: Exit::Done,
    },
    Step {
        say: "Whatever the client sends again for order-1 gets that answer now, and who did what is on record.",
        args: &["inspect", "shop-1", "order-1"],
        exit: Exit::Done,
    },
];

pub(super) async fn run(context: &Context, args: &StartArgs) -> Result<Exit> {
    let options = args.options(context).await?;
    // A server that is up already stays so; one that we start ends with us.
    let server = Server::start(&options, Lifetime::Tied).await?;
    let outcome = walk(context, &server, &options.binaries).await;
    if server.is_tied() {
        server.stop().await?;
    }
    outcome
}

async fn walk(context: &Context, server: &Server, binaries: &idemctl::dev::Binaries) -> Result<Exit> {
    server.recreate_database(DATABASE).await?;
    let url = server.url(DATABASE);
    let settings = Settings::from_dsn(&url)?;
    migrate::run(&settings, None, &migrate::Options::default()).await?;
    seed::fill(&mut Connection::open(&settings).await?).await?;
    let provider = FakeProvider::start().await?;
    let config = ConfigFile::write(server.dir(), &provider.config())?;
    crate::render::raw(&format!(
        "A private PostgreSQL {} is up, with the table `idempotency` and a few keys in it. A small payment\n\
         provider, \"acme\", answers on loopback. Both stop when this ends; the keys stay\n\
         in the database `idemctl_demo` until the next demo.\n",
        binaries.version()
    ))?;
    for step in WALK {
        show(context, step, &url, &config.0).await?;
    }
    crate::render::raw(
        "\nNext: `idemctl dev up` keeps such a server running. Its database `idemctl` is for you (`idemctl migrate` makes\n\
         the table); the demo's keys are in `idemctl_demo`.\n",
    )?;
    Ok(Exit::Done)
}

/// Runs one command as the reader would, and shows the line and everything that it says.
async fn show(context: &Context, step: &Step, url: &str, config: &Path) -> Result<()> {
    let Step { say, args, exit } = step;
    let line: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    crate::render::raw(&format!("\n# {say}\n$ idemctl {}\n", line.join(" ")))?;
    let failed = |why: String| {
        CliError::new(
            Exit::Other,
            format!("couldn't run idemctl {}: {why}", args.join(" ")),
        )
    };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(program);
    // PGHOSTADDR, PGSERVICE and the like would lead elsewhere.
    for name in context.settings.environment().names_beginning("PG") {
        command.env_remove(name);
    }
    let output = command
        .args(*args)
        .env("IDEMCTL_DATABASE_URL", url)
        .env("IDEMCTL_CONFIG", config)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| failed(error.to_string()))?;
    // What goes to stderr is shown after stdout, as on a screen where both end up.
    let said = [output.stdout, output.stderr].concat();
    crate::render::raw(&String::from_utf8_lossy(&said))?;
    if output.status.code() == Some(i32::from(*exit as u8)) {
        return Ok(());
    }
    Err(failed(format!(
        "it ended with {}, where {} was to come",
        output.status, *exit as u8
    )))
}

/// A configuration file that goes with the demo.
struct ConfigFile(std::path::PathBuf);

impl ConfigFile {
    fn write(dir: &Path, text: &str) -> Result<Self> {
        let path = dir.join("demo.toml");
        std::fs::write(&path, text).map_err(|error| {
            CliError::new(Exit::Other, format!("couldn't write {}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        // It holds no secret; if it stays, it does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// As it has to be typed. The words of the walk hold no quotes.
fn quoted(arg: &str) -> String {
    if arg.contains(' ') {
        format!("\"{arg}\"")
    } else {
        arg.to_owned()
    }
}
