//! Whom to trust when a provider is asked over TLS.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::config::wrong;
use crate::error::Result;

/// ring's cryptography, the system's certificates and those of `ca_file`.
pub(super) fn client(name: &str, ca_file: Option<&Path>, https: bool) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    if https {
        let system = rustls_native_certs::load_native_certs();
        // Stores of systems hold a broken certificate now and then; the others are still good.
        let _counts = roots.add_parsable_certificates(system.certs);
    }
    if let Some(path) = ca_file {
        let fail = |problem: String| wrong(name, "ca_file", format!("({}) {problem}", path.display()));
        let certificates =
            CertificateDer::pem_file_iter(path).map_err(|error| fail(format!("cannot be read: {error}")))?;
        let mut count = 0;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| fail(format!("cannot be read: {error}")))?;
            roots
                .add(certificate)
                .map_err(|error| fail(format!("has a certificate that cannot be used: {error}")))?;
            count += 1;
        }
        if count == 0 {
            return Err(fail("has no certificate in PEM form".to_owned()));
        }
    }
    if https && roots.is_empty() {
        return Err(wrong(
            name,
            "ca_file",
            "is not set, and the system has no certificates to trust",
        ));
    }
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(name, "url", format!("cannot be used: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
