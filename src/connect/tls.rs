//! TLS as `sslmode` and its companions ask for it.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::merge::settings;
use super::resolve::ssl_mode_name;
use super::settings::{Roots, SslMode, Tls};
use super::socket::Socket;
use super::verifier::{Check, Verifier};
use crate::error::{Result, chain};

type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;

/// Makes connectors; one per opening of a connection, since the files may have changed in between.
#[derive(Clone)]
pub(crate) struct Maker(MakeRustlsConnect);

impl Maker {
    /// Reads the files and builds the TLS library's configuration.
    pub(crate) fn new(tls: &Tls) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let verifier = Verifier {
            check: check(tls, &provider)?,
            algorithms: provider.signature_verification_algorithms,
        };
        let mut versions = Vec::new();
        if tls.most_version >= 13 {
            versions.push(&rustls::version::TLS13);
        }
        if tls.least_version <= 12 {
            versions.push(&rustls::version::TLS12);
        }
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .map_err(|error| settings(format!("TLS versions: {error}")))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &tls.client {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let own = client_certificate(&provider, certificate, key)?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
        };
        config.enable_sni = tls.server_name;
        if tls.direct {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        Ok(Self(MakeRustlsConnect::new(config)))
    }

    /// A connector for one connection. `name`: what the certificate must be made out to.
    pub(crate) fn connector(&self, name: &str, progress: &Progress) -> Connector {
        Connector {
            maker: self.clone(),
            name: name.to_owned(),
            progress: progress.clone(),
        }
    }
}

/// The name to verify: the host's if it can stand in a certificate, else the address.
pub(crate) fn server_name(host: Option<&str>, address: Option<std::net::IpAddr>) -> String {
    match (host, address) {
        (Some(host), Some(address)) if ServerName::try_from(host).is_err() => address.to_string(),
        (Some(host), _) => host.to_owned(),
        (None, Some(address)) => address.to_string(),
        (None, None) => String::new(),
    }
}

/// How far the TLS handshake of one connection came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<AtomicU8>);

impl Progress {
    /// Whether the server agreed to TLS, so that a handshake was begun.
    pub(crate) fn begun(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    /// Whether the handshake succeeded.
    pub(crate) fn done(&self) -> bool {
        self.0.load(Ordering::Acquire) > 1
    }
}

/// Does the handshake of one connection.
#[derive(Clone)]
pub(crate) struct Connector {
    maker: Maker,
    name: String,
    progress: Progress,
}

impl TlsConnect<Socket> for Connector {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(mut self, stream: Socket) -> Self::Future {
        self.progress.0.store(1, Ordering::Release);
        Box::pin(async move {
            // Making one cannot fail: the error type has no value.
            let Ok(connector) = MakeTlsConnect::<Socket>::make_tls_connect(&mut self.maker.0, &self.name);
            let stream = connector.connect(stream).await?;
            self.progress.0.store(2, Ordering::Release);
            Ok(stream)
        })
    }
}

/// What is checked: with a root file at hand even `require` checks the signer, as the manual says.
fn check(tls: &Tls, provider: &Arc<CryptoProvider>) -> Result<Check> {
    let trusted = match &tls.roots {
        Roots::System => system_roots()?,
        Roots::File { path, required } if *required || path.exists() => {
            match certificates(path, "sslrootcert") {
                Ok(found) => found,
                // libpq goes on without a file that is not there as long as nothing needs it.
                Err(_) if tls.mode <= SslMode::Require && !path.exists() => return Ok(Check::Nothing),
                Err(error) => return Err(error),
            }
        }
        _ if tls.mode <= SslMode::Require => return Ok(Check::Nothing),
        _ => {
            return Err(settings(format!(
                "sslmode={} needs the authority's certificate: give sslrootcert=FILE, or sslrootcert=system",
                ssl_mode_name(tls.mode)
            )));
        }
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(trusted.iter().cloned());
    if added == 0 {
        return Err(settings("none of the trusted root certificates can be read"));
    }
    let mut builder = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if let Some(path) = &tls.revoked {
        builder = builder.with_crls(revocations(path)?);
    }
    let chain = builder
        .build()
        .map_err(|error| settings(format!("the trusted certificates: {error}")))?;
    // Whoever is in the system's store may sign for any name, so its entries are no servers themselves.
    let trusted = if matches!(tls.roots, Roots::System) {
        Vec::new()
    } else {
        trusted
    };
    Ok(Check::Chain {
        chain,
        trusted,
        name: tls.mode == SslMode::VerifyFull,
    })
}

fn system_roots() -> Result<Vec<CertificateDer<'static>>> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        return Err(settings(format!(
            "sslrootcert=system: no certificates found; install the system's package of them (ca-certificates) {}",
            why.join(", ")
        )));
    }
    Ok(found.certs)
}

fn certificates(path: &Path, parameter: &str) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |why: String| settings(format!("{parameter} {}: {why}", path.display()));
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(chain(&error)))?;
    if found.is_empty() {
        Err(wrong("no certificate in PEM form".to_owned()))
    } else {
        Ok(found)
    }
}

/// Our own certificate with its key. The library cannot tell whether they belong together if the certificate
/// is of version 1, as the manual's recipe makes them; then the server finds out.
fn client_certificate(provider: &CryptoProvider, certificate: &Path, key: &Path) -> Result<CertifiedKey> {
    let chain = certificates(certificate, "sslcert")?;
    let signing = provider
        .key_provider
        .load_private_key(private_key(key)?)
        .map_err(|error| settings(format!("sslkey {}: {error}", key.display())))?;
    let own = CertifiedKey::new(chain, signing);
    if let Err(error @ rustls::Error::InconsistentKeys(_)) = own.keys_match() {
        return Err(settings(format!(
            "sslkey {} does not belong to sslcert {}: {error}",
            key.display(),
            certificate.display()
        )));
    }
    Ok(own)
}

fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>> {
    CertificateRevocationListDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| settings(format!("sslcrl {}: {}", path.display(), chain(&error))))
}

/// The client's key. As in libpq, a file that others may read is refused (manual, "Client Certificates").
fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    let wrong = |why: String| settings(format!("sslkey {}: {why}", path.display()));
    let metadata = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // A key that belongs to root may be readable by its group.
        let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
        if metadata.mode() & forbidden != 0 {
            let mode = metadata.mode() & 0o777;
            return Err(wrong(format!(
                "its permissions are {mode:04o}; run `chmod 600` on it"
            )));
        }
    }
    PrivateKeyDer::from_pem_file(path)
        .map_err(|error| wrong(format!("{} (encrypted keys are not supported)", chain(&error))))
}
