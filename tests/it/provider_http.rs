//! The http adapter against a provider over real sockets: every verdict, and every way not to get one.

#![expect(clippy::unwrap_used, reason = "a test helper may panic")]

mod config;
mod secrets;
pub(crate) mod server;
mod tls;
mod transport;

use std::sync::Arc;
use std::time::{Duration, Instant};

use idemctl::provider::{
    Provider, ProviderConfig, ProviderStatus, StatusQuery, Surroundings, Verdict, build,
};

use server::{Reply, Server};

const BASICS: &str = r#"
    kind = "http"
    find = "/data"
    status = "/status"
    reference = "/id"
    amount = "/amount/value"
    currency = "/amount/currency"
    timeout = "5s"
    lag = "60s"
    verdicts = { charged = ["succeeded", "7"], authorized = ["authorized"], pending = ["processing"], not_charged = ["failed", "canceled"] }
"#;

fn surroundings() -> Surroundings {
    let env = |name: &str| (name == "ACME_KEY").then(|| "s3cret-from-env".to_owned());
    Surroundings {
        env: Arc::new(env),
        proxy: idemctl::provider::Proxies::default(),
    }
}

/// An adapter for the server; `more` overrides lines of [`BASICS`].
fn adapter(server: &Server, more: &str) -> Arc<dyn Provider> {
    adapter_at(
        &format!("http://{}/v1/payments?order={{order_id}}&m=1", server.address),
        more,
    )
}

fn adapter_at(url: &str, more: &str) -> Arc<dyn Provider> {
    build("acme", &read(&format!("url = {url:?}\n{more}")), &surroundings()).unwrap()
}

fn read(more: &str) -> ProviderConfig {
    let mut table: toml::Table = BASICS.parse().unwrap();
    table.extend(more.parse::<toml::Table>().unwrap());
    table.try_into().unwrap()
}

/// Asks about order-1, whose last attempt began an hour ago.
async fn ask(adapter: &Arc<dyn Provider>) -> ProviderStatus {
    let status = adapter
        .status(&StatusQuery::new("order-1").attempted_at_age(Duration::from_hours(1)))
        .await;
    assert_eq!(
        status.reason.is_some(),
        status.verdict == Verdict::Unknown,
        "{status:?}"
    );
    status
}

async fn one(reply: Reply, more: &str) -> ProviderStatus {
    ask(&adapter(&Server::start(vec![reply]).await, more)).await
}

fn reason(status: &ProviderStatus) -> &str {
    assert_eq!(status.verdict, Verdict::Unknown, "{status:?}");
    status.reason.as_deref().unwrap()
}

#[tokio::test]
async fn every_word_has_its_verdict() {
    for (word, verdict) in [
        ("\"succeeded\"", Verdict::Charged),
        ("7", Verdict::Charged),
        ("\"authorized\"", Verdict::Authorized),
        ("\"processing\"", Verdict::Pending),
        ("\"failed\"", Verdict::NotCharged),
        ("\"canceled\"", Verdict::NotCharged),
        ("\"SUCCEEDED\"", Verdict::Unknown),
        ("\"refunding\"", Verdict::Unknown),
        ("true", Verdict::Unknown),
    ] {
        let payment = format!(
            r#"{{"id":"ch_1","status":{word},"amount":{{"value":90071992547409.930,"currency":"EUR"}}}}"#
        );
        for body in [
            format!("{{\"data\":{payment}}}"),
            format!("{{\"data\":[{payment}]}}"),
        ] {
            let server = Server::start(vec![Reply::json(200, &body)]).await;
            let in_path = format!("http://{}/v1/payments/{{order_id}}", server.address);
            let status = ask(&adapter_at(&in_path, "")).await;
            assert_eq!(status.verdict, verdict, "{status:?}");
            assert_eq!(
                status.raw_status.as_deref(),
                Some(word.trim_matches('"')),
                "shown even if unknown"
            );
            assert_eq!(status.reference.as_deref(), Some("ch_1"));
            assert_eq!(
                status.amount.as_ref().map(|amount| amount.get()),
                Some("90071992547409.930")
            );
            assert_eq!(status.currency.as_deref(), Some("EUR"));
            assert!(
                status.evidence.contains("HTTP 200, one payment"),
                "{}",
                status.evidence
            );
        }
    }
    let status = one(
        Reply::json(200, r#"{"data":{"id":"ch_1","amount":{"value":"10.00"}}}"#),
        "",
    )
    .await;
    assert!(reason(&status).contains("no status at \"/status\""));
    assert_eq!(
        status.amount.as_ref().map(|amount| amount.get()),
        Some("\"10.00\"")
    );
}

#[tokio::test]
async fn a_miss_counts_only_when_the_lag_has_passed_since_the_last_attempt() {
    let misses = [
        Reply::status(404),
        Reply::json(404, r#"{"error":"no such payment"}"#),
        Reply::json(200, r#"{"data":[]}"#),
        Reply::json(200, r#"{"data":null}"#),
        Reply::json(200, r#"{"has_more":false}"#),
    ];
    for reply in misses {
        let server = Server::start(vec![reply]).await;
        let adapter = adapter(&server, "miss_status = [404]\nabsent_is_miss = true");
        let query = StatusQuery::new("order-1");
        let status = adapter.status(&query).await;
        assert!(
            reason(&status).contains("not known when the last attempt began"),
            "{status:?}"
        );
        assert_eq!(status.not_before, None);

        let status = adapter
            .status(&query.clone().attempted_at_age(Duration::from_millis(59_999)))
            .await;
        assert!(
            reason(&status).contains("until 1m after the last attempt"),
            "{status:?}"
        );
        assert_eq!(status.not_before, Some(Duration::from_millis(1)));

        let status = adapter
            .status(&query.attempted_at_age(Duration::from_mins(1)))
            .await;
        assert_eq!((status.verdict, status.reason), (Verdict::NotCharged, None));
    }
    let status = one(Reply::json(200, r#"{"data":[]}"#), "lag = \"2h\"").await;
    assert_eq!(status.not_before, Some(Duration::from_hours(1)));
}

#[tokio::test]
async fn a_failed_attempt_says_nothing_of_a_later_one_that_may_still_be_invisible() {
    let server = Server::start(vec![Reply::json(
        200,
        r#"{"data":[{"id":"p1","status":"failed"}]}"#,
    )])
    .await;
    let adapter = adapter_at(&format!("http://{}/v1/payments/{{order_id}}", server.address), "");
    let query = StatusQuery::new("order-1").attempted_at_age(Duration::from_secs(20));
    // Though it may be the only attempt that the row knows of.
    let soon = adapter.status(&query).await;
    assert!(
        reason(&soon).contains("a later one may not be visible"),
        "{soon:?}"
    );
    assert_eq!(soon.not_before, Some(Duration::from_secs(40)));
    let whenever = adapter.status(&StatusQuery::new("order-1")).await;
    assert_eq!((whenever.verdict, whenever.not_before), (Verdict::Unknown, None));
    let later = query.attempted_at_age(Duration::from_mins(1));
    assert_eq!(adapter.status(&later).await.verdict, Verdict::NotCharged);
}

#[tokio::test]
async fn a_failed_payment_of_nobody_knows_whom_proves_nothing() {
    // A provider that does not know the filter gives just any payment.
    let body = r#"{"data":[{"id":"p1","status":"failed","order":"order-1"}]}"#;
    let status = one(Reply::json(200, body), "").await;
    assert!(reason(&status).contains("set match"), "{status:?}");
    assert_eq!(status.reference.as_deref(), Some("p1"));
    let status = one(Reply::json(200, body), "match = \"/order\"").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
}

#[tokio::test]
async fn a_wrong_address_or_an_error_in_disguise_is_no_miss_unless_configured() {
    // With the order id in the query alone, 404 says that the address is wrong.
    let in_query = one(Reply::json(404, r#"{"message":"no Route matched"}"#), "").await;
    assert!(reason(&in_query).contains("HTTP 404"), "{in_query:?}");
    let server = Server::start(vec![Reply::json(404, "{}")]).await;
    let in_path = adapter_at(&format!("http://{}/v1/payments/{{order_id}}", server.address), "");
    assert_eq!(ask(&in_path).await.verdict, Verdict::NotCharged);
    // An error may come with status 200.
    let error = one(Reply::json(200, r#"{"error":{"code":"internal"}}"#), "").await;
    assert!(reason(&error).contains("absent_is_miss"), "{error:?}");
}

#[tokio::test]
async fn what_is_no_answer_of_the_api_is_never_a_miss() {
    let html = |status| {
        Reply::Http(
            status,
            vec![("content-type", "text/html; charset=utf-8".into())],
            b"<p>no</p>".to_vec(),
        )
    };
    let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{\"data\":[]}".to_vec();
    let huge = format!("{{\"data\":[{}]}}", "0,".repeat(600_000));
    let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b' '; 2_000_000]].concat();
    let cases = [
        (html(404), "page of HTML"),
        (html(200), "cannot be read"),
        (Reply::json(200, ""), "ends where a value is expected"),
        (Reply::json(200, "{\"data\":[],\"data\":[{}]}"), "same name twice"),
        (Reply::json(200, "{\"data\":[]} trailing"), "goes on after"),
        (
            Reply::json(200, "{\"data\":\"none\"}"),
            "neither a payment nor an array",
        ),
        (Reply::json(200, "{\"data\":{}}"), "no status"),
        (Reply::json(200, "{\"data\":[[]]}"), "no status"),
        (Reply::json(204, ""), "cannot be read"),
        (Reply::json(206, "{\"data\":[]}"), "HTTP 206"),
        (
            Reply::json(200, "{\"data\":null,\"errors\":[{\"message\":\"down\"}]}"),
            "\"errors\"",
        ),
        (Reply::json(200, "{\"data\":[],\"error\":{\"a\":1}}"), "\"error\""),
        (
            Reply::json(200, "{\"data\":[],\"has_more\":true}"),
            "\"has_more\"",
        ),
        (Reply::json(200, "{\"data\":[],\"next\":\"/x\"}"), "\"next\""),
        (Reply::json(400, "{\"data\":[]}"), "HTTP 400"),
        (Reply::json(422, "{\"data\":[]}"), "HTTP 422"),
        (Reply::json(401, "{\"data\":[]}"), "credentials, HTTP 401"),
        (Reply::json(403, "{\"data\":[]}"), "credentials, HTTP 403"),
        (Reply::json(200, &huge), "longer than 1048576"),
        (Reply::Raw(endless), "longer than 1048576"),
        (Reply::Raw(cut), "cannot be reached"),
        (Reply::Raw(b"SSH-2.0-OpenSSH\r\n".to_vec()), "cannot be reached"),
        (Reply::Raw(vec![]), "cannot be reached"),
        (Reply::Reset, "cannot be reached"),
    ];
    // Side by side, because those that may pass are asked again with growing waits.
    let checks = cases.into_iter().map(|(reply, expected)| async move {
        let status = one(reply, "miss_status = [404]").await;
        assert!(reason(&status).contains(expected), "{expected}: {status:?}");
    });
    futures_util::future::join_all(checks).await;
}

#[tokio::test]
async fn one_payment_or_no_answer() {
    let two = r#"{"data":[{"id":1,"status":"failed","order":"order-1"},{"id":2,"status":"succeeded","order":"order-2"}]}"#;
    let status = one(Reply::json(200, two), "").await;
    assert!(reason(&status).contains("2 payments were found"), "{status:?}");
    let status = one(Reply::json(200, two), "match = \"/order\"").await;
    // A list that the order id did not narrow may have another payment of ours further on.
    assert!(
        reason(&status).contains("1 payments of other orders came back"),
        "{status:?}"
    );
    assert_eq!(status.reference.as_deref(), Some("1"));
    let charged = two.replace("failed", "succeeded");
    let status = one(Reply::json(200, &charged), "match = \"/order\"").await;
    assert_eq!(
        (status.verdict, status.reference.as_deref()),
        (Verdict::Charged, Some("1"))
    );
    let alone = r#"{"data":[{"id":1,"status":"failed","order":"order-1"}]}"#;
    let status = one(Reply::json(200, alone), "match = \"/order\"").await;
    assert_eq!(status.verdict, Verdict::NotCharged, "{status:?}");
    // A provider that ignores the filter gives the payments of others: neither ours nor a miss.
    for others in [
        r#"{"data":[{"status":"succeeded","order":"order-11"}]}"#,
        r#"{"data":{"status":"failed"}}"#,
    ] {
        let status = one(Reply::json(200, others), "match = \"/order\"").await;
        assert!(
            reason(&status).contains("none of them with our order id"),
            "{status:?}"
        );
    }
    let same = two.replace("order-2", "order-1");
    assert!(
        reason(&one(Reply::json(200, &same), "match = \"/order\"").await).contains("2 payments were found")
    );
}

fn charged() -> Reply {
    Reply::json(200, r#"{"data":[{"id":"ch_1","status":"succeeded"}]}"#)
}

#[tokio::test]
async fn hostile_order_ids_stay_in_their_place() {
    let server = Server::start(vec![charged()]).await;
    let in_path = adapter_at(
        &format!("http://{}/v1/payments/{{order_id}}/state?m=1", server.address),
        "",
    );
    let in_query = adapter(&server, "");
    for (id, encoded) in [
        ("../x?y=1&z#", "..%2Fx%3Fy%3D1%26z%23"),
        ("a b+c%2e", "a%20b%2Bc%252e"),
        ("заказ", "%D0%B7%D0%B0%D0%BA%D0%B0%D0%B7"),
        ("...", "..."),
        ("{order_id}", "%7Border_id%7D"),
        ("\\..\\", "%5C..%5C"),
    ] {
        for adapter in [&in_path, &in_query] {
            assert_eq!(
                adapter.status(&StatusQuery::new(id)).await.verdict,
                Verdict::Charged,
                "{id}"
            );
        }
        let targets = server.targets();
        let expected = [
            format!("/v1/payments/{encoded}/state?m=1"),
            format!("/v1/payments?order={encoded}&m=1"),
        ];
        assert_eq!(targets[targets.len() - 2..], expected);
    }
    let before = server.requests().len();
    for (id, expected) in [
        (".", "step in the URL's path"),
        ("..", "step in"),
        ("", "is empty"),
        ("a\r\nb", "U+000D"),
    ] {
        let status = in_path.status(&StatusQuery::new(id)).await;
        assert!(reason(&status).contains(expected), "{status:?}");
    }
    assert!(reason(&in_path.status(&StatusQuery::new("x".repeat(256))).await).contains("255"));
    assert_eq!(server.requests().len(), before, "nothing was sent");
}

#[tokio::test]
async fn what_was_found_fills_the_response_to_store() {
    let more = r#"
        response = { status_code = 201, body = { charge_id = "{/id}", amount = "{/amount/value}", note = "no {/id}", n = 1 } }
    "#;
    let body = r#"{"data":{"id":"ch_1","status":"succeeded","amount":{"value":10.50}}}"#;
    let server = Server::start(vec![Reply::json(200, body)]).await;
    let adapter = adapter(&server, more);
    let status = ask(&adapter).await;
    let response = adapter
        .response(status.payment.as_ref().unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(response.status_code(), 201);
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert_eq!(
        response.body(),
        br#"{"amount":10.50,"charge_id":"ch_1","n":1,"note":"no ch_1"}"#
    );
    let server = Server::start(vec![charged()]).await;
    let status = ask(&self::adapter(&server, more)).await;
    let error = adapter
        .response(status.payment.as_ref().unwrap())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("providers.acme.response") && error.contains("/amount/value"),
        "{error}"
    );
    assert!(
        self::adapter(&server, "")
            .response(status.payment.as_ref().unwrap())
            .unwrap()
            .is_none()
    );
}
