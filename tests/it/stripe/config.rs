//! The section of the configuration, and what is known without asking.

use std::time::Duration;

use idemctl::provider::{LookUp, ProviderConfig, build};
use idemctl::provider_key::KeyScheme;

use super::{adapter, surroundings};

fn error(more: &str) -> String {
    let config: ProviderConfig = toml::from_str(&format!("kind = \"stripe\"\n{more}")).unwrap();
    build("acme", &config, &surroundings()).unwrap_err().to_string()
}

#[test]
fn mistakes_are_named() {
    for (more, said) in [
        ("", "providers.acme.secret is missing"),
        (
            "secret = \"s\"\nurl = \"http://stripe.example\"",
            "providers.acme.url is plain http",
        ),
        (
            "secret = \"s\"\nurl = \"https://api.stripe.com/v1?x\"",
            "providers.acme.url has a brace or a query",
        ),
        (
            "secret = \"s\"\nobject = \"customer\"",
            "providers.acme.object is neither",
        ),
        (
            "secret = \"s\"\naccount = \"my\\nshop\"",
            "providers.acme.account is no id",
        ),
        (
            "secret = \"s\"\naccount = \"shop\"",
            "providers.acme.account is no id",
        ),
        (
            "secret = \"s\"\nmatch = \"/description\"",
            "providers.acme.match is not of the form",
        ),
        (
            "secret = \"s\"\nmatch = \"/metadata/\"",
            "providers.acme.match is not of the form",
        ),
        (
            "secret = \"s\"\nmatch = \"/metadata/a\\\"]\"",
            "providers.acme.match is not of the form",
        ),
        ("secret = \"s\"\nfind = \"/data\"", "providers.acme.find"),
        (
            "secret = \"s\"\nverdicts = { charged = [\"x\"] }",
            "providers.acme.verdicts",
        ),
        (
            "secret = \"s\"\nheaders = { x = \"y\" }",
            "providers.acme.headers",
        ),
        ("secret = \"s\"\nlocation = \"L1\"", "providers.acme.location"),
    ] {
        let error = error(more);
        assert!(error.contains(said), "{more}: {error}");
    }
}

#[test]
fn what_is_known_without_asking() {
    let adapter = adapter(1, "");
    let facts = adapter.facts();
    assert_eq!((facts.kind, facts.key_scheme), ("stripe", KeyScheme::Derived));
    assert_eq!(facts.key_limit, Some(255));
    assert_eq!(facts.key_retention, Some(Duration::from_hours(24)));
    assert_eq!(facts.replays_errors, Some(true));
    let lag = Duration::from_mins(2);
    assert_eq!(facts.look_up, LookUp::Window { lag });
    let other = super::adapter(1, "lag = \"1h\"");
    let lag = Duration::from_hours(1);
    assert_eq!(other.facts().look_up, LookUp::Window { lag });
}

#[tokio::test]
async fn the_secret_may_come_from_the_environment() {
    let vendor =
        super::vendor::Vendor::start(vec![super::vendor::intent("pi_1", "order-1", "succeeded")]).await;
    let adapter = super::adapter(
        vendor.port,
        "secret = { env = \"STRIPE_KEY\" }\naccount = \"acct_1\"",
    );
    assert_eq!(
        super::ask(&adapter, "order-1").await.reference.as_deref(),
        Some("pi_1")
    );
    assert!(vendor.heads()[0].contains("stripe-account: acct_1\r\n"));
    let unset = super::adapter(vendor.port, "secret = { env = \"UNSET\" }");
    let status = super::ask(&unset, "order-1").await;
    assert!(super::reason(&status).contains("UNSET is not set"), "{status:?}");
}

#[tokio::test]
async fn the_secret_is_never_shown() {
    let dir = crate::support::temp_dir();
    let path = dir.path().join("config.toml");
    for secret in [
        "secret = \"sk_live_hush\"",
        "secret = { prefix = \"sk_live_hush\", env = \"STRIPE_KEY\" }",
    ] {
        std::fs::write(&path, format!("[providers.acme]\nkind = \"stripe\"\n{secret}\n")).unwrap();
        let path = path.to_string_lossy();
        for command in [&["config"][..], &["provider", "list"], &["config", "-o", "json"]] {
            let output = crate::support::idemctl(&[command, &["-c", &path]].concat())
                .run()
                .await;
            assert!(!output.transcript().contains("hush"), "{}", output.transcript());
            assert!(output.transcript().contains("stripe"), "{}", output.transcript());
        }
    }
}

#[tokio::test]
async fn a_key_of_test_mode_proves_nothing_unless_it_is_meant() {
    use idemctl::provider::Verdict;
    let canceled = super::vendor::intent("pi_1", "order-1", "canceled");
    let paid = super::vendor::intent("pi_2", "order-2", "succeeded");
    let vendor = super::vendor::Vendor::start(vec![canceled, paid]).await;
    for secret in [
        "",
        "secret = { env = \"STRIPE_KEY\" }",
        "secret = { prefix = \"sk_test_\", env = \"STRIPE_KEY_END\" }",
    ] {
        for order in ["nobody", "order-1", "pi_1"] {
            let meant = super::adapter(vendor.port, secret);
            let status = super::ask(&meant, order).await;
            assert_eq!(
                status.verdict,
                Verdict::NotCharged,
                "{secret} {order}: {status:?}"
            );
            let adapter = super::adapter(vendor.port, &format!("test_mode = false\n{secret}"));
            let status = super::ask(&adapter, order).await;
            assert!(super::reason(&status).contains("test_mode = true"), "{status:?}");
            assert!(
                status.evidence.contains("the key is one of test mode"),
                "{status:?}"
            );
        }
        let adapter = super::adapter(vendor.port, &format!("test_mode = false\n{secret}"));
        assert_eq!(super::ask(&adapter, "order-2").await.verdict, Verdict::Charged);
    }
    // A live key sees what is live.
    for (secret, expected) in [
        ("sk_live_idemctl51", Verdict::NotCharged),
        ("rk_test_1", Verdict::Unknown),
    ] {
        vendor.takes(secret);
        let adapter = super::adapter(vendor.port, &format!("test_mode = false\nsecret = {secret:?}"));
        assert_eq!(super::ask(&adapter, "nobody").await.verdict, expected, "{secret}");
    }
}
