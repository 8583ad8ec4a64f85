//! The adapters of the smaller vendors, each against a small server over sockets that follows the vendor's public
//! documentation: it checks the credentials, applies the filters, and pages.

#![expect(clippy::unwrap_used, reason = "a test helper may panic")]

mod apis;
mod config;
mod hostile;
mod pages;
mod server;
mod trouble;
mod verdicts;

use std::sync::Arc;
use std::time::Duration;

use idemctl::provider::{
    Provider, ProviderConfig, ProviderStatus, Proxies, StatusQuery, Surroundings, Verdict, build,
};

use apis::Kind;
use server::{SECRET, Vendor};

/// An adapter for the server; `more` holds further lines of the section.
fn adapter(vendor: &Vendor, more: &str) -> Arc<dyn Provider> {
    built(
        vendor.kind,
        &format!("url = \"http://127.0.0.1:{}\"\n{more}", vendor.port),
    )
    .unwrap()
}

/// What comes of a section that has all that the kind needs; `more` may override it.
fn built(kind: Kind, more: &str) -> idemctl::error::Result<Arc<dyn Provider>> {
    let mut table: toml::Table = kind.section().parse().unwrap();
    table.extend(more.parse::<toml::Table>().unwrap());
    let env = |name: &str| (name == "ACME_KEY").then(|| SECRET.to_owned());
    let surroundings = Surroundings {
        env: Arc::new(env),
        proxy: Proxies::default(),
    };
    build(
        "acme",
        &table.try_into::<ProviderConfig>().unwrap(),
        &surroundings,
    )
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
