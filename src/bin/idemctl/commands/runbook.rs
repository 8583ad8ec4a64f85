//! `idemctl runbook`: what to do at 3 a.m., where there is only the binary.

use std::fmt::Write as _;

use crate::exit::{CliError, Exit, Result};
use crate::render;

/// The same text that the documentation has.
const RUNBOOK: &str = include_str!("../../../guide/runbook.md");

/// Print the runbook: what you see, what it means, what to type, what not to do
///
/// With a word, only the sections whose title has it: `idemctl runbook lease`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunbookArgs {
    /// Part of a section's title, in any case
    #[arg(value_name = "WORD")]
    word: Option<String>,
}

/// Needs neither configuration nor database.
pub(crate) fn run(args: &RunbookArgs) -> Result<Exit> {
    let text = match &args.word {
        None => RUNBOOK.to_owned(),
        Some(word) => chosen(word)?,
    };
    render::styled(&for_a_terminal(&text))?;
    Ok(Exit::Done)
}

/// The sections whose title has this word.
fn chosen(word: &str) -> Result<String> {
    let sections: Vec<&str> = RUNBOOK.split("\n## ").skip(1).collect();
    let title = |section: &str| section.lines().next().unwrap_or_default().to_owned();
    let wanted = word.to_lowercase();
    let found: Vec<String> = sections
        .iter()
        .filter(|section| title(section).to_lowercase().contains(&wanted))
        .map(|section| format!("## {}\n", section.trim_end()))
        .collect();
    if found.is_empty() {
        let titles: Vec<String> = sections.iter().map(|section| title(section)).collect();
        return Err(CliError::new(
            Exit::NotFound,
            format!("no section of the runbook has {word:?} in its title"),
        )
        .hint(format!("there are: {}", titles.join(", "))));
    }
    Ok(found.join("\n"))
}

/// Titles in bold, commands indented; the rest as it is written.
fn for_a_terminal(markdown: &str) -> String {
    let bold = anstyle::Style::new().bold();
    let mut text = String::with_capacity(markdown.len());
    let mut command = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            command = !command;
            continue;
        }
        // Writing to a string cannot fail.
        let _written = if command {
            writeln!(text, "    {line}")
        } else if line.starts_with('#') {
            writeln!(text, "{bold}{}{bold:#}", line.trim_start_matches(['#', ' ']))
        } else {
            writeln!(text, "{line}")
        };
    }
    text
}
