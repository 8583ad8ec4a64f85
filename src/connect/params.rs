//! What libpq knows: every connection parameter, its environment variable, and what is done with it here.
//!
//! Source: PostgreSQL manual, chapters "Parameter Key Words" and "Environment Variables" of libpq, up to 18.

/// One parameter of libpq.
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) variable: Option<&'static str>,
    rule: Rule,
}

/// What a value of the parameter means here.
enum Rule {
    /// It is read.
    Used,
    /// It has no meaning here, whatever it says.
    Ignored,
    /// These values change nothing; any other cannot be honoured.
    Only(&'static [&'static str], &'static str),
    /// Only its absence can be honoured.
    Refused(&'static str),
}

use Rule::{Ignored, Only, Refused, Used};

const fn param(name: &'static str, variable: Option<&'static str>, rule: Rule) -> Param {
    Param { name, variable, rule }
}

const GSS: &str = "GSSAPI is not supported; use gssencmode=prefer or disable";
const OFF: &[&str] = &["0", "off", "false", "no"];

/// In the order in which `config` shows them.
pub(crate) static PARAMS: &[Param] = &[
    param("service", Some("PGSERVICE"), Used),
    param("servicefile", Some("PGSERVICEFILE"), Used),
    param("host", Some("PGHOST"), Used),
    param("hostaddr", Some("PGHOSTADDR"), Used),
    param("port", Some("PGPORT"), Used),
    param("dbname", Some("PGDATABASE"), Used),
    param("user", Some("PGUSER"), Used),
    param("password", Some("PGPASSWORD"), Used),
    param("passfile", Some("PGPASSFILE"), Used),
    param("sslmode", Some("PGSSLMODE"), Used),
    param("sslnegotiation", Some("PGSSLNEGOTIATION"), Used),
    param("sslrootcert", Some("PGSSLROOTCERT"), Used),
    param("sslcert", Some("PGSSLCERT"), Used),
    param("sslkey", Some("PGSSLKEY"), Used),
    param("sslcrl", Some("PGSSLCRL"), Used),
    param("sslsni", Some("PGSSLSNI"), Used),
    param(
        "sslcertmode",
        Some("PGSSLCERTMODE"),
        Only(&["allow", "disable"], "use allow or disable"),
    ),
    param("ssl_min_protocol_version", Some("PGSSLMINPROTOCOLVERSION"), Used),
    param("ssl_max_protocol_version", Some("PGSSLMAXPROTOCOLVERSION"), Used),
    param("channel_binding", Some("PGCHANNELBINDING"), Used),
    param("target_session_attrs", Some("PGTARGETSESSIONATTRS"), Used),
    param("load_balance_hosts", Some("PGLOADBALANCEHOSTS"), Used),
    param("connect_timeout", Some("PGCONNECT_TIMEOUT"), Used),
    param("application_name", Some("PGAPPNAME"), Used),
    param("fallback_application_name", None, Used),
    param("options", Some("PGOPTIONS"), Used),
    param("tcp_user_timeout", None, Used),
    param("keepalives", None, Used),
    param("keepalives_idle", None, Used),
    param("keepalives_interval", None, Used),
    param("keepalives_count", None, Used),
    param(
        "client_encoding",
        Some("PGCLIENTENCODING"),
        Only(
            &["auto", "utf8", "utf-8", "unicode"],
            "texts are always UTF-8 here; use UTF8",
        ),
    ),
    param(
        "gssencmode",
        Some("PGGSSENCMODE"),
        Only(&["disable", "prefer"], GSS),
    ),
    param("krbsrvname", Some("PGKRBSRVNAME"), Ignored),
    param("gsslib", Some("PGGSSLIB"), Ignored),
    param("gssdelegation", Some("PGGSSDELEGATION"), Only(OFF, GSS)),
    param("sslcompression", Some("PGSSLCOMPRESSION"), Ignored),
    param("requiressl", Some("PGREQUIRESSL"), Used),
    param(
        "sslpassword",
        None,
        Refused("encrypted client keys are not supported; decrypt the key file"),
    ),
    param(
        "sslcrldir",
        Some("PGSSLCRLDIR"),
        Refused("put the lists into one file and name it with sslcrl"),
    ),
    param(
        "sslkeylogfile",
        None,
        Refused("session keys are never written out"),
    ),
    param(
        "requirepeer",
        Some("PGREQUIREPEER"),
        Refused("the server's OS user is not checked; use TLS"),
    ),
    param(
        "require_auth",
        Some("PGREQUIREAUTH"),
        Refused("use channel_binding=require to insist on SCRAM"),
    ),
    param(
        "min_protocol_version",
        Some("PGMINPROTOCOLVERSION"),
        Only(&["3.0"], "protocol 3.0 is spoken"),
    ),
    param("max_protocol_version", Some("PGMAXPROTOCOLVERSION"), Ignored),
    param(
        "replication",
        None,
        Only(OFF, "replication connections run no statements of ours"),
    ),
    param("scram_client_key", None, Refused("give the password instead")),
    param("scram_server_key", None, Refused("give the password instead")),
    param("oauth_issuer", None, Refused("OAuth is not supported")),
    param("oauth_client_id", None, Refused("OAuth is not supported")),
    param("oauth_client_secret", None, Refused("OAuth is not supported")),
    param("oauth_scope", None, Refused("OAuth is not supported")),
];

/// The parameter of this name; names are case-sensitive, as in libpq.
pub(crate) fn find(name: &str) -> Option<&'static Param> {
    PARAMS.iter().find(|param| param.name == name)
}

impl Param {
    /// Whether the value must never be shown.
    pub(crate) fn is_secret(&self) -> bool {
        matches!(
            self.name,
            "password" | "sslpassword" | "oauth_client_secret" | "scram_client_key"
        )
    }

    /// Whether this value can be honoured; the error says why not.
    pub(crate) fn check(&self, value: &str) -> Result<(), String> {
        let reason = match self.rule {
            Only(allowed, reason) if !allowed.contains(&value.to_ascii_lowercase().as_str()) => reason,
            Refused(reason) => reason,
            Used | Ignored | Only(..) => return Ok(()),
        };
        if value.is_empty() {
            return Ok(());
        }
        let shown = if self.is_secret() { "…" } else { value };
        Err(format!(
            "{}={} cannot be honoured: {reason}",
            self.name,
            shown.escape_debug()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        let check = |name: &str, value: &str| find(name).unwrap().check(value);
        assert!(check("gssencmode", "prefer").is_ok());
        assert!(
            check("gssencmode", "require")
                .unwrap_err()
                .contains("gssencmode=require")
        );
        assert!(check("client_encoding", "UTF8").is_ok());
        assert!(check("client_encoding", "LATIN1").is_err());
        assert!(check("krbsrvname", "postgres").is_ok());
        assert!(check("require_auth", "").is_ok());
        assert!(!check("sslpassword", "secret").unwrap_err().contains("secret"));
        assert!(find("sslmod").is_none());
    }

    #[test]
    fn names_and_variables_are_unique() {
        for (index, param) in PARAMS.iter().enumerate() {
            assert!(PARAMS[index + 1..].iter().all(|other| other.name != param.name));
            assert!(
                param.variable.is_none()
                    || PARAMS[index + 1..]
                        .iter()
                        .all(|other| other.variable != param.variable)
            );
        }
    }
}
