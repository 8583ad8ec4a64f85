//! Which server certificates are accepted: libpq's rules (manual, "Client Verification of Server
//! Certificates") where the TLS library's own are stricter.
//!
//! The manual's recipes make certificates that the library refuses even where nothing is to be verified: of
//! version 1, and self-signed ones that are their own root.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_cert::Certificate;
use x509_cert::der::{Decode, Encode};

/// How much is checked.
#[derive(Debug)]
pub(super) enum Check {
    /// Only that the peer owns the key of the certificate that it shows.
    Nothing,
    /// That a known authority signed it, and for whom if `name`.
    Chain {
        chain: Arc<WebPkiServerVerifier>,
        trusted: Vec<CertificateDer<'static>>,
        name: bool,
    },
}

/// The verifier that is given to the TLS library.
#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) check: Check,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Check::Chain { chain, trusted, name } = &self.check else {
            return Ok(ServerCertVerified::assertion());
        };
        if trusted.iter().any(|known| known == end_entity) {
            // The very certificate that is trusted: its signer adds nothing, its dates and name do.
            check_dates(end_entity, now)?;
            if *name {
                rustls::client::verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The library looks at the name last, so everything else was in order.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match ParsedCertificate::try_from(cert) {
            Ok(_) => crypto::verify_tls12_signature(message, cert, dss, &self.algorithms),
            Err(_) => self.verify_with_bare_key(message, cert, dss),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if ParsedCertificate::try_from(cert).is_ok() {
            return crypto::verify_tls13_signature(message, cert, dss, &self.algorithms);
        }
        let key = bad_encoding(decode(cert)?.tbs_certificate.subject_public_key_info.to_der())?;
        let key = SubjectPublicKeyInfoDer::from(key.as_slice());
        crypto::verify_tls13_signature_with_raw_key(message, &key, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Verifier {
    /// TLS 1.2 with a certificate that the library cannot parse: the key is taken out by hand.
    fn verify_with_bare_key(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let certificate = decode(cert)?;
        let info = &certificate.tbs_certificate.subject_public_key_info;
        // The algorithm's identifier without the outer SEQUENCE header, as the library compares it.
        let mut algorithm = bad_encoding(info.algorithm.oid.to_der())?;
        if let Some(parameters) = &info.algorithm.parameters {
            algorithm.extend(bad_encoding(parameters.to_der())?);
        }
        let key = info.subject_public_key.raw_bytes();
        let valid = self
            .algorithms
            .mapping
            .iter()
            .filter(|(scheme, _)| *scheme == dss.scheme)
            .flat_map(|(_, algorithms)| algorithms.iter())
            .filter(|candidate| candidate.public_key_alg_id().as_ref() == algorithm)
            .any(|candidate| candidate.verify_signature(key, message, dss.signature()).is_ok());
        if valid {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }
}

fn decode(cert: &CertificateDer<'_>) -> Result<Certificate, Error> {
    bad_encoding(Certificate::from_der(cert))
}

fn bad_encoding<T, E>(result: Result<T, E>) -> Result<T, Error> {
    result.map_err(|_| CertificateError::BadEncoding.into())
}

fn check_dates(cert: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let validity = decode(cert)?.tbs_certificate.validity;
    let (from, to) = (
        validity.not_before.to_unix_duration(),
        validity.not_after.to_unix_duration(),
    );
    if now.as_secs() < from.as_secs() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now.as_secs() > to.as_secs() {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}
