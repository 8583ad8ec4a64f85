//! What a section may say, and what the adapters know of their vendors.

use idemctl::provider::LookUp;

use super::apis::Kind;
use super::server::{Vendor, sale};
use super::*;

/// The message of a section that is refused.
fn refused(kind: Kind, more: &str) -> String {
    built(kind, more).unwrap_err().to_string()
}

#[test]
fn facts_are_the_vendors_unless_the_section_says_otherwise() {
    let hours = Duration::from_hours;
    for (kind, name, limit, retention, replays) in [
        (Kind::Yookassa, "yookassa", Some(64), Some(hours(24)), None),
        (Kind::Square, "square", Some(45), None, Some(false)),
        (Kind::Mollie, "mollie", None, Some(hours(24)), None),
        (Kind::Checkout, "checkout", None, Some(hours(24)), Some(false)),
        (Kind::Braintree, "braintree", None, Some(hours(720)), Some(true)),
    ] {
        let provider = built(kind, "").unwrap();
        let facts = provider.facts();
        assert_eq!(facts.kind, name);
        assert_eq!(
            (facts.key_limit, facts.key_retention, facts.replays_errors),
            (limit, retention, replays)
        );
        let lag = Duration::from_mins(2);
        let look_up = if kind.is_window() {
            LookUp::Window { lag }
        } else {
            LookUp::Exact { lag }
        };
        assert_eq!((facts.look_up, facts.timeout), (look_up, Duration::from_secs(5)));
        let more = "key_limit = 10\nkey_retention = \"1h\"\nreplays_errors = true\nlag = \"1s\"";
        let provider = built(kind, more).unwrap();
        let facts = provider.facts();
        assert_eq!(
            (facts.key_limit, facts.key_retention, facts.replays_errors),
            (Some(10), Some(hours(1)), Some(true))
        );
        let (LookUp::Window { lag } | LookUp::Exact { lag }) = facts.look_up else {
            panic!("{facts:?}");
        };
        assert_eq!(lag, Duration::from_secs(1));
    }
}

#[test]
fn production_is_the_default_and_its_query_goes_over_https() {
    for kind in Kind::ALL {
        let debug = format!("{:?}", built(kind, "").unwrap());
        assert!(debug.contains("BaseUrl(https://"), "{debug}");
        assert!(!debug.contains(SECRET), "{debug}");
    }
}

#[test]
fn keys_that_do_not_belong_to_the_kind_are_refused_by_name() {
    for kind in Kind::ALL {
        let mut foreign = vec![
            "headers = { x = \"y\" }",
            "find = \"/x\"",
            "status = \"/x\"",
            "reference = \"/x\"",
            "amount = \"/x\"",
            "currency = \"/x\"",
            "verdicts = { charged = [\"x\"] }",
            "miss_status = [404]",
            "absent_is_miss = true",
            "object = \"charge\"",
        ];
        if !matches!(kind, Kind::Yookassa | Kind::Braintree) {
            foreign.push("account = \"x\"");
        }
        if !matches!(kind, Kind::Yookassa | Kind::Mollie) {
            foreign.push("test_mode = true");
        }
        if kind != Kind::Square {
            foreign.push("location = \"x\"");
        }
        for line in foreign {
            let message = refused(kind, line);
            let key = line.split(' ').next().unwrap();
            assert!(
                message.contains(&format!("providers.acme.{key} does not belong to kind")),
                "{message}"
            );
        }
    }
}

#[test]
fn what_is_absent_or_wrong_is_named() {
    for (kind, keys) in [
        (Kind::Yookassa, &["secret", "account"][..]),
        (Kind::Square, &["secret", "location"]),
        (Kind::Mollie, &["secret"]),
        (Kind::Checkout, &["secret"]),
        (Kind::Braintree, &["secret", "account"]),
    ] {
        for key in keys {
            let mut table: toml::Table = kind.section().parse().unwrap();
            table.remove(*key);
            let surroundings = Surroundings {
                env: Arc::new(|_| None),
                proxy: Proxies::default(),
            };
            let error = build("acme", &table.try_into().unwrap(), &surroundings).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains(&format!("providers.acme.{key} is missing")),
                "{error}"
            );
        }
        for (more, expected) in [
            ("url = \"http://api.example.com\"", "acme.url is plain http"),
            ("url = \"https://api.example.com/?x=1\"", "acme.url has"),
            ("match = \"order\"", "acme.match"),
            ("timeout = \"1ms\"", "acme.timeout is 1ms"),
            (
                "response = { status_code = 99, body = 1 }",
                "acme.response.status_code",
            ),
        ] {
            assert!(refused(kind, more).contains(expected), "{}", refused(kind, more));
        }
    }
    for account in ["", "a:b", "a b", "é"] {
        let more = format!("account = \"{account}\"");
        assert!(refused(Kind::Yookassa, &more).contains("acme.account has"));
    }
    for kind in [Kind::Checkout, Kind::Braintree] {
        assert!(refused(kind, "match = \"/metadata/x\"").contains("can be asked by"));
    }
    built(Kind::Checkout, "match = \"/reference\"").unwrap();
}

#[tokio::test]
async fn another_place_of_the_order_id() {
    for (kind, pointer) in [
        (Kind::Yookassa, "/id"),
        (Kind::Square, "/id"),
        (Kind::Mollie, "/id"),
    ] {
        let vendor = Vendor::start(kind, vec![sale("p1", "order-1", kind.word(Verdict::Charged))]).await;
        let adapter = adapter(&vendor, &format!("match = \"{pointer}\""));
        assert_eq!(ask(&adapter, "p1").await.verdict, Verdict::Charged);
        assert_eq!(ask(&adapter, "order-1").await.verdict, Verdict::NotCharged);
        // The limit is that of the other field, of which nothing is known.
        assert_eq!(ask(&adapter, &"x".repeat(100)).await.verdict, Verdict::NotCharged);
    }
}
