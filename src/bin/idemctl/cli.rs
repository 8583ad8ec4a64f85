//! The command line: global options, the table of commands, and the one dispatch.

use std::io::IsTerminal;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::lifecycle::Lifecycle;
use crate::log::LogFormat;
use crate::settings::{self, Settings};

/// Below the help; short for the README's table.
const EXIT_CODES: &str = "\
Exit codes:
  0 done   1 any other error   2 usage or configuration   3 not found   4 refused as unsafe, or answered \"no\"
  5 lost a race   6 partly done   7 database unreachable or timed out   8 provider unreachable, or unknown
  9 schema not as expected (run `idemctl migrate`)   70 a bug   130 interrupted";

/// Idempotency keys in PostgreSQL: see what happened, and do what is safe
#[derive(Debug, Parser)]
#[command(
    name = "idemctl",
    version,
    max_term_width = 100,
    propagate_version = true,
    arg_required_else_help = true,
    after_help = EXIT_CODES
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct GlobalArgs {
    /// libpq URI or key=value; else PGHOST, PGUSER ... as libpq reads them [env: `IDEMCTL_DATABASE_URL`, `DATABASE_URL`]
    #[arg(
        long,
        short = 'd',
        global = true,
        value_name = "URL",
        help_heading = "Connection options"
    )]
    pub(crate) database_url: Option<String>,
    #[arg(
        help = "Configuration file [env: IDEMCTL_CONFIG] [default: $XDG_CONFIG_HOME/idemctl/config.toml (~/.config), else /etc/idemctl/config.toml]",
        long,
        short = 'c',
        global = true,
        value_name = "FILE",
        help_heading = "Connection options"
    )]
    pub(crate) config: Option<std::path::PathBuf>,
    #[arg(
        help = "Schema of the table [default: first of search_path that has it, else public]",
        long,
        global = true,
        value_name = "NAME",
        help_heading = "Connection options"
    )]
    pub(crate) schema: Option<String>,
    /// Time for getting a connection to one address [default: 10s]
    #[arg(long, global = true, value_name = "DURATION", help_heading = "Connection options", value_parser = settings::duration)]
    pub(crate) connect_timeout: Option<std::time::Duration>,
    /// Time for one statement [default: 30s]
    #[arg(long, global = true, value_name = "DURATION", help_heading = "Connection options", value_parser = settings::duration)]
    pub(crate) statement_timeout: Option<std::time::Duration>,
    /// Time for waiting on one lock [default: 5s]
    #[arg(long, global = true, value_name = "DURATION", help_heading = "Connection options", value_parser = settings::duration)]
    pub(crate) lock_timeout: Option<std::time::Duration>,
    /// Form of the output
    #[arg(
        long,
        short = 'o',
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value_t,
        help_heading = "Output options"
    )]
    pub(crate) output: Format,
    /// Colours
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value_t,
        help_heading = "Output options"
    )]
    pub(crate) color: Color,
    /// Form of the logs on stderr [default: text]
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        help_heading = "Output options"
    )]
    pub(crate) log_format: Option<LogFormat>,
    /// More on stderr (repeatable)
    #[arg(long, short = 'v', global = true, action = clap::ArgAction::Count, help_heading = "Output options")]
    pub(crate) verbose: u8,
    /// Less on stderr
    #[arg(
        long,
        short = 'q',
        global = true,
        conflicts_with = "verbose",
        help_heading = "Output options"
    )]
    pub(crate) quiet: bool,
}

/// Form of the output on stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document per line.
    Jsonl,
    /// Comma-separated values with a header.
    Csv,
    /// Client, tab, key: made for piping into another idemctl.
    Ids,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless `NO_COLOR` or TERM=dumb.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// One variant, one file in `commands/`.
#[derive(Debug, Subcommand)]
enum Command {
    Inspect(commands::inspect::InspectArgs),
    History(commands::history::HistoryArgs),
    List(commands::list::ListArgs),
    Release(commands::release::ReleaseArgs),
    Reconcile(commands::reconcile::ReconcileArgs),
    Resolve(Box<commands::resolve::ResolveArgs>),
    Provider(commands::provider::ProviderArgs),
    Purge(commands::purge::PurgeArgs),
    Janitor(commands::janitor::JanitorArgs),
    Migrate(commands::migrate::MigrateArgs),
    Adopt(commands::adopt::AdoptArgs),
    Stats(commands::stats::StatsArgs),
    Top(commands::top::TopArgs),
    Doctor(commands::doctor::DoctorArgs),
    Selftest(commands::selftest::SelftestArgs),
    Fingerprint(commands::fingerprint::FingerprintArgs),
    Bench(commands::bench::BenchArgs),
    Config(commands::config::ConfigArgs),
    Dev(commands::dev::DevArgs),
    #[command(flatten)]
    Describe(Describe),
}

/// What tells of the program itself, and so needs neither configuration nor database.
#[derive(Debug, Subcommand)]
enum Describe {
    Runbook(commands::runbook::RunbookArgs),
    Completions(commands::completions::CompletionsArgs),
    Man(commands::man::ManArgs),
}

impl Describe {
    fn run(&self) -> Result<Exit> {
        match self {
            Self::Runbook(args) => commands::runbook::run(args),
            Self::Completions(args) => commands::completions::run(args, Cli::command()),
            Self::Man(args) => commands::man::run(args, Cli::command(), EXIT_CODES),
        }
    }
}

impl Cli {
    /// Resolves the settings, then runs the command.
    pub(crate) async fn run(self) -> Result<Exit> {
        settings::apply_color(self.global.color);
        if let Command::Describe(describe) = &self.command {
            return describe.run();
        }
        let environment = settings::Environment::of_process();
        // Before the file is read, so that what is wrong with it is said in the form that was asked for.
        crate::log::settle(
            self.global.log_format.unwrap_or_default(),
            environment.get("JOURNAL_STREAM"),
        );
        let settings = if matches!(self.command, Command::Doctor(_)) {
            Settings::resolve_leniently(&self.global, environment)?
        } else {
            Settings::resolve(&self.global, environment)?
        };
        // Lines in the middle of the screen are of no use to anybody; its own head says what is wrong.
        let on_screen = matches!(self.command, Command::Top(_)) && std::io::stderr().is_terminal();
        if !on_screen {
            settings.start_logging(&self.global, matches!(self.command, Command::Janitor(_)));
        }
        let keys = matches!(
            self.command,
            Command::Inspect(_)
                | Command::History(_)
                | Command::List(_)
                | Command::Release(_)
                | Command::Reconcile(_)
                | Command::Resolve(_)
        );
        if self.global.output == Format::Ids && !keys {
            return Err(
                CliError::usage("`-o ids` is for keys, and this command shows something else")
                    .hint("use -o table, json, jsonl or csv"),
            );
        }
        let context = Context::new(settings);
        match self.command {
            Command::Inspect(args) => {
                stoppable(&context, Box::pin(commands::inspect::run(&context, args))).await
            }
            Command::History(args) => {
                stoppable(&context, Box::pin(commands::history::run(&context, args))).await
            }
            Command::List(args) => stoppable(&context, Box::pin(commands::list::run(&context, args))).await,
            Command::Release(args) => commands::release::run(&context, args).await,
            Command::Reconcile(args) => Box::pin(commands::reconcile::run(&context, args)).await,
            Command::Resolve(args) => Box::pin(commands::resolve::run(&context, &args)).await,
            Command::Provider(args) => stoppable(&context, commands::provider::run(&context, args)).await,
            Command::Purge(args) => commands::purge::run(&context, args).await,
            Command::Janitor(args) => Box::pin(commands::janitor::run(&context, &args, &self.global)).await,
            Command::Migrate(args) => commands::migrate::run(&context, args).await,
            Command::Adopt(args) => Box::pin(commands::adopt::run(&context, args)).await,
            Command::Stats(args) => {
                stoppable(&context, Box::pin(commands::stats::run(&context, &args))).await
            }
            Command::Top(args) => Box::pin(commands::top::run(&context, args, &self.global)).await,
            Command::Doctor(args) => {
                stoppable(&context, Box::pin(commands::doctor::run(&context, &args))).await
            }
            Command::Fingerprint(args) => {
                stoppable(&context, Box::pin(commands::fingerprint::run(&context, args))).await
            }
            Command::Selftest(args) => Box::pin(commands::selftest::run(&context, args, &self.global)).await,
            Command::Bench(args) => Box::pin(commands::bench::run(&context, args)).await,
            Command::Dev(args) => commands::dev::run(&context, args).await,
            Command::Config(args) => commands::config::run(&context, &args),
            Command::Describe(describe) => describe.run(),
        }
    }
}

/// For commands that only read: a signal ends them, on the server too.
async fn stoppable(context: &Context, work: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    Lifecycle::install_short()?.unless_stopped(context, work).await
}
