//! Reading: each kind of question, its time, and the plan of the very statement that asked it.

use std::time::{Duration, Instant};

use idemctl::connect::{Connection, Settings};
use idemctl::key::KeyId;
use idemctl::ops::list::{self, Cursor, Filter, Order};
use idemctl::ops::{inspect, stuck};
use idemctl::record::State;

use crate::report::{Table, median, ms, quantile};
use crate::{Bench, Result};

/// Rows of a page, as the command has it unless told otherwise.
const PAGE: u32 = 50;

/// A list, asked through [`list::page`] and explained.
struct Case {
    name: &'static str,
    filter: Filter,
    order: Order,
    after: Option<(i64, String, String)>,
}

fn case(name: &'static str, filter: Filter) -> Case {
    Case {
        name,
        filter,
        order: Order::Newest,
        after: None,
    }
}

fn cases(deep: (i64, String, String)) -> Vec<Case> {
    let client = |name: &str| Filter {
        client_id: Some(name.to_owned()),
        ..Filter::default()
    };
    let prefix = |name: &str, prefix: &str| Filter {
        key_prefix: Some(prefix.to_owned()),
        ..client(name)
    };
    let state = |state| Filter {
        states: vec![state],
        ..Filter::default()
    };
    let provider = |name: &str| Filter {
        provider: Some(name.to_owned()),
        ..Filter::default()
    };
    let day = Duration::from_hours(24);
    let mut cases = vec![
        case("list: newest page", Filter::default()),
        case("list: client with 1/2 of the rows", client("shop-1")),
        case("list: client with 1/100", client("shop-7")),
        case("list: no such client", client("shop-x")),
        case("list: big client, prefix", prefix("shop-1", "order-1")),
        case("list: big client, no such prefix", prefix("shop-1", "zz")),
        case("list: small client, prefix", prefix("shop-7", "order-1")),
        case("list: in_progress", state(State::InProgress)),
        case("list: expired", state(State::Expired)),
        case("list: done", state(State::Done)),
        case("list: failed", state(State::Failed)),
        case(
            "list: older than 5 days",
            Filter {
                older_than: Some(5 * day),
                ..Filter::default()
            },
        ),
        case(
            "list: newer than 1 hour",
            Filter {
                newer_than: Some(day / 24),
                ..Filter::default()
            },
        ),
        case("list: provider with 1/3", provider("acme")),
        case("list: provider with 1/5000", provider("rare")),
        case("list: no such provider", provider("none")),
    ];
    let mut oldest = case("list: oldest page", Filter::default());
    oldest.order = Order::Oldest;
    cases.push(oldest);
    let mut page = case("list: cursor in the middle", Filter::default());
    page.after = Some(deep.clone());
    cases.push(page);
    let mut page = case("list: failed, cursor in the middle", state(State::Failed));
    page.after = Some(deep);
    cases.push(page);
    cases
}

#[expect(clippy::too_many_lines, reason = "one measurement after the other")]
pub(crate) async fn run(bench: &Bench) -> Result<()> {
    bench
        .admin
        .batch_execute("set plan_cache_mode = force_custom_plan")
        .await?;
    let connection = Connection::open(&Settings::from_dsn(&bench.url)?).await?;
    let mut table = Table::new(
        "Reading (one connection as the command has it; plan and pages of one further run)",
        ["what", "rows", "median", "p99", "pages", "plan"],
    );
    let id = KeyId::new("shop-1", format!("order-{}", bench.rows / 12 * 6 + 2))?;
    let times = timed(bench, || async {
        let found = inspect::run(&connection, &bench.store, &id, true).await?;
        Ok(usize::from(found.is_some()))
    })
    .await?;
    let arguments = format!("{}, {}", text(id.client_id()), text(id.key()));
    line(bench, &mut table, "inspect", times, "get", &arguments).await?;
    for case in cases(middle(bench).await?) {
        let cursor = case.after.as_ref().map(cursor).transpose()?;
        let times = timed(bench, || async {
            let page = list::page(
                &connection,
                &bench.store,
                &case.filter,
                case.order,
                cursor.as_ref(),
                PAGE,
            );
            Ok(page.await?.records.len())
        })
        .await?;
        // As the store chooses.
        let statement = match (case.filter.states.as_slice(), case.order) {
            ([State::Expired], Order::Newest) => "list_expired_newest",
            ([State::Expired], Order::Oldest) => "list_expired_oldest",
            (_, Order::Newest) => "list_newest",
            (_, Order::Oldest) => "list_oldest",
        };
        line(
            bench,
            &mut table,
            case.name,
            times,
            statement,
            &arguments_of(&case),
        )
        .await?;
    }
    for (name, client) in [("stuck: a page", None), ("stuck: of one client", Some("shop-7"))] {
        let times = timed(bench, || async {
            Ok(
                stuck::page(&connection, &bench.store, Duration::ZERO, client, None, PAGE)
                    .await?
                    .rows
                    .len(),
            )
        })
        .await?;
        let client = client.map_or_else(null, text);
        line(
            bench,
            &mut table,
            name,
            times,
            "stuck",
            &format!("0, {client}, '-infinity', '', '', {PAGE}"),
        )
        .await?;
    }
    table.print();
    Ok(())
}

/// Runs one question again and again, for no longer than some seconds; also how many rows it found.
async fn timed<F: Future<Output = Result<usize>>>(
    bench: &Bench,
    ask: impl Fn() -> F,
) -> Result<(Vec<Duration>, usize)> {
    let most = if bench.is_trial() { 8 } else { 100 };
    let (mut times, mut rows) = (Vec::new(), 0);
    let begun = Instant::now();
    while times.len() < most && (times.len() < 8 || begun.elapsed() < Duration::from_secs(3)) {
        let started = Instant::now();
        rows = ask().await?;
        times.push(started.elapsed());
    }
    Ok((times, rows))
}

async fn line(
    bench: &Bench,
    table: &mut Table,
    what: &str,
    (times, rows): (Vec<Duration>, usize),
    statement: &str,
    arguments: &str,
) -> Result<()> {
    let plan = explain(bench, statement, arguments).await?;
    table.row([
        what.to_owned(),
        rows.to_string(),
        median(&times, ms),
        quantile(&times, 99).map_or_else(String::new, ms),
        plan.pages.to_string(),
        plan.scan,
    ]);
    Ok(())
}

/// How the server ran a statement.
pub(crate) struct Plan {
    /// The node that reads the table.
    pub(crate) scan: String,
    /// Pages touched, in the cache or not.
    pub(crate) pages: u64,
}

/// Explains a statement of the store with these arguments, planned for them.
pub(crate) async fn explain(bench: &Bench, name: &str, arguments: &str) -> Result<Plan> {
    let statement = bench
        .store
        .statements()
        .find(|statement| statement.name == name)
        .ok_or_else(|| format!("there is no statement {name}"))?;
    let types: Vec<&str> = statement
        .types
        .iter()
        .map(tokio_postgres::types::Type::name)
        .collect();
    let prepare = format!(
        "deallocate all; prepare explained ({}) as {}",
        types.join(", "),
        statement.text
    );
    bench.admin.batch_execute(&prepare).await?;
    let explain = format!("explain (analyze, buffers, costs off) execute explained ({arguments})");
    let mut lines = Vec::new();
    for message in bench.admin.simple_query(&explain).await? {
        if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
            lines.extend(row.get(0).map(str::to_owned));
        }
    }
    let scan = lines
        .iter()
        .find_map(|line| {
            let line = line.trim_start_matches([' ', '-', '>']);
            let end = line.find(" (")?;
            line.contains(" Scan").then(|| {
                line[..end]
                    .trim_end_matches(" k")
                    .trim_end_matches(" on idempotency")
                    .to_owned()
            })
        })
        .unwrap_or_else(|| "no scan".to_owned());
    let pages = lines.iter().find(|line| line.contains("Buffers: shared"));
    let pages = pages.map_or(0, |line| {
        line.split([' ', '='])
            .filter_map(|word| word.parse::<u64>().ok())
            .sum()
    });
    Ok(Plan { scan, pages })
}

/// The row half-way through the list.
async fn middle(bench: &Bench) -> Result<(i64, String, String)> {
    let row = bench
        .admin
        .query_one(
            "select (extract(epoch from created_at) * 1000000)::int8, client_id, key
               from idempotency order by created_at desc offset $1 limit 1",
            &[&i64::from(bench.rows / 2)],
        )
        .await?;
    Ok((row.get(0), row.get(1), row.get(2)))
}

fn cursor(place: &(i64, String, String)) -> Result<Cursor> {
    use std::fmt::Write;
    let json = serde_json::to_string(place)?;
    let mut hex = String::new();
    for byte in json.bytes() {
        write!(hex, "{byte:02x}")?;
    }
    Ok(Cursor::parse(&hex)?)
}

/// The binds of the list statements, as SQL.
fn arguments_of(case: &Case) -> String {
    let filter = &case.filter;
    let optional = |value: Option<&str>| value.map_or_else(null, text);
    let seconds = |value: Option<Duration>| value.map_or_else(null, |age| age.as_secs_f64().to_string());
    let states = if filter.states.is_empty() {
        null()
    } else {
        let names: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
        text(&format!("{{{}}}", names.join(",")))
    };
    let after = case.after.as_ref().map_or_else(
        || "null, null, null".to_owned(),
        |(micros, client, key)| {
            format!(
                "'epoch'::timestamptz + interval '1 microsecond' * {micros}, {}, {}",
                text(client),
                text(key)
            )
        },
    );
    [
        optional(filter.client_id.as_deref()),
        optional(filter.key_prefix.as_deref()),
        states,
        seconds(filter.older_than),
        seconds(filter.newer_than),
        optional(filter.provider.as_deref()),
        after,
        (PAGE + 1).to_string(),
    ]
    .join(", ")
}

fn null() -> String {
    "null".to_owned()
}

/// A literal. The values are the benchmark's own.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}
