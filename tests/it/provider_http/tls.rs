//! Certificates: the trusted one is taken, no other is.

use rustls::pki_types::PrivatePkcs8KeyDer;

use super::{Reply, Server, Verdict, adapter_at, ask, charged, reason};

struct Identity {
    pem: String,
    config: rustls::ServerConfig,
}

fn identity(host: &str) -> Identity {
    let made = rcgen::generate_simple_self_signed(vec![host.to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    Identity {
        pem: made.cert.pem(),
        config,
    }
}

async fn verdict_of(server: Server, trusted: &str) -> (super::ProviderStatus, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("ca.pem");
    std::fs::write(&ca_file, trusted).unwrap();
    let url = format!("https://localhost:{}/{{order_id}}", server.address.port());
    let adapter = adapter_at(&url, &format!("ca_file = '{}'", ca_file.display()));
    (ask(&adapter).await, server.requests())
}

#[tokio::test]
async fn only_a_trusted_certificate_for_the_right_host_is_taken() {
    let (good, other, elsewhere) = (
        identity("localhost"),
        identity("localhost"),
        identity("p.example"),
    );

    let server = Server::start_tls(vec![charged()], good.config.clone()).await;
    let (status, requests) = verdict_of(server, &good.pem).await;
    assert_eq!(status.verdict, Verdict::Charged, "{status:?}");
    assert!(requests[0].starts_with("GET /order-1 "), "{requests:?}");

    let server = Server::start_tls(vec![charged()], good.config).await;
    let (status, requests) = verdict_of(server, &other.pem).await;
    assert!(reason(&status).contains("certificate"), "{status:?}");
    assert!(
        requests.len() <= 1 && !requests.iter().any(|head| head.starts_with("GET")),
        "{requests:?}"
    );

    let server = Server::start_tls(vec![charged()], elsewhere.config).await;
    let (status, _) = verdict_of(server, &elsewhere.pem).await;
    assert!(reason(&status).contains("not valid for name"), "{status:?}");

    let server = Server::start(vec![Reply::Raw(b"HTTP/1.1 400 plain\r\n\r\n".to_vec())]).await;
    let (status, _) = verdict_of(server, &elsewhere.pem).await;
    assert!(reason(&status).contains("cannot be reached"), "{status:?}");
}
