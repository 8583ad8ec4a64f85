//! What each vendor answers, after its public documentation; the pages are named in the adapters.

use base64::Engine as _;
use chrono::{DateTime, SecondsFormat};
use idemctl::provider::Verdict::{self, Authorized, Charged, NotCharged, Pending};
use serde_json::{Value, json};

use super::server::{NOW, Sale, Seen, State};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Yookassa,
    Square,
    Mollie,
    Checkout,
    Braintree,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Yookassa,
        Self::Square,
        Self::Mollie,
        Self::Checkout,
        Self::Braintree,
    ];

    /// Whether the payments of a window are looked through, or the order id itself is asked for.
    pub(super) fn is_window(self) -> bool {
        !matches!(self, Self::Checkout | Self::Braintree)
    }

    /// A section with all that it needs.
    pub(super) fn section(self) -> String {
        let more = match self {
            Self::Yookassa => "kind = \"yookassa\"\naccount = \"shop-1\"",
            Self::Square => "kind = \"square\"\nlocation = \"L1\"",
            Self::Mollie => "kind = \"mollie\"",
            Self::Checkout => "kind = \"checkout\"",
            Self::Braintree => "kind = \"braintree\"\naccount = \"public-1\"",
        };
        format!("{more}\nsecret = {{ env = \"ACME_KEY\" }}\ntimeout = \"5s\"")
    }

    pub(super) fn words(self) -> &'static [(&'static str, Verdict)] {
        match self {
            Self::Yookassa => &[
                ("succeeded", Charged),
                ("waiting_for_capture", Authorized),
                ("pending", Pending),
                ("canceled", NotCharged),
            ],
            Self::Square => &[
                ("COMPLETED", Charged),
                ("APPROVED", Authorized),
                ("PENDING", Pending),
                ("CANCELED", NotCharged),
                ("FAILED", NotCharged),
            ],
            Self::Mollie => &[
                ("paid", Charged),
                ("authorized", Authorized),
                ("open", Pending),
                ("pending", Pending),
                ("canceled", NotCharged),
                ("expired", NotCharged),
                ("failed", NotCharged),
            ],
            Self::Checkout => &[
                ("Captured", Charged),
                ("Partially Captured", Charged),
                ("Paid", Charged),
                ("Refunded", Charged),
                ("Partially Refunded", Charged),
                ("Authorized", Authorized),
                ("Pending", Pending),
                ("Requested", Pending),
                ("Active", Pending),
                ("Declined", NotCharged),
                ("Canceled", NotCharged),
                ("Expired", NotCharged),
                ("Voided", NotCharged),
            ],
            Self::Braintree => &[
                ("SETTLED", Charged),
                ("SETTLING", Charged),
                ("SUBMITTED_FOR_SETTLEMENT", Charged),
                ("SETTLEMENT_CONFIRMED", Charged),
                ("AUTHORIZED", Authorized),
                ("AUTHORIZING", Pending),
                ("SETTLEMENT_PENDING", Pending),
                ("PROCESSOR_DECLINED", NotCharged),
                ("GATEWAY_REJECTED", NotCharged),
                ("VOIDED", NotCharged),
                ("AUTHORIZATION_EXPIRED", NotCharged),
                ("SETTLEMENT_DECLINED", NotCharged),
            ],
        }
    }

    /// A word with that verdict.
    pub(super) fn word(self, verdict: Verdict) -> &'static str {
        self.words()
            .iter()
            .find(|(_, other)| *other == verdict)
            .unwrap()
            .0
    }

    /// The amount of every payment, as it is written.
    pub(super) fn amount(self) -> &'static str {
        match self {
            Self::Yookassa | Self::Mollie | Self::Braintree => "\"1049.90\"",
            Self::Square | Self::Checkout => "9007199254740993",
        }
    }

    pub(super) fn answer(self, seen: &Seen, state: &State) -> (u16, Value) {
        let authorization = match self {
            Self::Yookassa => basic("shop-1", &state.secret),
            Self::Braintree => basic("public-1", &state.secret),
            _ => format!("Bearer {}", state.secret),
        };
        let known = seen.header("authorization") == Some(authorization.as_str());
        match self {
            Self::Yookassa => yookassa(known, seen, state),
            Self::Square => square(known, seen, state),
            Self::Mollie => mollie(known, seen, state),
            Self::Checkout => checkout(known, seen, state),
            Self::Braintree => braintree(known, seen, state),
        }
    }
}

fn basic(account: &str, secret: &str) -> String {
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{account}:{secret}"));
    format!("Basic {pair}")
}

fn created(sale: &Sale) -> i64 {
    NOW - sale.age
}

fn rfc3339(seconds: i64) -> String {
    let time = DateTime::from_timestamp(seconds, 0).unwrap();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn seconds(text: &str) -> i64 {
    DateTime::parse_from_rfc3339(text).unwrap().timestamp()
}

/// The payments that fit, newest first.
fn newest(state: &State, fits: impl Fn(&Sale) -> bool) -> Vec<Sale> {
    let fitting = state
        .sales
        .iter()
        .filter(|sale| state.ignores_filters || fits(sale));
    let mut sales: Vec<Sale> = fitting.cloned().collect();
    sales.sort_by_key(|sale| sale.age);
    sales
}

/// A page from a position on, and the position of the next one.
fn page<'a>(sales: &'a [Sale], begin: usize, limit: usize, state: &State) -> (&'a [Sale], Option<usize>) {
    let end = (begin + limit.min(state.page)).min(sales.len());
    (&sales[begin..end], (end < sales.len()).then_some(end))
}

fn limit(seen: &Seen, default: usize, most: usize) -> Option<usize> {
    let limit = seen
        .parameter("limit")
        .map_or(Some(default), |limit| limit.parse().ok())?;
    (1..=most).contains(&limit).then_some(limit)
}

fn position(cursor: Option<&str>) -> Option<usize> {
    cursor.map_or(Some(0), |cursor| cursor.strip_prefix("cursor-")?.parse().ok())
}

fn yookassa(known: bool, seen: &Seen, state: &State) -> (u16, Value) {
    let error = |status, code: &str| (status, json!({"type": "error", "id": "e1", "code": code}));
    if !known {
        return error(401, "invalid_credentials");
    }
    if (seen.method(), seen.path()) != ("GET", "/v3/payments") {
        return error(404, "not_found");
    }
    let bound = |name: &str, absent| seen.parameter(name).map_or(absent, |text| seconds(&text));
    let (from, to) = (bound("created_at.gte", 0), bound("created_at.lte", i64::MAX));
    let sales = newest(state, |sale| (from..=to).contains(&created(sale)));
    let (Some(limit), Some(begin)) = (
        limit(seen, 10, 100),
        position(seen.parameter("cursor").as_deref()),
    ) else {
        return error(400, "invalid_request");
    };
    let (shown, next) = page(&sales, begin, limit, state);
    let items: Vec<Value> = shown
        .iter()
        .map(|sale| {
            let mut item = json!({
                "id": sale.id, "status": sale.word, "paid": true,
                "amount": {"value": "1049.90", "currency": "RUB"},
                "created_at": rfc3339(created(sale)), "metadata": {"order_id": sale.order},
            });
            if sale.refunded {
                item["refunded_amount"] = json!({"value": "1049.90", "currency": "RUB"});
            }
            item
        })
        .collect();
    let mut answer = json!({"type": "list", "items": items});
    if let Some(next) = next {
        answer["next_cursor"] = format!("cursor-{next}").into();
    }
    (200, answer)
}

fn square(known: bool, seen: &Seen, state: &State) -> (u16, Value) {
    let error = |status, category: &str, code: &str| {
        (status, json!({"errors": [{"category": category, "code": code}]}))
    };
    if !known {
        return error(401, "AUTHENTICATION_ERROR", "UNAUTHORIZED");
    }
    if (seen.method(), seen.path()) != ("GET", "/v2/payments") {
        return error(404, "INVALID_REQUEST_ERROR", "NOT_FOUND");
    }
    let bound = |name: &str, absent| seen.parameter(name).map_or(absent, |text| seconds(&text));
    let (from, to) = (bound("begin_time", NOW - 31_536_000), bound("end_time", NOW));
    let main = seen.parameter("location_id").is_none_or(|id| id == "L1");
    let sales = newest(state, |sale| {
        main != sale.elsewhere && (from..=to).contains(&created(sale))
    });
    let Some(begin) = position(seen.parameter("cursor").as_deref()) else {
        return error(400, "INVALID_REQUEST_ERROR", "INVALID_CURSOR");
    };
    let (shown, next) = page(&sales, begin, limit(seen, 100, 100).unwrap_or(100), state);
    let payments: Vec<Value> = shown
        .iter()
        .map(|sale| {
            let money = json!({"amount": 9_007_199_254_740_993_i64, "currency": "USD"});
            let mut payment = json!({
                "id": sale.id, "status": sale.word, "amount_money": money, "total_money": money,
                "created_at": rfc3339(created(sale)), "location_id": "L1",
            });
            if let Some(order) = &sale.order {
                payment["reference_id"] = order.as_str().into();
            }
            if sale.refunded {
                payment["refunded_money"] = money;
            }
            payment
        })
        .collect();
    // Fields without a value are left out, the whole list too.
    let mut answer = json!({});
    if !payments.is_empty() {
        answer["payments"] = payments.into();
    }
    if let Some(next) = next {
        answer["cursor"] = format!("cursor-{next}").into();
    }
    (200, answer)
}

fn mollie(known: bool, seen: &Seen, state: &State) -> (u16, Value) {
    let error = |status: u16, title: &str| (status, json!({"status": status, "title": title, "_links": {}}));
    if !known {
        return error(401, "Unauthorized Request");
    }
    if (seen.method(), seen.path()) != ("GET", "/v2/payments") {
        return error(404, "Not Found");
    }
    let sales = newest(state, |_| true);
    // The payment that is named is the first of the page.
    let begin = match seen.parameter("from") {
        None => Some(0),
        Some(from) => sales.iter().position(|sale| sale.id == from),
    };
    let (Some(limit), Some(begin)) = (limit(seen, 50, 250), begin) else {
        return error(400, "Bad Request");
    };
    let (shown, next) = page(&sales, begin, limit, state);
    let payments: Vec<Value> = shown
        .iter()
        .map(|sale| {
            let amount = json!({"value": "1049.90", "currency": "EUR"});
            let mut payment = json!({
                "resource": "payment", "id": sale.id, "mode": "live", "status": sale.word, "amount": amount,
                "createdAt": rfc3339(created(sale)).replace(".000Z", "+00:00"),
                "metadata": sale.order.as_ref().map(|order| json!({"order_id": order})),
            });
            if sale.refunded {
                payment["amountRefunded"] = amount;
            }
            payment
        })
        .collect();
    // Another host than the one that was asked: the link must not be followed with the secret.
    let next = next.map(|next| {
        let href = format!(
            "https://api.mollie.com/v2/payments?from={}&limit={limit}",
            sales[next].id
        );
        json!({"href": href, "type": "application/hal+json"})
    });
    (
        200,
        json!({"count": payments.len(), "_embedded": {"payments": payments}, "_links": {"next": next, "previous": null}}),
    )
}

fn checkout(known: bool, seen: &Seen, state: &State) -> (u16, Value) {
    if !known {
        return (401, Value::Null);
    }
    if (seen.method(), seen.path()) != ("GET", "/payments") {
        return (404, Value::Null);
    }
    let skip = seen
        .parameter("skip")
        .map_or(Some(0), |skip| skip.parse::<usize>().ok());
    let (Some(reference), Some(limit), Some(skip)) =
        (seen.parameter("reference"), limit(seen, 10, 100), skip)
    else {
        return (
            422,
            json!({"request_id": "r1", "error_type": "request_invalid", "error_codes": ["reference_required"]}),
        );
    };
    let sales = newest(state, |sale| sale.order.as_ref() == Some(&reference));
    let (shown, _) = page(&sales, skip.min(sales.len()), limit, state);
    let data: Vec<Value> = shown
        .iter()
        .map(|sale| {
            json!({
                "id": sale.id, "requested_on": rfc3339(created(sale)), "amount": 9_007_199_254_740_993_i64,
                "currency": "EUR", "reference": sale.order, "status": sale.word, "approved": true,
            })
        })
        .collect();
    (
        200,
        json!({"limit": limit, "skip": skip, "total_count": sales.len(), "data": data}),
    )
}

fn braintree(known: bool, seen: &Seen, state: &State) -> (u16, Value) {
    let error = |class: &str, message: &str| {
        (
            200,
            json!({
                "data": null, "extensions": {"requestId": "r1"},
                "errors": [{"message": message, "extensions": {"errorClass": class, "errorType": "developer_error"}}],
            }),
        )
    };
    if !known {
        return error("AUTHENTICATION", "Authentication credentials are invalid");
    }
    let version = seen.header("braintree-version").unwrap_or_default();
    if (seen.method(), seen.path()) != ("POST", "/graphql") || version.len() != 10 {
        return error("VALIDATION", "Braintree-Version header is missing or invalid");
    }
    let body: Value = serde_json::from_str(&seen.body).unwrap();
    let text = body["query"].as_str().unwrap();
    assert!(text.starts_with("query ") && !text.contains("mutation"), "{text}");
    let Some(order) = body["variables"]["input"]["orderId"]["is"].as_str() else {
        return error("VALIDATION", "Variable 'input' has an invalid value");
    };
    let Some(begin) = position(body["variables"]["after"].as_str()) else {
        return error("VALIDATION", "Invalid cursor");
    };
    let sales = newest(state, |sale| sale.order.as_deref() == Some(order));
    let (shown, next) = page(&sales, begin, 50, state);
    let edges: Vec<Value> = shown
        .iter()
        .map(|sale| {
            json!({"node": {
                "id": format!("global-{}", sale.id), "legacyId": sale.id, "status": sale.word, "orderId": sale.order,
                "createdAt": rfc3339(created(sale)), "amount": {"value": "1049.90", "currencyCode": "USD"},
            }})
        })
        .collect();
    let info = json!({"hasNextPage": next.is_some(), "endCursor": next.map(|next| format!("cursor-{next}"))});
    (
        200,
        json!({
            "data": {"search": {"transactions": {"pageInfo": info, "edges": edges}}},
            "extensions": {"requestId": "r1"},
        }),
    )
}
