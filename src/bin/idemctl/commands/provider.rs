//! `idemctl provider`: asks payment providers, and shows what is configured.

use std::io::{self, Write};

use idemctl::provider::{LookUp, Provider, StatusQuery};
use serde::Serialize;

use super::key_arg::KeyArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::Document;
use crate::render::provider::StatusView;
use crate::settings::show_duration;

/// Ask the payment provider, and show which are configured
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct ProviderArgs {
    #[command(subcommand)]
    command: ProviderCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ProviderCommand {
    /// Ask what became of an order
    Status {
        /// Our id of the order, as the provider was given it
        #[arg(value_name = "ORDER_ID", allow_hyphen_values = true)]
        order_id: String,
        /// Which provider, where several are configured
        #[arg(long, value_name = "NAME")]
        provider: Option<String>,
    },
    /// Show the configured providers
    List,
    /// Show the idempotency key that the provider is given for a key of ours
    Key(ProviderKeyArgs),
}

/// Which key.
#[derive(Debug, clap::Args)]
struct ProviderKeyArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// The operation, such as "POST /payments"; by default as the table has it
    #[arg(long, value_name = "TEXT")]
    operation: Option<String>,
    /// Which provider's scheme and limit, where several are configured
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
}

pub(crate) async fn run(context: &Context, args: ProviderArgs) -> Result<Exit> {
    match args.command {
        ProviderCommand::Status { order_id, provider } => {
            idemctl::key::check_name("the order id", &order_id)?;
            status(context, order_id, provider.as_deref()).await
        }
        ProviderCommand::List => list(context),
        ProviderCommand::Key(args) => key(context, &args).await,
    }
}

async fn status(context: &Context, order_id: String, name: Option<&str>) -> Result<Exit> {
    let provider = context.provider(name)?;
    // Without the row nobody knows when the last attempt was, so a miss stays unknown.
    let answer = provider.status(&StatusQuery::new(order_id)).await;
    let view = StatusView::new(&answer);
    context.printer.document(&view)?;
    view.result()
}

fn list(context: &Context) -> Result<Exit> {
    let mut list = context.printer.list();
    let views: Vec<ProviderView> = context
        .settings
        .config
        .providers
        .keys()
        .map(|name| Ok(ProviderView::new(context.provider(Some(name))?.as_ref())))
        .collect::<Result<_>>()?;
    list.page(&views)?;
    list.end()?;
    if views.is_empty() {
        anstream::eprintln!(
            "note: no provider is configured; add [providers.NAME] to the configuration file"
        );
    }
    Ok(Exit::Done)
}

async fn key(context: &Context, args: &ProviderKeyArgs) -> Result<Exit> {
    let id = args.key.id()?;
    let (operation, named) = if let Some(operation) = &args.operation {
        (Some(operation.clone()), None)
    } else {
        let (connection, store) = context.open().await?;
        let Some(record) = store.get(&connection, &id).await? else {
            return Err(CliError::new(Exit::NotFound, format!("no key {id}"))
                .hint("name the operation with --operation to compute the provider key without the row"));
        };
        (record.operation, record.provider)
    };
    let name = args
        .provider
        .clone()
        .or(named.filter(|name| context.settings.config.providers.contains_key(name)));
    let key = match context.provider_if_any(name.as_deref())? {
        Some(provider) => {
            let facts = provider.facts();
            facts
                .key_scheme
                .provider_key(&id, operation.as_deref(), facts.key_limit.unwrap_or(usize::MAX))?
        }
        None => idemctl::provider_key::derive(&id, operation.as_deref()),
    };
    context.printer.document(&KeyView {
        client_id: id.client_id().to_owned(),
        key: id.key().to_owned(),
        operation,
        provider_key: key,
    })?;
    Ok(Exit::Done)
}

/// `provider key -o json`.
#[derive(Debug, Serialize)]
struct KeyView {
    client_id: String,
    key: String,
    operation: Option<String>,
    provider_key: String,
}

impl Document for KeyView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", crate::render::printable(&self.provider_key))
    }
}

/// One row of `provider list`.
#[derive(Debug, Serialize)]
struct ProviderView {
    name: String,
    kind: &'static str,
    look_up: &'static str,
    lag_seconds: Option<f64>,
    timeout_seconds: f64,
    key_limit: Option<usize>,
    key_retention_seconds: Option<f64>,
    #[serde(skip)]
    timeout: String,
}

impl ProviderView {
    fn new(provider: &dyn Provider) -> Self {
        let facts = provider.facts();
        let (look_up, lag) = match facts.look_up {
            LookUp::Exact { lag } => ("exact", Some(lag)),
            LookUp::Window { lag } => ("window", Some(lag)),
            _ => ("none", None),
        };
        Self {
            name: provider.name().to_owned(),
            kind: facts.kind,
            look_up,
            lag_seconds: lag.map(|lag| lag.as_secs_f64()),
            timeout_seconds: facts.timeout.as_secs_f64(),
            key_limit: facts.key_limit,
            key_retention_seconds: facts.key_retention.map(|retention| retention.as_secs_f64()),
            timeout: show_duration(facts.timeout),
        }
    }
}

impl crate::render::Item for ProviderView {
    const COLUMNS: &'static [&'static str] =
        &["name", "kind", "look_up", "lag_seconds", "timeout", "key_limit"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.kind.to_owned(),
            self.look_up.to_owned(),
            self.lag_seconds.map(|lag| lag.to_string()).unwrap_or_default(),
            self.timeout.clone(),
            self.key_limit.map(|limit| limit.to_string()).unwrap_or_default(),
        ]
    }

    fn id(&self) -> Option<(&str, &str)> {
        None
    }
}
