//! What is wrong in the configuration is refused, and named.

use super::{BASICS, ProviderConfig, build, surroundings};

fn problem(change: &str) -> String {
    let mut table: toml::Table = BASICS.parse().unwrap();
    table.insert("url".to_owned(), "https://p.example/{order_id}".into());
    for (key, value) in change.parse::<toml::Table>().unwrap() {
        match value.as_str() {
            Some("-") => drop(table.remove(&key)),
            _ => drop(table.insert(key, value)),
        }
    }
    match table.try_into::<ProviderConfig>() {
        Err(error) => error.to_string(),
        #[expect(clippy::expect_used, reason = "a test helper may panic")]
        Ok(config) => build("acme", &config, &surroundings())
            .map(|_| ())
            .expect_err(change)
            .to_string(),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn each_error_names_its_key() {
    for (change, expected) in [
        ("url = '-'", "providers.acme.url is missing"),
        ("status = '-'", "providers.acme.status is missing"),
        ("verdicts = '-'", "providers.acme.verdicts is missing"),
        (
            "url = 'https://p.example/'",
            "providers.acme.url has no {order_id}",
        ),
        (
            "url = 'https://me:s3cret@p.example/{order_id}'",
            "providers.acme.url has a user or password",
        ),
        (
            "find = 'data'",
            "providers.acme.find is \"data\", a JSON Pointer that does not begin with /",
        ),
        ("match = '/a~b'", "providers.acme.match is"),
        (
            "verdicts = { authorized = ['a'] }",
            "providers.acme.verdicts.charged is empty",
        ),
        (
            "verdicts = { charged = ['a'], pending = ['a'] }",
            "providers.acme.verdicts.pending has the word \"a\", which already means charged",
        ),
        (
            "verdicts = { charged = [''] }",
            "providers.acme.verdicts.charged has an empty word",
        ),
        ("verdicts = { paid = ['a'] }", "unknown field `paid`"),
        ("timeout = '50ms'", "providers.acme.timeout is 50ms"),
        ("timeout = '6m'", "providers.acme.timeout is 6m"),
        ("timeout = '10'", "a number has no unit"),
        ("timeout = 10", "expected a string"),
        ("lag = '-1s'", "no whole number"),
        ("lga = '1s'", "unknown field `lga`"),
        ("kind = 'htpp'", "unknown variant `htpp`"),
        ("miss_status = [500]", "providers.acme.miss_status has 500"),
        ("miss_status = [404, 401]", "providers.acme.miss_status has 401"),
        ("headers = { 'a b' = 'x' }", "providers.acme.headers has \"a b\""),
        ("headers = { Host = 'x' }", "providers.acme.headers has host"),
        (
            "headers = { A = 's3cret', a = 's3cret' }",
            "providers.acme.headers has a twice",
        ),
        (
            "headers = { A = { prefix = 's3cret' } }",
            "exactly one of `file`, `credential` and `env`",
        ),
        (
            "headers = { A = { file = '/x', env = 'X' } }",
            "exactly one of `file`, `credential` and `env`",
        ),
        ("headers = { A = { fiel = '/x' } }", "unknown field `fiel`"),
        (
            "response = { status_code = 402, body = 1 }",
            "providers.acme.response.status_code is 402",
        ),
        (
            "response = { status_code = 204, body = 1 }",
            "providers.acme.response.status_code is 204",
        ),
        (
            "response = { status_code = 42, body = 1 }",
            "providers.acme.response.status_code is 42",
        ),
        (
            "response = { status_code = 201, body = { a = '{/id' } }",
            "providers.acme.response.body .a is \"{/id\"",
        ),
        (
            "ca_file = '/absent.pem'",
            "providers.acme.ca_file (/absent.pem) cannot be read",
        ),
        ("ca_file = '/dev/null'", "has no certificate"),
        ("proxy = 'http://[s3cret'", "providers.acme.proxy is no URL"),
        ("key_scheme = 'uuid'", "unknown variant `uuid`"),
    ] {
        let error = problem(change);
        assert!(error.contains(expected), "{change}: {error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[derive(Debug, serde::Deserialize)]
struct File {
    providers: std::collections::BTreeMap<String, ProviderConfig>,
}

#[test]
fn errors_of_the_reader_name_the_line() {
    let text =
        |more: &str| format!("[providers.acme]{BASICS}url = \"https://p.example/{{order_id}}\"\n{more}\n");
    let file = toml::from_str::<File>(&text(
        "response = { status_code = 201, body = { a = \"{/id}\" } }",
    ))
    .unwrap();
    assert!(build("acme", &file.providers["acme"], &surroundings()).is_ok());
    for (more, expected) in [
        ("lga = \"1s\"", "unknown field `lga`"),
        ("key_retention = \"1 s\"", "unknown unit"),
    ] {
        let error = toml::from_str::<File>(&text(more)).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
        let line = text(more).lines().count();
        assert!(error.to_string().contains(&format!("line {line}")), "{error}");
    }
    // JSON has no dates, and the reader of TOML would hand over a table of its own instead.
    let date = toml::from_str::<File>(&text(
        "response = { status_code = 201, body = { a = 2026-11-29 } }",
    ));
    let error = build("acme", &date.unwrap().providers["acme"], &surroundings()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("providers.acme.response.body .a is a date"),
        "{error}"
    );
}

#[test]
fn facts_are_what_is_configured() {
    let more = "url = 'https://p.example/{order_id}'\nkey_limit = 64\nkey_retention = '24h'\nreplays_errors = true\nkey_scheme = 'plain'";
    let facts = build("acme", &super::read(more), &surroundings())
        .unwrap()
        .facts()
        .clone();
    assert_eq!(
        (facts.kind, facts.key_limit, facts.replays_errors),
        ("http", Some(64), Some(true))
    );
    assert_eq!(facts.key_retention, Some(std::time::Duration::from_hours(24)));
    assert_eq!(facts.key_scheme, idemctl::provider_key::KeyScheme::Plain);
    assert_eq!(facts.timeout, std::time::Duration::from_secs(5));
    assert_eq!(
        facts.look_up,
        idemctl::provider::LookUp::Exact {
            lag: std::time::Duration::from_mins(1)
        }
    );
}
