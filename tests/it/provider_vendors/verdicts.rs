//! What an order comes to.

use super::apis::Kind;
use super::server::{Sale, Vendor, sale};
use super::*;

#[tokio::test]
async fn every_word_has_its_verdict() {
    for kind in Kind::ALL {
        for (word, verdict) in kind.words() {
            let vendor = Vendor::start(kind, vec![sale("p1", "order-1", word)]).await;
            let status = ask(&adapter(&vendor, ""), "order-1").await;
            assert_eq!(status.verdict, *verdict, "{kind:?} {word}: {status:?}");
            assert_eq!(status.raw_status.as_deref(), Some(*word));
            assert_eq!(status.reference.as_deref(), Some("p1"));
            assert_eq!(status.amount.as_ref().unwrap().get(), kind.amount());
            assert_eq!(status.currency.as_ref().unwrap().len(), 3);
            assert!(status.answered && status.payment.is_some());
        }
    }
}

#[tokio::test]
async fn a_refunded_payment_was_charged() {
    for kind in Kind::ALL {
        let refunded = Sale {
            refunded: true,
            ..sale("p1", "order-1", kind.word(Verdict::Charged))
        };
        let vendor = Vendor::start(kind, vec![refunded]).await;
        assert_eq!(
            ask(&adapter(&vendor, ""), "order-1").await.verdict,
            Verdict::Charged
        );
    }
}

#[tokio::test]
async fn a_word_that_nobody_knows_is_unknown_and_shown() {
    for kind in Kind::ALL {
        let words = kind.words().iter().map(|(word, _)| *word);
        let swapped = words.map(|word| {
            if word.chars().any(char::is_lowercase) {
                word.to_uppercase()
            } else {
                word.to_lowercase()
            }
        });
        for word in swapped.chain(["FAILED_NEW".to_owned(), String::new()]) {
            let vendor = Vendor::start(kind, vec![sale("p1", "order-1", &word)]).await;
            let status = ask(&adapter(&vendor, ""), "order-1").await;
            assert!(reason(&status).contains("does not know"), "{status:?}");
            assert_eq!(status.raw_status.as_deref(), Some(word.as_str()));
        }
    }
    // An error on the way to the processor, of which nobody knows whether it went on.
    let vendor = Vendor::start(Kind::Braintree, vec![sale("p1", "order-1", "FAILED")]).await;
    assert!(reason(&ask(&adapter(&vendor, ""), "order-1").await).contains("\"FAILED\""));
}

#[tokio::test]
async fn a_miss_counts_after_the_lag() {
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![sale("p2", "order-2", kind.word(Verdict::Charged))]).await;
        let adapter = adapter(&vendor, "lag = \"90s\"");
        let status = checked(adapter.status(&query("order-1", 7200, 60)).await);
        assert!(reason(&status).contains("until 1m30s after"), "{status:?}");
        assert_eq!(status.not_before, Some(Duration::from_secs(30)));
        assert!(status.answered);
        let status = checked(adapter.status(&query("order-1", 7200, 90)).await);
        assert_eq!(status.verdict, Verdict::NotCharged, "{kind:?}: {status:?}");
        let status = checked(adapter.status(&StatusQuery::new("order-1")).await);
        assert!(reason(&status).contains("not known when"), "{status:?}");
        // What is not known of the first attempt matters for a window only.
        let age = Duration::from_hours(1);
        let status = adapter
            .status(&StatusQuery::new("order-1").attempted_at_age(age))
            .await;
        let expected = if kind.is_window() {
            Verdict::Unknown
        } else {
            Verdict::NotCharged
        };
        assert_eq!(checked(status).verdict, expected);
    }
}

#[tokio::test]
async fn a_payment_counts_whatever_else_is_known() {
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![sale("p1", "order-1", kind.word(Verdict::Charged))]).await;
        let status = checked(adapter(&vendor, "").status(&StatusQuery::new("order-1")).await);
        assert_eq!(status.verdict, Verdict::Charged, "{kind:?}: {status:?}");
    }
}

#[tokio::test]
async fn several_payments_of_one_order() {
    for kind in Kind::ALL {
        let (charged, void) = (kind.word(Verdict::Charged), kind.word(Verdict::NotCharged));
        for (words, expected) in [
            ([void, charged], Verdict::Charged),
            ([charged, void], Verdict::Charged),
            ([void, kind.word(Verdict::Pending)], Verdict::Pending),
            ([void, void], Verdict::NotCharged),
            ([charged, charged], Verdict::Unknown),
            ([charged, "new-word"], Verdict::Unknown),
        ] {
            let sales = vec![
                sale("p1", "order-1", words[0]),
                sale("p2", "order-1", words[1]),
                sale("p3", "order-2", charged),
            ];
            let vendor = Vendor::start(kind, sales).await;
            let status = ask(&adapter(&vendor, ""), "order-1").await;
            assert_eq!(status.verdict, expected, "{kind:?} {words:?}: {status:?}");
            if expected == Verdict::Unknown {
                assert!(reason(&status).contains("2 payments"), "{status:?}");
                assert!(
                    reason(&status).contains("p1") && reason(&status).contains("p2"),
                    "{status:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_failed_attempt_is_not_the_last_word_on_a_later_one() {
    for kind in Kind::ALL {
        let vendor = Vendor::start(kind, vec![sale("p1", "order-1", kind.word(Verdict::NotCharged))]).await;
        let adapter = adapter(&vendor, "lag = \"90s\"");
        // The row may have been released after the attempt that failed, so that it knows of one attempt only.
        for first in [3600, 7200] {
            let status = checked(adapter.status(&query("order-1", first, 60)).await);
            assert!(reason(&status).contains("a later one"), "{status:?}");
            assert_eq!(status.not_before, Some(Duration::from_secs(30)));
        }
        let status = checked(adapter.status(&query("order-1", 7200, 90)).await);
        assert_eq!(status.verdict, Verdict::NotCharged);
    }
}

#[tokio::test]
async fn the_response_for_the_clients_retry() {
    for kind in Kind::ALL {
        let (places, expected) = match kind {
            Kind::Yookassa | Kind::Mollie => ("{/amount/value}", r#"{"charge":"p1","sum":"1049.90"}"#),
            Kind::Square => (
                "{/amount_money/amount}",
                r#"{"charge":"p1","sum":9007199254740993}"#,
            ),
            Kind::Checkout => ("{/amount}", r#"{"charge":"p1","sum":9007199254740993}"#),
            Kind::Braintree => ("{/amount/value}", r#"{"charge":"global-p1","sum":"1049.90"}"#),
        };
        let vendor = Vendor::start(kind, vec![sale("p1", "order-1", kind.word(Verdict::Charged))]).await;
        let template = format!(
            "response = {{ status_code = 201, body = {{ charge = \"{{/id}}\", sum = \"{places}\" }} }}"
        );
        let adapter = adapter(&vendor, &template);
        let status = ask(&adapter, "order-1").await;
        let response = adapter.response(&status.payment.unwrap()).unwrap().unwrap();
        assert_eq!(response.status_code(), 201);
        assert_eq!(response.body(), expected.as_bytes(), "{kind:?}");
    }
}
