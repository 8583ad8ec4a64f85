//! Mollie, API v2: the list of payments (`docs.mollie.com/reference/list-payments`; paging:
//! `docs.mollie.com/reference/pagination`).
//!
//! It can be narrowed neither by our order id nor by time, so it is read from the newest payment back to the first
//! attempt, and looked through for the one with `metadata.order_id`. It shows the payments of the profile that the
//! key belongs to. Statuses are at `docs.mollie.com/docs/status-change`; a payment that was refunded or charged back
//! stays `paid`.

use std::time::Duration;

use chrono::DateTime;
use reqwest::Url;

use super::{Asking, Vendor, payments, taken};
use crate::fingerprint::json::Value;
use crate::provider::fetch::Request;
use crate::provider::window::{Next, Page};
use crate::provider::{LookUp, Verdict};

pub(super) const MOLLIE: Vendor = Vendor {
    production: "https://api.mollie.com",
    path: "/v2/payments",
    method: "GET",
    headers: &[],
    has_account: false,
    // As the vendor's own library checks them (mollie/mollie-api-php, src/Http/Auth).
    test_keys: &["test_"],
    has_location: false,
    // Header Idempotency-Key (docs.mollie.com/reference/api-idempotency), which names no limit.
    key_limit: None,
    key_retention: Some(Duration::from_hours(24)),
    replays_errors: None,
    look_up: LookUp::Window {
        lag: Duration::from_mins(2),
    },
    order: "/metadata/order_id",
    // The metadata have about 1 kB.
    order_limit: 1024,
    status: "/status",
    reference: "/id",
    amount: "/amount/value",
    currency: "/amount/currency",
    words: &[
        ("paid", Verdict::Charged),
        ("authorized", Verdict::Authorized),
        ("open", Verdict::Pending),
        ("pending", Verdict::Pending),
        ("canceled", Verdict::NotCharged),
        ("expired", Verdict::NotCharged),
        ("failed", Verdict::NotCharged),
    ],
    request,
    page,
};

fn request(asking: &Asking<'_>) -> Result<Request, String> {
    asking.get(&[("limit", Some(asking.limit)), ("from", asking.cursor)])
}

fn page(mut document: Value, asking: &Asking<'_>) -> Result<Page, String> {
    let embedded = taken(&mut document, "_embedded");
    let payments = payments(&mut embedded.unwrap_or(Value::Null), "payments")?;
    let mut links = taken(&mut document, "_links").unwrap_or(Value::Null);
    let next = match taken(&mut links, "next") {
        Some(Value::Null) => Next::End,
        _ if is_past(&payments, asking.window.from) => Next::End,
        Some(mut next) => cursor(taken(&mut next, "href")),
        None => return Err("the answer does not say whether there is more".to_owned()),
    };
    Ok(Page { payments, next })
}

/// Whether the list, from its newest payment to the oldest, has reached those before the window.
///
/// Only a page that is in order, every payment with its time, says so.
fn is_past(payments: &[Value], from: Option<i64>) -> bool {
    let Some(from) = from else { return false };
    let times: Option<Vec<i64>> = payments.iter().map(created).collect();
    times.is_some_and(|times| {
        times.is_sorted_by(|newer, older| newer >= older) && times.last().is_some_and(|oldest| *oldest < from)
    })
}

fn created(payment: &Value) -> Option<i64> {
    let Value::Object(members) = payment else {
        return None;
    };
    let Value::String(text) = members.get("createdAt")? else {
        return None;
    };
    Some(DateTime::parse_from_rfc3339(text).ok()?.timestamp())
}

/// The payment that the next page begins with. The link itself is not followed: what goes where with the secret is for
/// the configuration to say.
fn cursor(href: Option<Value>) -> Next {
    let Some(Value::String(href)) = href else {
        return Next::Lost;
    };
    let Ok(url) = Url::parse(&href) else {
        return Next::Lost;
    };
    let from = url.query_pairs().find(|(name, _)| name == "from");
    from.map_or(Next::Lost, |(_, from)| Next::At(from.into_owned()))
}
