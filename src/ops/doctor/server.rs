//! The way to the server, and the server itself.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Check;
use crate::connect::{Connection, Encryption, Route, Settings, SslMode, StatementMode};
use crate::error::{Error, Result};
use crate::store::doctor::{self, Server};

/// Versions of PostgreSQL that the tests run on.
const TESTED: std::ops::RangeInclusive<i32> = 13..=18;

/// A client's clock may be off by so much before it is worth a word.
const MOST_SKEW: f64 = 5.0;

/// How often the clocks are compared; the shortest round trip counts.
const CLOCK_LOOKS: u32 = 5;

/// TLS and pooler.
pub(super) async fn way(settings: &Settings, conn: &mut Connection) -> Vec<Check> {
    vec![tls(settings, conn), pooler(settings, conn).await]
}

fn tls(settings: &Settings, conn: &Connection) -> Check {
    let check = Check::of(
        "tls",
        "TLS with a checked certificate, or nothing that leaves this machine",
    );
    let facts = conn.facts();
    let mend = "sslmode=verify-full in the database URL (sslrootcert=FILE for an authority of your own)";
    match &facts.encryption {
        Encryption::Local => check.ok("a local socket"),
        Encryption::Tls => {
            let checked = match settings.tls.mode {
                SslMode::VerifyFull => return check.ok("TLS; certificate and host name are checked"),
                SslMode::VerifyCa => return check.ok("TLS; the certificate's signer is checked"),
                SslMode::Require => settings.tls.checks_signer(),
                SslMode::Disable | SslMode::Allow | SslMode::Prefer => false,
            };
            if checked {
                check.ok("TLS; the certificate's signer is checked")
            } else {
                check.warning("TLS, but nobody checks whose certificate it is", mend)
            }
        }
        Encryption::Plain { why } => {
            let loopback = facts
                .address
                .parse::<SocketAddr>()
                .is_ok_and(|address| address.ip().to_canonical().is_loopback());
            if loopback {
                return check.ok("no TLS, over the loopback interface");
            }
            let why = why.as_deref().map_or(String::new(), |why| format!(" ({why})"));
            check.warning(format!("no TLS to {}{why}", facts.address), mend)
        }
    }
}

pub(in crate::ops) async fn pooler(settings: &Settings, conn: &mut Connection) -> Check {
    let check = Check::of(
        "pooler",
        "a direct connection, or a pooler in transaction or session mode with unnamed statements",
    );
    let Route::Unproven { seen } = conn.facts().route.clone() else {
        return check.ok("none: the peer is the server itself");
    };
    let mode = match mode(settings, conn).await {
        Ok(Some(mode)) => mode,
        Ok(None) => "which mode cannot be told (session, or nobody shared a server connection just now)",
        Err(error) if error.needs_reconnect() && !conn.is_closed() => {
            return check.unknown(error.to_string());
        }
        Err(error) => {
            return check.error(
                format!("{seen}; no transaction can be begun (statement mode?): {error}"),
                "pool_mode = transaction in PgBouncer's configuration",
            );
        }
    };
    let found = format!("not proven direct ({seen}); {mode}");
    if settings.statements == StatementMode::Prepared {
        return check.warning(
            format!("{found}; prepared statements are forced, and most poolers mix them up"),
            "[database] statements = \"auto\" in the configuration (unless the pooler tracks prepared statements: PgBouncer \
             1.21 with max_prepared_statements)",
        );
    }
    check.ok(format!("{found}; statements are sent unnamed"))
}

/// Two connections that meet the same server process one after the other share it.
async fn mode(settings: &Settings, conn: &mut Connection) -> Result<Option<&'static str>> {
    for _ in 0..3 {
        let tx = conn.begin().await?;
        let first = doctor::backend(&tx).await?;
        tx.commit().await?;
        let other = Connection::open(settings).await?;
        let second = doctor::backend(&other).await;
        other.close().await;
        if second? == first {
            return Ok(Some(
                "transaction mode: two connections met the same server process",
            ));
        }
    }
    Ok(None)
}

/// Version, read-write, durability, encoding, clock, search path.
pub(super) async fn server(conn: &Connection, schema: Option<&str>) -> Vec<Check> {
    let server = doctor::server(conn).await;
    vec![
        version(conn),
        read_write(conn),
        durability(server.as_ref()),
        encoding(server.as_ref()),
        clock(conn).await,
        search_path(server.as_ref(), schema),
    ]
}

fn version(conn: &Connection) -> Check {
    let check = Check::of("server_version", "PostgreSQL 13 to 18");
    let facts = conn.facts();
    let found = format!("PostgreSQL {}", facts.server_version);
    let major = facts.server_version_number / 10_000;
    if TESTED.contains(&major) {
        check.ok(found)
    } else if major < *TESTED.start() {
        check.error(format!("{found}, which is too old"), "upgrade the server")
    } else {
        check.warning(
            format!("{found}, on which this version was not tested"),
            "a later idemctl, or run its tests on that version (IDEMCTL_TEST_PG_BINDIR=DIR tests/run)",
        )
    }
}

fn read_write(conn: &Connection) -> Check {
    let check = Check::of("read_write", "a primary that takes writes");
    let facts = conn.facts();
    if facts.in_recovery {
        check.error(
            format!("{} is a standby", facts.address),
            "target_session_attrs=read-write and every host in the database URL",
        )
    } else if facts.read_only {
        check.error(
            "transactions are read-only (default_transaction_read_only)",
            format!(
                "alter role {} reset default_transaction_read_only; or the same for the database; or in postgresql.conf",
                crate::store::quote_ident(&facts.user)
            ),
        )
    } else {
        check.ok("read-write")
    }
}

/// PostgreSQL manual, section "Write Ahead Log" of "Server Configuration": what each of these may lose in a crash.
fn durability(server: Result<&Server, &Error>) -> Check {
    let check = Check::of("durability", "fsync, full_page_writes and synchronous_commit on");
    let server = match server {
        Ok(server) => server,
        Err(error) => return check.unknown(error.to_string()),
    };
    if !server.fsync || !server.full_page_writes {
        let name = if server.fsync { "full_page_writes" } else { "fsync" };
        return check.error(
            format!("{name} is off: a crash of the machine can destroy the database"),
            format!("alter system set {name} = on; select pg_reload_conf()"),
        );
    }
    if server.synchronous_commit == "off" {
        return check.error(
            "synchronous_commit is off: a claim that was answered can be gone after a crash, and its repeat charges again",
            "alter role ... set synchronous_commit = on for the services' role (or the database, or the server)",
        );
    }
    check.ok(format!("on (synchronous_commit {})", server.synchronous_commit))
}

fn encoding(server: Result<&Server, &Error>) -> Check {
    let check = Check::of("encoding", "UTF8");
    match server {
        Ok(server) if server.encoding == "UTF8" => check.ok("UTF8"),
        Ok(server) => check.warning(
            format!(
                "{}: keys and bodies outside of it are refused or changed",
                server.encoding
            ),
            "a database created with encoding 'UTF8' (dump and restore)",
        ),
        Err(error) => check.unknown(error.to_string()),
    }
}

/// The client's clock decides about no row, but about the schedules of a janitor on this machine, and what its logs
/// say.
pub(in crate::ops) async fn clock(conn: &Connection) -> Check {
    let check = Check::of(
        "clock",
        format!("this machine's clock within {MOST_SKEW} s of the server's"),
    );
    let mut best: Option<(Duration, f64)> = None;
    for _ in 0..CLOCK_LOOKS {
        let started = Instant::now();
        let theirs = match doctor::clock(conn).await {
            Ok(theirs) => theirs,
            Err(error) => return check.unknown(error.to_string()),
        };
        let trip = started.elapsed();
        let Some(skew) = ahead(theirs, trip) else {
            return check.unknown("one of the clocks is out of every range");
        };
        if best.is_none_or(|(shortest, _)| trip < shortest) {
            best = Some((trip, skew));
        }
    }
    let Some((trip, skew)) = best else {
        return check.unknown("the clocks were not compared");
    };
    let error_bar = trip.as_secs_f64() / 2.0;
    let side = if skew < 0.0 { "behind" } else { "ahead of" };
    let found = format!("{:.3} s {side} the server's (± {error_bar:.3} s)", skew.abs());
    if skew.abs() - error_bar > MOST_SKEW {
        check.warning(
            found,
            "synchronise the clocks of this machine and the server (chrony, systemd-timesyncd)",
        )
    } else {
        check.ok(found)
    }
}

/// By how many seconds our clock is ahead of the server's, which was read in the middle of the trip that just ended.
#[expect(
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "the process's clock is what is examined here; the difference is small or said to be large"
)]
fn ahead(theirs: crate::time::Timestamp, trip: Duration) -> Option<f64> {
    let ours = chrono::Utc::now().timestamp_micros();
    let theirs = theirs.to_utc()?.timestamp_micros();
    Some((ours.checked_sub(theirs)?) as f64 / 1e6 - trip.as_secs_f64() / 2.0)
}

/// Two tables of one name: which one is meant depends on who asks.
fn search_path(server: Result<&Server, &Error>, schema: Option<&str>) -> Check {
    let check = Check::of("search_path", "one schema with the table, or its name given");
    match (schema, server) {
        (Some(schema), _) => check.ok(format!("schema {schema} was named")),
        (None, Err(error)) => check.unknown(error.to_string()),
        (None, Ok(server)) if server.schemas.len() > 1 => check.warning(
            format!(
                "schemas {} each have a table idempotency",
                server.schemas.join(", ")
            ),
            "[database] schema = \"...\" in the configuration (or --schema)",
        ),
        (None, Ok(server)) => check.ok(match server.schemas.first() {
            Some(schema) => format!("schema {schema}"),
            None => "no schema of the search path has the table".to_owned(),
        }),
    }
}
