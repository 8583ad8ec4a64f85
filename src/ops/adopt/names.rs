//! Which of their columns is meant for which of ours, by name.

use crate::error::{Error, Result};
use crate::store::adopt::Column;

/// One of our columns, or what ours can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    /// Our column; `locked_at` is the beginning of what `locked_until` is the end of.
    pub(super) name: &'static str,
    /// What others call it, the likeliest first.
    aliases: &'static [&'static str],
}

const fn target(name: &'static str, aliases: &'static [&'static str]) -> Target {
    Target { name, aliases }
}

/// In the order in which they choose.
pub(super) const TARGETS: [Target; 17] = [
    target(
        "client_id",
        &[
            "client_id",
            "client",
            "tenant_id",
            "tenant",
            "merchant_id",
            "merchant",
            "account_id",
            "account",
            "organization_id",
            "shop_id",
            "customer_id",
            "user_id",
            "api_key_id",
            "scope",
        ],
    ),
    target(
        "key",
        &[
            "key",
            "idempotency_key",
            "idem_key",
            "idempotency_token",
            "request_key",
            "request_id",
            "message_id",
        ],
    ),
    target(
        "fingerprint",
        &[
            "fingerprint",
            "request_fingerprint",
            "request_hash",
            "body_hash",
            "payload_hash",
            "params_hash",
            "request_digest",
            "request_checksum",
            "hash",
            "request_params",
            "request_body",
            "request_payload",
        ],
    ),
    target("status", &["status", "state", "recovery_point", "phase"]),
    target(
        "locked_until",
        &[
            "locked_until",
            "lease_until",
            "lease_expires_at",
            "lock_expires_at",
            "locked_till",
        ],
    ),
    target(
        "locked_at",
        &["locked_at", "claimed_at", "lock_acquired_at", "started_at"],
    ),
    target(
        "status_code",
        &[
            "status_code",
            "response_code",
            "response_status",
            "http_status",
            "response_status_code",
        ],
    ),
    target(
        "response",
        &["response", "response_body", "response_json", "body", "result"],
    ),
    target(
        "created_at",
        &["created_at", "inserted_at", "created_on", "created"],
    ),
    target(
        "completed_at",
        &[
            "completed_at",
            "finished_at",
            "succeeded_at",
            "processed_at",
            "done_at",
        ],
    ),
    target("attempt", &["attempt", "attempts", "attempt_count"]),
    target("owner", &["owner", "locked_by", "worker_id"]),
    target("operation", &["operation"]),
    target("provider", &["provider"]),
    target("order_id", &["order_id"]),
    target("response_headers", &["response_headers"]),
    target("last_error", &["last_error", "error_message", "error"]),
];

/// Which column each target took.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    taken: Vec<(&'static str, &'a Column)>,
    left_out: Vec<&'a Column>,
    columns: &'a [Column],
}

impl<'a> Chosen<'a> {
    /// What was said (`theirs`, `ours`; `-` leaves a column out), then by name.
    pub(super) fn new(columns: &'a [Column], said: &[(String, String)]) -> Result<Self> {
        let mut chosen = Self {
            taken: Vec::new(),
            left_out: Vec::new(),
            columns,
        };
        for (theirs, ours) in said {
            let column = columns
                .iter()
                .find(|column| column.name == *theirs)
                .ok_or_else(|| {
                    invalid(format!(
                        "names the column {theirs}, which the table does not have"
                    ))
                })?;
            if ours == "-" {
                chosen.left_out.push(column);
                continue;
            }
            let target = TARGETS.iter().find(|target| target.name == ours).ok_or_else(|| {
                invalid(format!(
                    "gives {theirs} to {ours}; there are: {}, and -",
                    all_names()
                ))
            })?;
            if chosen.column(target.name).is_some() {
                return Err(invalid(format!("gives two columns to {ours}")));
            }
            chosen.taken.push((target.name, column));
        }
        for target in &TARGETS {
            if chosen.column(target.name).is_some() {
                continue;
            }
            let found = target.aliases.iter().find_map(|alias| {
                let named = |column: &&Column| column.name.eq_ignore_ascii_case(alias);
                columns.iter().filter(named).find(|column| chosen.is_free(column))
            });
            if let Some(column) = found {
                chosen.taken.push((target.name, column));
            }
        }
        Ok(chosen)
    }

    fn is_free(&self, column: &Column) -> bool {
        let same = |other: &&Column| other.name == column.name;
        !self.left_out.iter().any(&same) && !self.taken.iter().any(|(_, other)| same(other))
    }

    pub(super) fn column(&self, target: &str) -> Option<&'a Column> {
        let found = self.taken.iter().find(|(name, _)| *name == target);
        found.map(|(_, column)| *column)
    }

    /// What is used for nothing.
    pub(super) fn unused(&self) -> Vec<&'a Column> {
        let taken = |column: &&Column| self.taken.iter().any(|(_, other)| other.name == column.name);
        self.columns.iter().filter(|column| !taken(column)).collect()
    }
}

fn invalid(reason: String) -> Error {
    Error::Invalid { field: "map", reason }
}

fn all_names() -> String {
    TARGETS.map(|target| target.name).join(", ")
}
