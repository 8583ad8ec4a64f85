//! Why a connection could not be had, and what to do about it.

use rustls::CertificateError;

use super::settings::{Endpoint, Roots, Settings, SslMode};
use crate::error::{chain, describe};

/// The driver's error as one line with its cause and the way out. It holds no password: neither the server
/// nor the driver repeats one.
pub(crate) fn explain(error: &tokio_postgres::Error, settings: &Settings, endpoint: &Endpoint) -> String {
    if let Some(db) = error.as_db_error() {
        let hint = database_hint(db.code().code(), db.message(), settings, endpoint);
        return format!("{}{hint}", describe(error));
    }
    if let Some(tls) = rustls_error(error) {
        return format!("TLS: {}", tls_text(tls, settings, endpoint));
    }
    let text = chain(error);
    if text.contains("password missing") {
        return format!(
            "the server asks for a password and none was given: set PGPASSWORD, or add a line to ~/.pgpass{}",
            notes(settings)
        );
    }
    if text.contains("does not support TLS") {
        return format!(
            "the server offers no TLS, which sslmode={} insists on",
            mode(settings)
        );
    }
    if text.contains("channel binding") {
        return format!(
            "{text}; channel_binding=require needs TLS and a scram-sha-256 password on the server"
        );
    }
    text
}

fn mode(settings: &Settings) -> &'static str {
    super::resolve::ssl_mode_name(settings.tls.mode)
}

fn notes(settings: &Settings) -> String {
    settings
        .notes
        .iter()
        .fold(String::new(), |text, note| text + "; " + note)
}

fn database_hint(code: &str, message: &str, settings: &Settings, endpoint: &Endpoint) -> String {
    let password = settings.entries.iter().find(|entry| entry.name == "password");
    let text = match code {
        "28P01" | "28000" if message.contains("password") => match password {
            Some(entry) => format!("check the password from the {}", entry.source),
            None => format!("no password was given{}", notes(settings)),
        },
        "28000" if message.contains("no encryption") && settings.tls.mode <= SslMode::Allow => {
            "the server wants TLS: set sslmode=require or verify-full".to_owned()
        }
        "28000" => format!(
            "check the user \"{}\" and the server's pg_hba.conf",
            settings.user
        ),
        "3D000" => format!("check dbname (\"{}\") with `psql -l`", settings.database),
        "53300" => "the server has no free connection slot".to_owned(),
        "08P01" if message.contains("startup parameter") => {
            format!("{endpoint} is a pooler that takes no options=; drop it, or connect to the server itself")
        }
        _ => return String::new(),
    };
    format!("; {text}")
}

/// The TLS library's error inside the driver's, if that is what it was.
fn rustls_error(error: &tokio_postgres::Error) -> Option<&rustls::Error> {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref::<rustls::Error>() {
            return Some(found);
        }
        // An I/O error hides what it wraps from `source`.
        let wrapped = inner
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        if let Some(found) = wrapped.and_then(|wrapped| wrapped.downcast_ref::<rustls::Error>()) {
            return Some(found);
        }
        cause = inner.source();
    }
    None
}

fn tls_text(error: &rustls::Error, settings: &Settings, endpoint: &Endpoint) -> String {
    let host = endpoint.host.as_deref().unwrap_or("the host");
    let trusted = match &settings.tls.roots {
        Roots::File { path, .. } => path.display().to_string(),
        Roots::System => "the system's store".to_owned(),
        Roots::None => "sslrootcert".to_owned(),
    };
    let remake = format!(
        "have it made anew with the name in it: openssl x509 -req ... -extfile <(echo subjectAltName=DNS:{host})"
    );
    let rustls::Error::InvalidCertificate(certificate) = error else {
        return error.to_string();
    };
    match certificate {
        CertificateError::UnknownIssuer => {
            format!("no authority in {trusted} signed the server's certificate; put its authority there")
        }
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!("the server's certificate names no host (a subject alone does not count); {remake}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "the server's certificate is for {}, not for {host}; connect by that name (with hostaddr= for the \
             address if need be), or {remake}",
            presented.join(", ")
        ),
        CertificateError::NotValidForName => format!("the server's certificate is not for {host}; {remake}"),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the server's certificate has expired ({error})")
        }
        other if other.to_string().contains("UnsupportedCertVersion") => {
            format!("the server's certificate is of X.509 version 1, which cannot be verified; {remake}")
        }
        _ => error.to_string(),
    }
}
