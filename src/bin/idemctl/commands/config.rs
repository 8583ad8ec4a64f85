//! `idemctl config`: the effective configuration, each value with its source.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::Item;
use crate::settings::Effective;

/// Show the effective configuration, each value with where it came from; secrets are redacted
#[derive(Debug, clap::Args)]
pub(crate) struct ConfigArgs {
    /// Only check; print nothing when all is well
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(context: &Context, args: &ConfigArgs) -> Result<Exit> {
    let values = context.settings.explain()?;
    // A provider that could not be asked is found here rather than at night.
    for name in context.settings.config.providers.keys() {
        context.provider(Some(name))?;
    }
    if args.check {
        let providers = context.settings.config.providers.len();
        context.printer.note(&format!(
            "the configuration can be used; {providers} provider(s); secrets are read when they are needed"
        ));
    } else {
        let mut list = context.printer.list();
        list.page(&values)?;
        list.end()?;
    }
    Ok(Exit::Done)
}

impl Item for Effective {
    const COLUMNS: &'static [&'static str] = &["name", "value", "source"];

    fn cells(&self) -> Vec<String> {
        vec![self.name.clone(), self.value.clone(), self.source.clone()]
    }

    fn id(&self) -> Option<(&str, &str)> {
        None
    }
}
