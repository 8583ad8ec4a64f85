//! Square: the list of payments (`developer.squareup.com/reference/square/payments/ListPayments`, and the vendor's
//! `OpenAPI` file `square/connect-api-specification`).
//!
//! It cannot be asked by our order id, so the payments of the time of the attempts are looked through for the one
//! with our `reference_id`. The list shows the payments of one location, by default the main one; a payment of
//! another would be missed without a trace, so the location has to be named. New payments take "several seconds" to
//! appear. Statuses are those of the object `Payment`; a payment that was refunded stays `COMPLETED`.

use std::time::Duration;

use super::{Asking, Vendor, payments, taken};
use crate::fingerprint::json::Value;
use crate::provider::fetch::Request;
use crate::provider::window::{Next, Page};
use crate::provider::{LookUp, Verdict};

pub(super) const SQUARE: Vendor = Vendor {
    production: "https://connect.squareup.com",
    path: "/v2/payments",
    method: "GET",
    headers: &[],
    has_account: false,
    test_keys: &[],
    has_location: true,
    // The body's idempotency_key (CreatePaymentRequest). How long it is kept is not published. The first success is
    // what is replayed (developer.squareup.com/docs/working-with-apis/idempotency).
    key_limit: Some(45),
    key_retention: None,
    replays_errors: Some(false),
    look_up: LookUp::Window {
        lag: Duration::from_mins(2),
    },
    order: "/reference_id",
    order_limit: 40,
    status: "/status",
    reference: "/id",
    amount: "/amount_money/amount",
    currency: "/amount_money/currency",
    words: &[
        ("COMPLETED", Verdict::Charged),
        ("APPROVED", Verdict::Authorized),
        ("PENDING", Verdict::Pending),
        ("CANCELED", Verdict::NotCharged),
        ("FAILED", Verdict::NotCharged),
    ],
    request,
    page,
};

fn request(asking: &Asking<'_>) -> Result<Request, String> {
    let from = asking.window.text();
    asking.get(&[
        ("location_id", asking.location),
        ("limit", Some(asking.limit)),
        ("begin_time", from.as_deref()),
        ("cursor", asking.cursor),
    ])
}

fn page(mut document: Value, _: &Asking<'_>) -> Result<Page, String> {
    let next = match taken(&mut document, "cursor") {
        None | Some(Value::Null) => Next::End,
        Some(Value::String(cursor)) if cursor.is_empty() => Next::End,
        Some(Value::String(cursor)) => Next::At(cursor),
        Some(_) => Next::Lost,
    };
    // A page without payments is written as {}.
    let is_empty = matches!(&document, Value::Object(members) if members.is_empty());
    let payments = if is_empty {
        Vec::new()
    } else {
        payments(&mut document, "payments")?
    };
    if taken(&mut document, "errors").is_some_and(|errors| errors != Value::Array(Vec::new())) {
        return Err("the answer has errors beside the payments".to_owned());
    }
    Ok(Page { payments, next })
}
