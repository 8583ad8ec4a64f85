//! The journal's own protocol (systemd's "Native Journal Protocol"): a datagram of `NAME=value` lines, so that
//! `journalctl IDEMCTL_JOB=purge` finds what a line of text only says.
//!
//! `tracing-journald` would do this too, but leaves the values out of `MESSAGE`, which is what people read.

use std::fmt::Write as _;
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

use serde_json::Value;

use crate::render::printable;

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";

/// Sends one entry; `false` where nobody listens, the entry is too large or the queue is full: then the caller writes it
/// to stderr, which leads to the journal as well.
pub(super) fn send(priority: u8, text: &str, fields: &[(&'static str, Value)]) -> bool {
    static SENDER: OnceLock<Option<UnixDatagram>> = OnceLock::new();
    let sender = SENDER.get_or_init(|| {
        let sender = UnixDatagram::unbound().ok()?;
        sender.set_nonblocking(true).ok()?;
        Some(sender)
    });
    sender.as_ref().is_some_and(|sender| {
        sender
            .send_to(entry(priority, text, fields).as_bytes(), SOCKET)
            .is_ok()
    })
}

/// No value holds a line end: `printable` has escaped it, so that the short form of the protocol will do.
fn entry(priority: u8, text: &str, fields: &[(&'static str, Value)]) -> String {
    let mut entry = format!("SYSLOG_IDENTIFIER=idemctl\nPRIORITY={priority}\nMESSAGE={text}\n");
    for (name, value) in fields {
        let value = match value {
            Value::String(value) => printable(value),
            other => other.to_string(),
        };
        let name: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            })
            .collect();
        // Writing to a string does not fail.
        let _ = writeln!(entry, "IDEMCTL_{name}={value}");
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_bring_fields_of_its_own() {
        let fields = [
            ("job", Value::from("purge")),
            ("again_in.ms", Value::from("7\nPRIORITY=0")),
        ];
        let entry = entry(6, "run done job=purge", &fields);
        let lines: Vec<&str> = entry.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "SYSLOG_IDENTIFIER=idemctl",
                "PRIORITY=6",
                "MESSAGE=run done job=purge"
            ]
        );
        assert_eq!(lines[3], "IDEMCTL_JOB=purge");
        assert!(lines[4].starts_with("IDEMCTL_AGAIN_IN_MS=7\\"), "{entry}");
        assert_eq!(lines.len(), 5);
    }
}
