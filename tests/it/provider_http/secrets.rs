//! Credentials and the way that they take.

use super::*;

#[tokio::test]
async fn headers_carry_secrets_that_are_read_at_each_question() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let server = Server::start(vec![charged()]).await;
    let more = format!(
        "headers = {{ Authorization = {{ prefix = \"Bearer \", file = {file:?} }}, X-Env = {{ env = \"ACME_KEY\" }}, X-Plain = \"s3cret-plain\" }}"
    );
    let adapter = adapter(&server, &more);
    let status = ask(&adapter).await;
    assert!(
        reason(&status).contains("authorization") && reason(&status).contains("cannot be read"),
        "{status:?}"
    );
    for (content, expected) in [
        ("s3cret-1\n", "Bearer s3cret-1"),
        ("s3cret-2\r\n", "Bearer s3cret-2"),
        ("a b", "Bearer a b"),
    ] {
        std::fs::write(&file, content).unwrap();
        assert_eq!(ask(&adapter).await.verdict, Verdict::Charged);
        let head = server.requests().pop().unwrap();
        for line in [
            &format!("authorization: {expected}\r\n"),
            "x-env: s3cret-from-env\r\n",
            "x-plain: s3cret-plain\r\n",
        ] {
            assert!(head.contains(line), "{head}");
        }
        assert!(head.contains("accept: application/json\r\n"), "{head}");
    }
    for (content, expected) in [
        ("", "is empty"),
        ("\n", "is empty"),
        ("s3cret\nline", "no header may have"),
    ] {
        std::fs::write(&file, content).unwrap();
        let status = ask(&adapter).await;
        assert!(reason(&status).contains(expected), "{status:?}");
        assert!(!format!("{status:?}{adapter:?}").contains("s3cret"));
    }
    assert!(!format!("{adapter:?} {:?}", read(&more)).contains("s3cret"));
    let server = Server::start(vec![Reply::status(401)]).await;
    let more = "headers = { Authorization = { env = \"ABSENT\" } }";
    assert!(reason(&ask(&self::adapter(&server, more)).await).contains("ABSENT is not set"));
}

#[tokio::test]
async fn a_secret_may_be_a_credential_of_systemd() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(vec![charged()]).await;
    let config = |headers: &str| {
        format!(
            "url = \"http://{}/{{order_id}}\"\nheaders = {headers}",
            server.address
        )
    };
    let build = |given: Option<String>| {
        let config = read(&config(
            "{ Authorization = { prefix = \"Bearer \", credential = \"acme\" } }",
        ));
        let env: idemctl::provider::EnvLookup =
            Arc::new(move |name| given.clone().filter(|_| name == "CREDENTIALS_DIRECTORY"));
        let surroundings = Surroundings {
            env,
            ..surroundings()
        };
        idemctl::provider::build("acme", &config, &surroundings).unwrap()
    };
    let nowhere = ask(&build(None)).await;
    assert!(
        reason(&nowhere).contains("CREDENTIALS_DIRECTORY is not set"),
        "{nowhere:?}"
    );
    let adapter = build(Some(directory.path().to_string_lossy().into_owned()));
    let status = ask(&adapter).await;
    assert!(reason(&status).contains("LoadCredential=acme:"), "{status:?}");
    std::fs::write(directory.path().join("acme"), "s3cret-1\n").unwrap();
    assert_eq!(ask(&adapter).await.verdict, Verdict::Charged);
    let head = server.requests().pop().unwrap();
    assert!(head.contains("authorization: Bearer s3cret-1\r\n"), "{head}");
    for (headers, word) in [
        ("{ A = { credential = \"x\", env = \"Y\" } }", "exactly one"),
        ("{ A = { prefix = \"x\" } }", "exactly one"),
        ("{ A = { credential = \"../x\" } }", "no name of a credential"),
    ] {
        let table: toml::Table = config(headers).parse().unwrap();
        let error = table.try_into::<ProviderConfig>().unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_is_used_when_the_caller_gives_one() {
    let proxy = Server::start(vec![charged()]).await;
    let config = read("url = \"http://provider.invalid/{order_id}\"\nallow_http = true");
    let address = idemctl::provider::secret::Redacted::new(format!("http://user:s3cret@{}", proxy.address));
    let through = Surroundings {
        proxy: idemctl::provider::Proxies::all(address.reveal().to_owned()),
        ..surroundings()
    };
    let adapter = build("acme", &config, &through).unwrap();
    assert_eq!(ask(&adapter).await.verdict, Verdict::Charged);
    assert_eq!(proxy.targets(), ["http://provider.invalid/order-1"]);
    assert!(
        !format!("{adapter:?}{through:?}").contains("s3cret"),
        "{adapter:?}"
    );
}
