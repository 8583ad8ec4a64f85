//! Checkout.com: the payments with a reference (`checkout.com/docs/payments/manage-payments/get-a-list-of-payments`).
//!
//! Statuses are those of the vendor's own libraries (`checkout/checkout-sdk-go`). `Card Verified` moves no money and
//! is none of a charge: unknown. Accounts with an address of their own (`https://PREFIX.api.checkout.com`) set it as
//! `url`.

use std::time::Duration;

use super::{Asking, Vendor, payments, taken};
use crate::fingerprint::json::Value;
use crate::provider::fetch::Request;
use crate::provider::window::{Next, Page};
use crate::provider::{LookUp, Verdict};

pub(super) const CHECKOUT: Vendor = Vendor {
    production: "https://api.checkout.com",
    path: "/payments",
    method: "GET",
    headers: &[],
    has_account: false,
    test_keys: &[],
    has_location: false,
    // Header Cko-Idempotency-Key: kept for 24 hours, for answers of success only
    // (checkout.com/docs/payments/manage-payments/retry-a-payment), which names no limit.
    key_limit: None,
    key_retention: Some(Duration::from_hours(24)),
    replays_errors: Some(false),
    look_up: LookUp::Exact {
        lag: Duration::from_mins(2),
    },
    order: "/reference",
    order_limit: 80,
    status: "/status",
    reference: "/id",
    amount: "/amount",
    currency: "/currency",
    words: &[
        ("Captured", Verdict::Charged),
        ("Partially Captured", Verdict::Charged),
        ("Paid", Verdict::Charged),
        ("Refunded", Verdict::Charged),
        ("Partially Refunded", Verdict::Charged),
        ("Authorized", Verdict::Authorized),
        ("Pending", Verdict::Pending),
        ("Requested", Verdict::Pending),
        ("Active", Verdict::Pending),
        ("Declined", Verdict::NotCharged),
        ("Canceled", Verdict::NotCharged),
        ("Expired", Verdict::NotCharged),
        ("Voided", Verdict::NotCharged),
    ],
    request,
    page,
};

/// How many payments of one order a page has: as in the vendor's example.
const PER_PAGE: &str = "10";

fn request(asking: &Asking<'_>) -> Result<Request, String> {
    asking.get(&[
        ("reference", Some(asking.order_id)),
        ("limit", Some(PER_PAGE)),
        ("skip", Some(asking.cursor.unwrap_or("0"))),
    ])
}

fn page(mut document: Value, asking: &Asking<'_>) -> Result<Page, String> {
    let total = match taken(&mut document, "total_count") {
        Some(Value::Number(total)) => total.parse::<usize>().ok(),
        _ => None,
    };
    let total = total.ok_or("the answer does not say how many payments there are (total_count)")?;
    let payments = payments(&mut document, "data")?;
    let skipped: usize = asking.cursor.unwrap_or("0").parse().unwrap_or_default();
    let read = skipped + payments.len();
    let next = match () {
        () if read >= total => Next::End,
        () if payments.is_empty() => Next::Lost,
        () => Next::At(read.to_string()),
    };
    Ok(Page { payments, next })
}
