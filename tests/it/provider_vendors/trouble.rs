//! Every way to get no answer: all unknown, none a miss.

use std::time::Instant;

use super::apis::Kind;
use super::server::{Fault, Vendor, sale};
use super::*;

const HTML: &str = "content-type: text/html\r\n";
const JSON: &str = "content-type: application/json\r\n";

#[tokio::test]
async fn bad_credentials() {
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![]).await;
        for wrong in ["secret = \"wr0ng\"", "secret = { env = \"UNSET\" }"] {
            let status = ask(&adapter(&vendor, wrong), "order-1").await;
            let expected = if wrong.contains("env") {
                "UNSET is not set"
            } else {
                "refused our credentials"
            };
            assert!(reason(&status).contains(expected), "{kind:?}: {status:?}");
            assert!(
                !status.answered && !format!("{status:?}").contains("wr0ng"),
                "{status:?}"
            );
        }
        assert_eq!(
            vendor.seen().len(),
            1,
            "asked once, since asking again would not help"
        );
    }
    for kind in [Kind::Yookassa, Kind::Braintree] {
        let vendor = Vendor::start(kind, vec![]).await;
        let status = ask(&adapter(&vendor, "account = \"somebody\""), "order-1").await;
        assert!(reason(&status).contains("credentials"), "{status:?}");
    }
}

#[tokio::test]
async fn every_way_not_to_answer() {
    for kind in Kind::ALL {
        let charged = kind.word(Verdict::Charged);
        let vendor = Vendor::start(kind, vec![sale("p1", "order-2", charged)]).await;
        let adapter = adapter(&vendor, "timeout = \"700ms\"");
        // With the first request, and with the one after it (the list itself, after the question for the time).
        for from in [0, usize::from(kind.is_window())] {
            for (fault, expected) in [
                (Fault::Answer(500, "", ""), "HTTP 500"),
                (Fault::Answer(503, HTML, "<html>"), "HTTP 503"),
                (Fault::Answer(404, HTML, "<html>not found"), "HTTP 404"),
                (Fault::Answer(404, JSON, r#"{"code":"not_found"}"#), "HTTP 404"),
                (Fault::Answer(400, JSON, "{}"), "HTTP 400"),
                (Fault::Answer(204, "", ""), "HTTP 204"),
                (
                    Fault::Answer(302, "location: http://127.0.0.1:9/\r\n", ""),
                    "redirect",
                ),
                (Fault::Answer(403, JSON, "{}"), "credentials"),
                (Fault::Close, "cannot be reached"),
                (Fault::Hang, "no answer within"),
            ] {
                vendor.fault(from, fault);
                let status = ask(&adapter, "order-1").await;
                assert!(reason(&status).contains(expected), "{kind:?} {from}: {status:?}");
                assert!(!status.answered);
            }
        }
    }
}

#[tokio::test]
async fn every_body_that_is_no_list() {
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![]).await;
        let adapter = adapter(&vendor, "");
        assert_eq!(ask(&adapter, "order-1").await.verdict, Verdict::NotCharged);
        for body in [
            "",
            "<html>welcome</html>",
            "null",
            "[]",
            "\"\"",
            "0",
            "{\"x\":1}",
            "{\"data\":null}",
            "{\"data\":{}}",
            "{\"data\":[],\"total_count\":1}",
            "{\"data\":[1],\"total_count\":1}",
            "{\"data\":[{\"reference\":\"order-1\"}],\"total_count\":1}",
            "{\"data\":[]}",
            "{\"items\":{}}",
            "{\"items\":[],\"next_cursor\":1}",
            "{\"items\":[{\"metadata\":{\"order_id\":\"order-1\"}}]}",
            "{\"payments\":null}",
            "{\"payments\":[{\"reference_id\":\"order-1\"}]}",
            "{\"errors\":[{\"code\":\"GATEWAY_TIMEOUT\"}]}",
            "{\"payments\":[],\"errors\":[{\"code\":\"GATEWAY_TIMEOUT\"}]}",
            "{\"_embedded\":{\"payments\":[]}}",
            "{\"_embedded\":{},\"_links\":{\"next\":null}}",
            "{\"_embedded\":{\"payments\":[]},\"_links\":{\"next\":{}}}",
            "{\"_embedded\":{\"payments\":[]},\"_links\":{\"next\":{\"href\":\"?limit=1\"}}}",
            "{\"data\":{\"search\":null}}",
            "{\"data\":{\"search\":{\"transactions\":null}}}",
            "{\"data\":{\"search\":{\"transactions\":{\"edges\":[]}}}}",
            "{\"data\":{\"search\":{\"transactions\":{\"edges\":[{}],\"pageInfo\":{\"hasNextPage\":false}}}}}",
            "{\"data\":{\"search\":{\"transactions\":{\"edges\":[],\"pageInfo\":{\"hasNextPage\":true}}}}}",
            "{\"errors\":[],\"data\":{\"search\":{\"transactions\":{\"edges\":[],\"pageInfo\":{\"hasNextPage\":false}}}}}",
            "{\"errors\":[{\"message\":\"x\"}],\"data\":{\"search\":{\"transactions\":{\"edges\":[],\"pageInfo\":{\"hasNextPage\":false}}}}}",
        ] {
            vendor.fault(usize::from(kind.is_window()), Fault::Answer(200, JSON, body));
            let status = ask(&adapter, "order-1").await;
            assert_eq!(status.verdict, Verdict::Unknown, "{kind:?} {body}: {status:?}");
        }
    }
}

#[tokio::test]
async fn an_error_of_graphql_is_shown() {
    let vendor = Vendor::start(Kind::Braintree, vec![]).await;
    let body = r#"{"data":null,"errors":[{"message":"Too complex \u001b[2J","extensions":{"errorClass":"RESOURCE_LIMIT"}}]}"#;
    vendor.fault(0, Fault::Answer(200, JSON, body));
    let status = ask(&adapter(&vendor, ""), "order-1").await;
    assert!(
        reason(&status).contains("RESOURCE_LIMIT: \"Too complex \\u{1b}[2J\""),
        "{status:?}"
    );
}

#[tokio::test]
async fn the_vendors_wish_to_wait_is_handed_on() {
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![]).await;
        vendor.fault(0, Fault::Answer(429, "retry-after: 3600\r\n", ""));
        let status = ask(&adapter(&vendor, ""), "order-1").await;
        assert!(reason(&status).contains("HTTP 429"), "{status:?}");
        assert_eq!(status.not_before, Some(Duration::from_hours(1)));
        assert_eq!(vendor.seen().len(), 1);
    }
}

#[tokio::test]
async fn all_requests_together_keep_within_the_timeout() {
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![]).await;
        vendor.fault(usize::from(kind.is_window()), Fault::Hang);
        let begun = Instant::now();
        let status = ask(&adapter(&vendor, "timeout = \"1s\""), "order-1").await;
        assert!(reason(&status).contains("no answer within 1s"), "{status:?}");
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn nobody_there() {
    for kind in Kind::ALL {
        let adapter = built(kind, "url = \"http://127.0.0.1:9\"\ntimeout = \"500ms\"").unwrap();
        let status = ask(&adapter, "order-1").await;
        assert!(reason(&status).contains("cannot be reached"), "{status:?}");
        assert!(!status.answered);
    }
}
