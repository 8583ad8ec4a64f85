//! From the merged texts to the values in force.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::ChannelBinding;

use super::endpoints::{endpoints, passwords};
use super::environment::Environment;
use super::merge::{Merged, Source, settings};
use super::params::PARAMS;
use super::settings::{Endpoint, Entry, Roots, Settings, SslMode, StatementMode, Target, Tcp, Timeouts, Tls};
use crate::error::Result;

pub(crate) fn resolve(dsn: Option<&str>, environment: &Environment) -> Result<Settings> {
    let merged = Merged::new(dsn, environment)?;
    let user = merged
        .value("user")
        .or(environment.user.as_deref())
        .map(str::to_owned);
    let user = user.ok_or_else(|| settings("no user is known; give user= or PGUSER"))?;
    let database = merged.value("dbname").unwrap_or(&user).to_owned();
    let mut hosts = endpoints(&merged)?;
    let passwords = passwords(&merged, environment, &mut hosts, &database, &user);
    let default_name = merged.value("fallback_application_name").unwrap_or("idemctl");
    let mut resolved = Settings {
        timeouts: timeouts(&merged)?,
        statements: StatementMode::default(),
        shuffle: choice(
            &merged,
            "load_balance_hosts",
            &[("disable", false), ("random", true)],
        )?
        .unwrap_or(false),
        options: merged.value("options").map(str::to_owned),
        application_name: merged
            .value("application_name")
            .unwrap_or(default_name)
            .to_owned(),
        channel_binding: channel_binding(&merged)?,
        target: target(&merged)?,
        tls: tls(&merged, environment)?,
        tcp: tcp(&merged)?,
        notes: passwords.notes,
        entries: Vec::new(),
        endpoints: hosts,
        user,
        database,
    };
    resolved.entries = entries(&merged, &resolved, passwords.source.as_ref());
    Ok(resolved)
}

/// One value out of a fixed list.
fn choice<T: Copy>(merged: &Merged, name: &'static str, allowed: &[(&str, T)]) -> Result<Option<T>> {
    let Some(value) = merged.value(name) else {
        return Ok(None);
    };
    if let Some((_, found)) = allowed.iter().find(|(text, _)| *text == value) {
        return Ok(Some(*found));
    }
    let texts: Vec<_> = allowed.iter().map(|(text, _)| *text).collect();
    Err(merged.wrong(name, &format!("one of {}", texts.join(", "))))
}

/// A whole number of this unit; `None` where nothing or 0 was given, which is libpq's "default".
fn number(merged: &Merged, name: &'static str) -> Result<Option<u32>> {
    let Some(value) = merged.value(name) else {
        return Ok(None);
    };
    let number: i32 = value
        .trim()
        .parse()
        .map_err(|_| merged.wrong(name, "a whole number"))?;
    Ok(u32::try_from(number).ok().filter(|number| *number > 0))
}

fn timeouts(merged: &Merged) -> Result<Timeouts> {
    let mut timeouts = Timeouts::default();
    if let Some(seconds) = number(merged, "connect_timeout")? {
        // libpq takes 1 for 2, because its clock may be about to turn; kept so that both wait equally long.
        timeouts.connect = Duration::from_secs(u64::from(seconds.max(2)));
    }
    Ok(timeouts)
}

fn tcp(merged: &Merged) -> Result<Tcp> {
    let seconds = |name, default: u32| -> Result<Duration> {
        Ok(Duration::from_secs(u64::from(
            number(merged, name)?.unwrap_or(default),
        )))
    };
    Ok(Tcp {
        // Zero is a meaning of its own here, not a wish for the default.
        keepalives: match merged.value("keepalives") {
            None => true,
            Some(text) => {
                text.trim()
                    .parse::<i32>()
                    .map_err(|_| merged.wrong("keepalives", "0 or 1"))?
                    != 0
            }
        },
        idle: seconds("keepalives_idle", 60)?,
        interval: seconds("keepalives_interval", 10)?,
        count: number(merged, "keepalives_count")?.unwrap_or(3),
        user_timeout: Duration::from_millis(u64::from(number(merged, "tcp_user_timeout")?.unwrap_or(30_000))),
    })
}

fn channel_binding(merged: &Merged) -> Result<ChannelBinding> {
    let allowed = [
        ("disable", ChannelBinding::Disable),
        ("prefer", ChannelBinding::Prefer),
        ("require", ChannelBinding::Require),
    ];
    Ok(choice(merged, "channel_binding", &allowed)?.unwrap_or(ChannelBinding::Prefer))
}

fn target(merged: &Merged) -> Result<Target> {
    let allowed = [
        ("any", Target::Any),
        ("read-write", Target::ReadWrite),
        ("read-only", Target::ReadOnly),
        ("primary", Target::Primary),
        ("standby", Target::Standby),
        ("prefer-standby", Target::PreferStandby),
    ];
    Ok(choice(merged, "target_session_attrs", &allowed)?.unwrap_or(Target::Any))
}

fn ssl_mode(merged: &Merged, system: bool) -> Result<SslMode> {
    let allowed = [
        ("disable", SslMode::Disable),
        ("allow", SslMode::Allow),
        ("prefer", SslMode::Prefer),
        ("require", SslMode::Require),
        ("verify-ca", SslMode::VerifyCa),
        ("verify-full", SslMode::VerifyFull),
    ];
    let asked = match choice(merged, "sslmode", &allowed)? {
        None if merged.value("requiressl") == Some("1") => Some(SslMode::Require),
        other => other,
    };
    // Anybody can get a certificate from a public authority, so only the name says who it is.
    match asked {
        Some(mode) if system && mode < SslMode::VerifyFull => {
            Err(merged.wrong("sslmode", "verify-full, which sslrootcert=system needs"))
        }
        Some(mode) => Ok(mode),
        None if system => Ok(SslMode::VerifyFull),
        None => Ok(SslMode::Prefer),
    }
}

fn tls(merged: &Merged, environment: &Environment) -> Result<Tls> {
    let own = |name: &str| {
        environment
            .home
            .as_ref()
            .map(|home| home.join(".postgresql").join(name))
    };
    let roots = match merged.value("sslrootcert") {
        Some("system") => Roots::System,
        Some(path) => Roots::File {
            path: path.into(),
            required: true,
        },
        None => own("root.crt").map_or(Roots::None, |path| Roots::File {
            path,
            required: false,
        }),
    };
    let mode = ssl_mode(merged, matches!(roots, Roots::System))?;
    let direct = choice(merged, "sslnegotiation", &[("postgres", false), ("direct", true)])?.unwrap_or(false);
    if direct && mode < SslMode::Require {
        return Err(settings(
            "sslnegotiation=direct needs sslmode=require, verify-ca or verify-full",
        ));
    }
    let revoked = match merged.value("sslcrl") {
        Some(path) => Some(path.into()),
        None => own("root.crl").filter(|path| path.exists()),
    };
    let versions: [(&str, u8); 4] = [("TLSv1", 10), ("TLSv1.1", 11), ("TLSv1.2", 12), ("TLSv1.3", 13)];
    let least = choice(merged, "ssl_min_protocol_version", &versions)?.unwrap_or(12);
    let most = choice(merged, "ssl_max_protocol_version", &versions)?.unwrap_or(13);
    if most < 12 || least > most {
        return Err(merged.wrong(
            "ssl_max_protocol_version",
            "TLSv1.2 or TLSv1.3, and not below the minimum",
        ));
    }
    Ok(Tls {
        mode,
        direct,
        roots,
        revoked,
        client: client_certificate(merged, own("postgresql.crt"), own("postgresql.key"))?,
        server_name: choice(merged, "sslsni", &[("0", false), ("1", true)])?.unwrap_or(true),
        least_version: least,
        most_version: most,
    })
}

fn client_certificate(
    merged: &Merged,
    own_certificate: Option<PathBuf>,
    own_key: Option<PathBuf>,
) -> Result<Option<(PathBuf, PathBuf)>> {
    if merged.value("sslcertmode") == Some("disable") {
        return Ok(None);
    }
    let certificate = match merged.value("sslcert") {
        Some(path) => Some(PathBuf::from(path)),
        None => own_certificate.filter(|path| path.exists()),
    };
    let key = merged.value("sslkey").map(PathBuf::from).or(own_key);
    match (certificate, key) {
        (Some(certificate), Some(key)) => Ok(Some((certificate, key))),
        (Some(_), None) => Err(settings("sslcert is given but no sslkey")),
        (None, _) => Ok(None),
    }
}

/// What is in force, in the list's order: everything that was given, and the defaults worth knowing.
fn entries(merged: &Merged, resolved: &Settings, password: Option<&Source>) -> Vec<Entry> {
    let join = |text: &dyn Fn(&Endpoint) -> Option<String>| -> Option<String> {
        let texts: Vec<_> = resolved.endpoints.iter().filter_map(text).collect();
        (!texts.is_empty()).then(|| texts.join(","))
    };
    let entry = |name: &'static str| -> Option<Entry> {
        let value = match name {
            "host" => join(&|endpoint| endpoint.host.clone()),
            "port" => join(&|endpoint| Some(endpoint.port.to_string())),
            "dbname" => Some(resolved.database.clone()),
            "user" => Some(resolved.user.clone()),
            "password" => password.map(|_| "***".to_owned()),
            "sslmode" => Some(ssl_mode_name(resolved.tls.mode).to_owned()),
            "application_name" => Some(resolved.application_name.clone()),
            "connect_timeout" => Some(resolved.timeouts.connect.as_secs().to_string()),
            _ => merged.value(name).map(str::to_owned),
        };
        let source = match name {
            "password" => password.cloned(),
            _ => merged.get(name).map(|given| given.source.clone()),
        };
        Some(Entry {
            name,
            value: value?,
            source: source.unwrap_or(Source::Default),
        })
    };
    PARAMS.iter().filter_map(|param| entry(param.name)).collect()
}

pub(crate) fn ssl_mode_name(mode: SslMode) -> &'static str {
    match mode {
        SslMode::Disable => "disable",
        SslMode::Allow => "allow",
        SslMode::Prefer => "prefer",
        SslMode::Require => "require",
        SslMode::VerifyCa => "verify-ca",
        SslMode::VerifyFull => "verify-full",
    }
}
