//! Braintree, over GraphQL: the search of transactions (`developer.paypal.com/braintree/graphql/guides/search`, and
//! the vendor's schema `braintree/graphql-api`).
//!
//! It is a question only, though it is put with POST, so that it may be put again. The API answers with HTTP 200
//! whatever happened (`developer.paypal.com/braintree/graphql/guides/making_api_calls`), so that an answer with
//! `errors` tells nothing, even with data beside them. A refund is no transaction in this search, and a transaction
//! that was refunded stays `SETTLED`. `FAILED` is an error on the way to the processor: unknown.

use std::time::Duration;

use super::{Asking, Vendor, payments, taken};
use crate::fingerprint::json::Value;
use crate::provider::fetch::Request;
use crate::provider::window::{Next, Page};
use crate::provider::{LookUp, Verdict};

pub(super) const BRAINTREE: Vendor = Vendor {
    production: "https://payments.braintree-api.com",
    path: "/graphql",
    method: "POST",
    // Needed with every request ("The Braintree-Version Header" of the guide above).
    headers: &[("braintree-version", "2019-01-01")],
    // The public key, and the private key.
    has_account: true,
    test_keys: &[],
    has_location: false,
    // The input's apiRequestKey: kept for 30 days, and a transaction comes back in whatever status
    // (developer.paypal.com/braintree/graphql/integration_guides/idempotency), which names no limit.
    key_limit: None,
    key_retention: Some(Duration::from_hours(30 * 24)),
    replays_errors: Some(true),
    look_up: LookUp::Exact {
        lag: Duration::from_mins(2),
    },
    order: "/orderId",
    order_limit: 255,
    status: "/status",
    // The id that the Control Panel and the other libraries know.
    reference: "/legacyId",
    amount: "/amount/value",
    currency: "/amount/currencyCode",
    words: &[
        ("SUBMITTED_FOR_SETTLEMENT", Verdict::Charged),
        ("SETTLING", Verdict::Charged),
        ("SETTLED", Verdict::Charged),
        // Captured in part, by transactions of its own.
        ("SETTLEMENT_CONFIRMED", Verdict::Charged),
        ("AUTHORIZED", Verdict::Authorized),
        ("AUTHORIZING", Verdict::Pending),
        ("SETTLEMENT_PENDING", Verdict::Pending),
        ("PROCESSOR_DECLINED", Verdict::NotCharged),
        ("GATEWAY_REJECTED", Verdict::NotCharged),
        ("VOIDED", Verdict::NotCharged),
        ("AUTHORIZATION_EXPIRED", Verdict::NotCharged),
        ("SETTLEMENT_DECLINED", Verdict::NotCharged),
    ],
    request,
    page,
};

/// The order id goes into the variables, where it is data.
const QUERY: &str = "query Status($input: TransactionSearchInput!, $after: String) { \
    search { transactions(input: $input, after: $after) { \
    pageInfo { hasNextPage endCursor } \
    edges { node { id legacyId status orderId createdAt amount { value currencyCode } } } } } }";

fn request(asking: &Asking<'_>) -> Result<Request, String> {
    let body = serde_json::json!({
        "query": QUERY,
        "variables": { "input": { "orderId": { "is": asking.order_id } }, "after": asking.cursor },
    });
    Ok(Request::post(
        asking.base.with(asking.path, &[])?,
        body.to_string(),
    ))
}

fn page(mut document: Value, _: &Asking<'_>) -> Result<Page, String> {
    match taken(&mut document, "errors") {
        None | Some(Value::Null) => {}
        Some(errors) => return Err(problem(errors)),
    }
    let mut at = document;
    for name in ["data", "search", "transactions"] {
        at = taken(&mut at, name).ok_or_else(|| format!("the answer has no {name:?}"))?;
    }
    let mut info = taken(&mut at, "pageInfo").unwrap_or(Value::Null);
    let next = match (taken(&mut info, "hasNextPage"), taken(&mut info, "endCursor")) {
        (Some(Value::Bool(false)), _) => Next::End,
        (Some(Value::Bool(true)), Some(Value::String(cursor))) => Next::At(cursor),
        (Some(Value::Bool(true)), _) => Next::Lost,
        _ => return Err("the answer does not say whether there is more".to_owned()),
    };
    let nodes = payments(&mut at, "edges")?;
    let nodes: Option<Vec<Value>> = nodes
        .into_iter()
        .map(|mut edge| taken(&mut edge, "node").filter(|node| matches!(node, Value::Object(_))))
        .collect();
    let payments = nodes.ok_or("the answer has an edge without a node")?;
    Ok(Page { payments, next })
}

/// What the first error says (`developer.paypal.com/braintree/graphql/guides/making_api_calls`, "Errors").
fn problem(errors: Value) -> String {
    let Value::Array(errors) = errors else {
        return "the answer has errors".to_owned();
    };
    let Some(mut first) = errors.into_iter().next() else {
        return "the answer has a list of errors".to_owned();
    };
    let text = |value: Option<Value>| value.as_ref().and_then(Value::scalar_text);
    let mut extensions = taken(&mut first, "extensions").unwrap_or(Value::Null);
    let class = text(taken(&mut extensions, "errorClass"));
    let message: Option<String> =
        text(taken(&mut first, "message")).map(|message| message.chars().take(200).collect());
    match (class.as_deref(), message) {
        (Some(class @ ("AUTHENTICATION" | "AUTHORIZATION")), _) => {
            format!("the provider refused our credentials, {class}")
        }
        (class, message) => format!(
            "the provider answered with an error, {}: {:?}",
            class.unwrap_or("of no class"),
            message.unwrap_or_default()
        ),
    }
}
