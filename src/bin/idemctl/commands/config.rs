//! `idemctl config`: the effective configuration, each value with its source.

use std::io::{self, Write};

use serde::Serialize;

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::{Document, printable};
use crate::settings::Effective;

/// Show the effective configuration, each value with where it came from; secrets are redacted
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Only check; print nothing when all is well
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(context: &Context, args: &ConfigArgs) -> Result<Exit> {
    let view = ConfigView {
        values: context.settings.explain()?,
    };
    if !args.check {
        context.printer.document(&view)?;
    }
    Ok(Exit::Done)
}

#[derive(Debug, Serialize)]
struct ConfigView {
    values: Vec<Effective>,
}

impl Document for ConfigView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = self
            .values
            .iter()
            .map(|value| value.name.len())
            .max()
            .unwrap_or(0);
        for Effective { name, value, source } in &self.values {
            writeln!(
                out,
                "{name:<width$}  {}  ({})",
                printable(value),
                printable(source)
            )?;
        }
        Ok(())
    }
}
