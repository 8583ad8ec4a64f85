//! Who holds a lease, in a form that helps at 3 a.m.: host, process, and a nonce that differs after a restart
//! with the same process id.

use std::sync::LazyLock;

static OWNER: LazyLock<String> = LazyLock::new(|| {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host
        .trim()
        .chars()
        .filter(|c| !c.is_control())
        .take(100)
        .collect();
    let host = if host.is_empty() { "unknown-host" } else { &host };
    let nonce = &uuid::Uuid::new_v4().simple().to_string()[..8];
    format!("{host}:{}:{nonce}", std::process::id())
});

/// The same for the whole life of the process.
pub(crate) fn default_owner() -> String {
    OWNER.clone()
}
