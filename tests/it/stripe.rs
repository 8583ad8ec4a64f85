//! The stripe adapter: against two servers with Stripe's API that nobody here wrote, which tests/run installs, and
//! against one of our own for the search, which both lack.
//!
//! The launcher of localstripe replaces that server's filter and order of the list of payment intents, which Stripe has
//! and it has not: so the window is tested against our own reading of Stripe's reference there, too.

mod api;
mod charges;
mod config;
mod hits;
mod intents;
mod search;
mod story;
mod trouble;
mod vendor;

use std::sync::Arc;
use std::time::Duration;

use idemctl::provider::{
    Provider, ProviderConfig, ProviderStatus, Proxies, StatusQuery, Surroundings, Verdict, build,
};

use api::SECRET;

/// An adapter for the server at a port of 127.0.0.1; `more` holds further lines of the section.
fn adapter(port: u16, more: &str) -> Arc<dyn Provider> {
    let text = format!("kind = \"stripe\"\nurl = \"http://127.0.0.1:{port}\"\n{more}");
    let mut table: toml::Table = text.parse().unwrap();
    // The servers of these tests take keys of test mode only.
    table.entry("test_mode").or_insert(true.into());
    table.entry("secret").or_insert_with(|| SECRET.to_owned().into());
    build(
        "acme",
        &table.try_into::<ProviderConfig>().unwrap(),
        &surroundings(),
    )
    .unwrap()
}

fn surroundings() -> Surroundings {
    let env = |name: &str| match name {
        "STRIPE_KEY" => Some(SECRET.to_owned()),
        "STRIPE_KEY_END" => SECRET.strip_prefix("sk_test_").map(str::to_owned),
        _ => None,
    };
    Surroundings {
        env: Arc::new(env),
        proxy: Proxies::default(),
    }
}

/// A question about an order whose first attempt began `first` seconds ago, and the last one `last` seconds ago.
fn query(order: &str, first: u64, last: u64) -> StatusQuery {
    StatusQuery::new(order)
        .first_attempted_at_age(Duration::from_secs(first))
        .attempted_at_age(Duration::from_secs(last))
}

/// Asks about an order whose attempts all began an hour ago.
async fn ask(adapter: &Arc<dyn Provider>, order: &str) -> ProviderStatus {
    checked(adapter.status(&query(order, 3600, 3600)).await)
}

/// What holds for every answer.
#[track_caller]
fn checked(status: ProviderStatus) -> ProviderStatus {
    assert_eq!(
        status.reason.is_some(),
        status.verdict == Verdict::Unknown,
        "{status:?}"
    );
    assert!(!format!("{status:?}").contains(SECRET), "{status:?}");
    status
}

/// Why nothing can be told.
#[track_caller]
fn reason(status: &ProviderStatus) -> &str {
    assert_eq!(status.verdict, Verdict::Unknown, "{status:?}");
    status.reason.as_deref().unwrap()
}
