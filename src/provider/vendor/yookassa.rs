//! YooKassa, API v3: the list of payments (`yookassa.ru/developers/api`, "List of payments"; paging and order:
//! `yookassa.ru/developers/using-api/lists`).
//!
//! It cannot be asked by our order id, so the payments of the time of the attempts are looked through for the one
//! with `metadata.order_id`. Their statuses are at `yookassa.ru/developers/payments/payment-process`; a payment that
//! was refunded stays `succeeded`. No page states how soon a new payment is in the list.

use std::time::Duration;

use super::{Asking, Vendor, payments, taken};
use crate::fingerprint::json::Value;
use crate::provider::fetch::Request;
use crate::provider::window::{Next, Page};
use crate::provider::{LookUp, Verdict};

pub(super) const YOOKASSA: Vendor = Vendor {
    production: "https://api.yookassa.ru",
    path: "/v3/payments",
    method: "GET",
    headers: &[],
    // The shop id, and its secret key (yookassa.ru/developers/using-api/interaction-format).
    has_account: true,
    // Those of test shops (yookassa.ru/docs/support/merchant/payments/implement/test-store); how they begin is
    // on no page that we found, but so in all public examples; a wrong guess only makes more unknown.
    test_keys: &["test_"],
    has_location: false,
    // Header Idempotence-Key: up to 64 characters, kept for 24 hours
    // (yookassa.ru/developers/using-api/interaction-format). Whether errors are replayed is not said.
    key_limit: Some(64),
    key_retention: Some(Duration::from_hours(24)),
    replays_errors: None,
    look_up: LookUp::Window {
        lag: Duration::from_mins(2),
    },
    order: "/metadata/order_id",
    // A value in the metadata.
    order_limit: 512,
    status: "/status",
    reference: "/id",
    amount: "/amount/value",
    currency: "/amount/currency",
    words: &[
        ("succeeded", Verdict::Charged),
        ("waiting_for_capture", Verdict::Authorized),
        ("pending", Verdict::Pending),
        ("canceled", Verdict::NotCharged),
    ],
    request,
    page,
};

fn request(asking: &Asking<'_>) -> Result<Request, String> {
    let from = asking.window.text();
    asking.get(&[
        ("limit", Some(asking.limit)),
        ("created_at.gte", from.as_deref()),
        ("cursor", asking.cursor),
    ])
}

fn page(mut document: Value, _: &Asking<'_>) -> Result<Page, String> {
    let payments = payments(&mut document, "items")?;
    let next = match taken(&mut document, "next_cursor") {
        None | Some(Value::Null) => Next::End,
        Some(Value::String(cursor)) if !cursor.is_empty() => Next::At(cursor),
        Some(_) => Next::Lost,
    };
    Ok(Page { payments, next })
}
