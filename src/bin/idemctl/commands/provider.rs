//! `idemctl provider`: asks payment providers, and shows what is configured.

use std::io::{self, Write};
use std::time::Duration;

use chrono::{DateTime, Utc};
use idemctl::key::KeyId;
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
    Status(StatusArgs),
    /// Show the configured providers
    List,
    /// Show the idempotency key that the provider is given for a key of ours
    Key(ProviderKeyArgs),
}

/// Which order.
#[derive(Debug, clap::Args)]
struct StatusArgs {
    /// Our id of the order, as the provider was given it
    #[arg(value_name = "ORDER_ID", allow_hyphen_values = true)]
    order_id: String,
    /// Which provider, where several are configured
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// When the last attempt can have been under way at the latest, where no row says so: a time such as 2026-11-29T10:00:00Z, or how long ago, such as 2h.
    /// Without it "not found" proves nothing
    #[arg(long, value_name = "TIME", value_parser = At::parse, conflicts_with = "client")]
    at: Option<At>,
    /// Take provider, order id and times of the attempts from the row of this client's key; the order id is the key,
    /// unless --key names it
    #[arg(long, value_name = "CLIENT", allow_hyphen_values = true)]
    client: Option<String>,
    /// The key, where it is not the order id
    #[arg(long, value_name = "KEY", allow_hyphen_values = true, requires = "client")]
    key: Option<String>,
}

/// When an attempt began.
#[derive(Debug, Clone)]
enum At {
    /// So long ago.
    Age(Duration),
    Time(DateTime<Utc>),
}

impl At {
    fn parse(text: &str) -> std::result::Result<Self, String> {
        // Only a time has a dash.
        if !text.contains('-') {
            return idemctl::duration::parse(text)
                .map(Self::Age)
                .map_err(|problem| format!("{problem}; or a time such as 2026-11-29T10:00:00Z"));
        }
        let time = DateTime::parse_from_rfc3339(text);
        time.map(|time| Self::Time(time.to_utc())).map_err(|_| {
            "is neither a time with its zone, such as 2026-11-29T10:00:00Z, nor an age such as 2h".to_owned()
        })
    }
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
        ProviderCommand::Status(args) => status(context, &args).await,
        ProviderCommand::List => list(context),
        ProviderCommand::Key(args) => key(context, &args).await,
    }
}

async fn status(context: &Context, args: &StatusArgs) -> Result<Exit> {
    if let Some(client) = &args.client {
        return Box::pin(status_of_row(context, args, client)).await;
    }
    idemctl::key::check_name("the order id", &args.order_id)?;
    let provider = context.provider(args.provider.as_deref())?;
    let query = StatusQuery::new(&args.order_id);
    let query = match &args.at {
        None => query,
        Some(at) => {
            let age = Box::pin(age(context, at)).await?;
            query.attempted_at_age(age).first_attempted_at_age(age)
        }
    };
    let answer = provider.status(&query).await;
    let view = StatusView::new(&answer);
    context.printer.document(&view)?;
    let result = view.result();
    if args.at.is_some() {
        return result;
    }
    // Nobody knows when the last attempt was, so a miss stays unknown.
    result.map_err(|error| {
        if answer.answered {
            error.hint("say when the attempt was with --at TIME, or take it from the row with --client CLIENT, and the provider may be able to tell")
        } else {
            error.hint("mend what the reason says, or ask again later")
        }
    })
}

/// How long ago that was. What time it is now is for the database to say, whose clock the attempts are known by.
async fn age(context: &Context, at: &At) -> Result<Duration> {
    let time = match at {
        At::Age(age) => return Ok(*age),
        At::Time(time) => *time,
    };
    let now = async {
        let (connection, store) = context.open().await?;
        Ok::<_, CliError>(store.now(&connection).await?)
    };
    let now = now.await.map_err(|error| {
        error
            .context("a time is compared with the database's clock")
            .hint("say how long ago it was, such as --at 2h, which needs no database")
    })?;
    let age = now.to_utc().and_then(|now| (now - time).to_std().ok());
    age.ok_or_else(|| {
        CliError::usage(format!(
            "--at is in the future: the database has {now}, and the attempt is said to be of {}",
            time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
        ))
    })
}

/// Asks about a row as `inspect --provider` does.
async fn status_of_row(context: &Context, args: &StatusArgs, client: &str) -> Result<Exit> {
    let id = KeyId::new(client, args.key.as_ref().unwrap_or(&args.order_id))?;
    let (connection, store) = context.open().await?;
    let Some(record) = store.get(&connection, &id).await? else {
        return Err(CliError::new(Exit::NotFound, format!("no key {id}"))
            .hint("without the row, say when the attempt was with --at TIME instead of --client"));
    };
    if args.key.is_some() && record.order_id() != args.order_id {
        return Err(CliError::usage(format!(
            "the row {id} is of the order {:?}, not of {:?}",
            record.order_id(),
            args.order_id
        ))
        .hint("give the row's own order id, or leave --client and --key out"));
    }
    if let (Some(of_row), Some(named)) = (&record.provider, &args.provider)
        && of_row != named
    {
        return Err(CliError::usage(format!(
            "the row {id} says that the provider {of_row:?} was used, not {named:?}"
        ))
        .hint("leave --provider out"));
    }
    let Some(answer) = context.ask_about(&record, args.provider.as_deref()).await? else {
        return Err(CliError::usage("no provider is configured")
            .hint("add [providers.NAME] to the configuration file (see the README)"));
    };
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
        context
            .printer
            .note("no provider is configured; add [providers.NAME] to the configuration file");
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
    lag: String,
    #[serde(skip)]
    timeout: String,
    #[serde(skip)]
    key_retention: String,
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
            lag: lag.map(show_duration).unwrap_or_default(),
            timeout: show_duration(facts.timeout),
            key_retention: facts.key_retention.map(show_duration).unwrap_or_default(),
        }
    }
}

impl crate::render::Item for ProviderView {
    const COLUMNS: &'static [&'static str] = &[
        "name",
        "kind",
        "look_up",
        "lag",
        "timeout",
        "key_limit",
        "key_retention",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.name.clone(),
            self.kind.to_owned(),
            self.look_up.to_owned(),
            self.lag.clone(),
            self.timeout.clone(),
            self.key_limit.map(|limit| limit.to_string()).unwrap_or_default(),
            self.key_retention.clone(),
        ]
    }

    fn id(&self) -> Option<(&str, &str)> {
        None
    }
}
