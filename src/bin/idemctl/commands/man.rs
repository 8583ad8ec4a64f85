//! `idemctl man`: manual pages, from the same definitions as the help.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::exit::{CliError, Exit, Result};
use crate::render;

/// Print a manual page
///
/// The page comes as roff: `idemctl man reconcile | man -l -` shows it. With --dir, all pages are written, one file
/// for each command.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// The command whose page is wanted, such as `provider status` [default: idemctl itself]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
    /// Write all pages into this directory, which has to exist
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    dir: Option<PathBuf>,
}

/// What the environment means, for the page of idemctl itself.
const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "IDEMCTL_DATABASE_URL",
        "where the database is; before DATABASE_URL",
    ),
    ("DATABASE_URL", "where the database is"),
    ("IDEMCTL_CONFIG", "the configuration file"),
    (
        "PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD, PGPASSFILE, PGSERVICE, PGSSLMODE ...",
        "as libpq reads them, where nothing else names the database",
    ),
    (
        "CREDENTIALS_DIRECTORY",
        "set by systemd for a unit with LoadCredential=; holds what the configuration calls url_credential or \
         credential",
    ),
    ("NO_COLOR, CLICOLOR_FORCE, TERM", "whether the output has colours"),
];

/// The files, for the same page.
const FILES: &[(&str, &str)] = &[
    (
        "$XDG_CONFIG_HOME/idemctl/config.toml (~/.config where that is unset)",
        "the configuration of a user",
    ),
    ("/etc/idemctl/config.toml", "the configuration of the machine"),
];

/// Needs neither configuration nor database. `exit_codes`: the list as the help has it.
pub(crate) fn run(args: &ManArgs, program: Command, exit_codes: &str) -> Result<Exit> {
    let mut program = program.disable_help_subcommand(true);
    program.build();
    if let Some(dir) = &args.dir {
        write_all(&program, dir, exit_codes)?;
    } else {
        let page = page(find(&program, &args.command)?, &program, exit_codes)?;
        render::raw(&page)?;
    }
    Ok(Exit::Done)
}

fn find<'a>(program: &'a Command, path: &[String]) -> Result<&'a Command> {
    let mut found = program;
    for name in path {
        found = found.find_subcommand(name).ok_or_else(|| {
            let known: Vec<&str> = found.get_subcommands().map(Command::get_name).collect();
            let hint = if known.is_empty() {
                "it has no commands below it".to_owned()
            } else {
                format!("its commands are {}", known.join(", "))
            };
            CliError::usage(format!(
                "{} has no command {name:?}",
                name_of(found).replace('-', " ")
            ))
            .hint(hint)
        })?;
    }
    Ok(found)
}

/// `idemctl-provider-status`: the page's name, and what stands in its head.
fn name_of(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn write_all(program: &Command, dir: &Path, exit_codes: &str) -> Result<()> {
    for command in with_all_below(program) {
        let path = dir.join(format!("{}.1", name_of(command)));
        std::fs::write(&path, page(command, program, exit_codes)?).map_err(|error| {
            CliError::new(
                Exit::Other,
                format!("couldn't write the manual page {}: {error}", path.display()),
            )
            .hint("name a directory that exists and can be written to, with --dir")
        })?;
    }
    Ok(())
}

fn with_all_below(command: &Command) -> Vec<&Command> {
    std::iter::once(command)
        .chain(command.get_subcommands().flat_map(with_all_below))
        .collect()
}

/// One page. It holds no date, so that the same source gives the same bytes.
fn page(command: &Command, program: &Command, exit_codes: &str) -> std::io::Result<String> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.clone().override_usage(usage));
    // By hand: an empty date among the arguments would let the others move up.
    let mut page = format!(
        ".TH \"{}\" \"1\" \"\" \"{} {}\" \"Idempotency keys in PostgreSQL\"\n",
        name_of(command),
        program.get_name(),
        program.get_version().unwrap_or_default()
    )
    .into_bytes();
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    if std::ptr::eq(command, program) {
        list(&mut rest, "ENVIRONMENT", ENVIRONMENT.iter().copied());
        list(&mut rest, "FILES", FILES.iter().copied());
    }
    list(&mut rest, "EXIT STATUS", codes(exit_codes));
    see_also(&mut rest, command, program);
    page.write_all(rest.render().as_bytes())?;
    // Every part brings the same definition, of which one is enough.
    let preamble = Roff::new().render();
    let page = String::from_utf8_lossy(&page).replace(&preamble, "");
    Ok(format!("{preamble}{page}"))
}

/// The codes with their meanings, out of lines such as `  0 done   1 any other error`.
fn codes(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .flat_map(|line| line.split("   "))
        .filter_map(|entry| entry.trim().split_once(' '))
        .filter(|(code, _)| code.bytes().all(|byte| byte.is_ascii_digit()))
}

fn list<'a>(roff: &mut Roff, heading: &str, entries: impl Iterator<Item = (&'a str, &'a str)>) {
    roff.control("SH", [heading]);
    for (term, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(term)]);
        roff.text([roman(meaning)]);
    }
}

/// The page above and the pages below; from below the page of idemctl itself, which has what holds for all.
fn see_also(roff: &mut Roff, command: &Command, program: &Command) {
    let above = with_all_below(program).into_iter().find(|other| {
        other
            .get_subcommands()
            .any(|sub| name_of(sub) == name_of(command))
    });
    let mut names: Vec<&str> = Vec::new();
    if !std::ptr::eq(command, program) {
        names.push(name_of(program));
    }
    names.extend(above.map(name_of).filter(|name| *name != name_of(program)));
    names.extend(command.get_subcommands().map(name_of));
    roff.control("SH", ["SEE ALSO"]);
    let last = names.len().saturating_sub(1);
    for (at, name) in names.into_iter().enumerate() {
        let end = if at == last { "(1)" } else { "(1)," };
        roff.text([bold(name), roman(end)]);
    }
}
