//! `idemctl completions`: a shell's completions, from the same definitions as the help.

use clap_complete::Shell;

use crate::exit::{Exit, Result};
use crate::render;

/// Print the completions of a shell
///
/// Bash loads them from /usr/share/bash-completion/completions/idemctl (or ~/.local/share/bash-completion/completions),
/// zsh as _idemctl from a directory of its $fpath, fish from ~/.config/fish/completions/idemctl.fish. The Debian
/// package brings all three.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Dialect,
}

/// The shells whose completions are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Dialect {
    Bash,
    Zsh,
    Fish,
}

/// Needs neither configuration nor database.
pub(crate) fn run(args: &CompletionsArgs, mut program: clap::Command) -> Result<Exit> {
    let shell = match args.shell {
        Dialect::Bash => Shell::Bash,
        Dialect::Zsh => Shell::Zsh,
        Dialect::Fish => Shell::Fish,
    };
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, name, &mut script);
    render::raw(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
