//! The gate before every change: a function that mutates takes a [`Confirmed`], and only this module makes one.

use std::io::{ErrorKind, IsTerminal};
use std::time::Duration;

use console::Key;

use crate::exit::{CliError, Exit, Result};

/// Flags of every command that changes rows.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Safety options")]
pub(crate) struct ChangeArgs {
    /// Do not ask; needed without a terminal
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Show what would be done, with the same conditions, and change nothing
    #[arg(long, short = 'n')]
    pub(crate) dry_run: bool,
    /// Why, for the event log
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// A provider's answer older than this is asked for again before anything is done: the question to the operator may
/// have stood for an hour, and a late holder may have charged meanwhile.
pub(crate) const FRESH: Duration = Duration::from_secs(30);

/// Proof that somebody agreed to a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirmed(());

/// Refuses at once where a question will be needed and nobody could be asked.
pub(crate) fn require_answerable(args: &ChangeArgs) -> Result<()> {
    let terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if args.yes || args.dry_run || terminal {
        return Ok(());
    }
    Err(
        CliError::usage("this changes rows, and there is no terminal to ask on; nothing was changed")
            .hint("look with --dry-run first, then repeat with --yes"),
    )
}

/// Asks on the terminal (default: no); without a terminal `--yes` is needed.
pub(crate) fn confirm(args: &ChangeArgs, question: &str) -> Result<Confirmed> {
    if args.yes {
        return Ok(Confirmed(()));
    }
    require_answerable(args)?;
    match ask(&console::Term::stderr(), question) {
        Ok(true) => Ok(Confirmed(())),
        Ok(false) => Err(CliError::new(Exit::Refused, "not confirmed; nothing was changed")),
        Err(error) if error.kind() == ErrorKind::Interrupted => Err(CliError::new(
            Exit::Interrupted,
            "interrupted; nothing was changed",
        )),
        Err(error) => Err(CliError::usage(format!(
            "couldn't ask on the terminal: {error}; nothing was changed"
        ))),
    }
}

/// One key decides. The end of the input is nobody's consent.
fn ask(terminal: &console::Term, question: &str) -> std::io::Result<bool> {
    terminal.write_str(&format!("{} [y/N] ", crate::render::printable(question)))?;
    terminal.flush()?;
    let yes = loop {
        match terminal.read_key() {
            Ok(Key::Char('y' | 'Y')) => break true,
            // Ctrl-D arrives as itself, or as NUL when it was pressed before the terminal was ours.
            Ok(Key::Char('n' | 'N' | 'q' | '\u{4}' | '\0') | Key::Enter | Key::Escape) => break false,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break false,
            Err(error) => return Err(error),
        }
    };
    terminal.write_line(if yes { "yes" } else { "no" })?;
    Ok(yes)
}

/// For what never asks by contract: `purge` with the configured retention, `migrate`, `janitor`.
pub(crate) fn exempt() -> Confirmed {
    Confirmed(())
}
