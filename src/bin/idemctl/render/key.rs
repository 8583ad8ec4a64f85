//! A key: the JSON object of the contract, and the row of a list.

use idemctl::mask::Masker;
use idemctl::record::{Record, ResponseSummary, State};
use idemctl::time::Timestamp;
use serde::Serialize;

use super::Item;
use crate::settings::Config;

/// One key as the contract has it; `inspect` adds history and the next command.
#[derive(Debug, Serialize)]
pub(crate) struct KeyView {
    pub(crate) client_id: String,
    pub(crate) key: String,
    pub(crate) state: &'static str,
    pub(crate) status: String,
    pub(crate) operation: Option<String>,
    pub(crate) fingerprint: String,
    pub(crate) attempt: i32,
    pub(crate) owner: Option<String>,
    pub(crate) provider: Option<String>,
    pub(crate) order_id: String,
    /// Absent where the configured scheme has none for this key.
    pub(crate) provider_key: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) locked_until: Timestamp,
    pub(crate) lease_remaining_seconds: Option<f64>,
    pub(crate) completed_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) response: Option<ResponseView>,
    pub(crate) last_error: Option<String>,
    #[serde(skip)]
    pub(crate) age_seconds: Option<f64>,
    /// The database's time at which all this held.
    #[serde(skip)]
    pub(crate) as_of: Timestamp,
    /// Whether a program that knows only the old columns holds or held it.
    #[serde(skip)]
    pub(crate) by_old_service: bool,
}

/// The stored response, hidden: size, type and hash.
#[derive(Debug, Serialize)]
pub(crate) struct ResponseView {
    pub(crate) status_code: Option<i32>,
    pub(crate) content_type: Option<String>,
    /// Null, like the hash, where the database's role may not read bodies.
    pub(crate) body_bytes: Option<i64>,
    pub(crate) body_sha256: Option<String>,
    #[serde(flatten)]
    pub(crate) body: Option<BodyView>,
}

/// The body, where it was asked for.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum BodyView {
    Json {
        /// The document, exactly as it is stored.
        body: Box<serde_json::value::RawValue>,
    },
    Bytes {
        /// Any other bytes.
        body_base64: String,
    },
    Hidden {
        /// Why it is not shown although it was asked for.
        body_hidden: &'static str,
    },
}

impl KeyView {
    pub(crate) fn new(record: Record, config: &Config) -> Self {
        Self::with_mask(record, config, &config.output.mask)
    }

    /// A new field of [`Record`] must find its place here: nothing is left out by `..`.
    pub(crate) fn with_mask(record: Record, config: &Config, mask: &Masker) -> Self {
        let provider_key = provider_key(&record, config);
        let retention = &config.retention;
        let masked = |text: Option<String>| text.map(|text| mask.text(&text).into_owned());
        let order_id = record.order_id().to_owned();
        let Record {
            id,
            fingerprint,
            status,
            state,
            locked_until,
            lease_remaining_seconds,
            created_at,
            age_seconds,
            completed_at,
            retained_from,
            attempt,
            lease_token,
            owner,
            operation,
            provider,
            order_id: _,
            last_error,
            response,
            as_of,
            read: _,
        } = record;
        let ttl = match state {
            Some(State::Done) => Some(retention.done.0),
            Some(State::Failed) => Some(retention.failed.0),
            _ => None,
        };
        let expires_at = retained_from
            .zip(ttl)
            .and_then(|(from, ttl)| from.checked_add(ttl));
        Self {
            client_id: id.client_id().to_owned(),
            key: id.key().to_owned(),
            state: state.map_or("unknown", State::as_str),
            status: mask.text(&status).into_owned(),
            operation: masked(operation),
            fingerprint,
            attempt,
            owner: masked(owner),
            provider,
            order_id,
            provider_key,
            created_at,
            locked_until,
            lease_remaining_seconds: lease_remaining_seconds.map(tenths),
            completed_at,
            expires_at,
            response: response.map(|summary| ResponseView::new(summary, mask)),
            last_error: masked(last_error),
            age_seconds,
            as_of,
            by_old_service: lease_token.is_none(),
        }
    }
}

/// The key that the provider was given: by the scheme of the provider that the row names, else of the only one
/// that is configured, else the derived one.
fn provider_key(record: &Record, config: &Config) -> Option<String> {
    let providers = &config.providers;
    let provider = match &record.provider {
        Some(name) => providers.get(name),
        None if providers.len() == 1 => providers.values().next(),
        None => None,
    };
    let scheme = provider.map(|provider| provider.key_scheme).unwrap_or_default();
    let limit = provider
        .and_then(|provider| provider.key_limit)
        .unwrap_or(usize::MAX);
    scheme
        .provider_key(&record.id, record.operation.as_deref(), limit)
        .ok()
}

impl ResponseView {
    fn new(summary: ResponseSummary, mask: &Masker) -> Self {
        let ResponseSummary {
            status_code,
            content_type,
            body_bytes,
            body_sha256,
        } = summary;
        Self {
            status_code,
            content_type: content_type.map(|value| mask.header("content-type", &value).into_owned()),
            body_bytes,
            body_sha256,
            body: None,
        }
    }
}

impl Item for KeyView {
    const COLUMNS: &'static [&'static str] = &[
        "client_id",
        "key",
        "state",
        "attempt",
        "age",
        "lease",
        "code",
        "operation",
        "provider",
        "owner",
    ];

    fn cells(&self) -> Vec<String> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        vec![
            self.client_id.clone(),
            self.key.clone(),
            self.state.to_owned(),
            self.attempt.to_string(),
            self.age_seconds.map(age).unwrap_or_default(),
            self.lease_remaining_seconds.map(lease).unwrap_or_default(),
            self.response
                .as_ref()
                .and_then(|r| r.status_code)
                .map(|code| code.to_string())
                .unwrap_or_default(),
            text(&self.operation),
            text(&self.provider),
            text(&self.owner),
        ]
    }

    const DISPENSABLE: &'static [&'static str] =
        &["owner", "code", "operation", "provider", "attempt", "age"];

    const CSV_COLUMNS: &'static [&'static str] = &[
        "client_id",
        "key",
        "state",
        "status",
        "attempt",
        "created_at",
        "locked_until",
        "lease_remaining_seconds",
        "completed_at",
        "expires_at",
        "status_code",
        "operation",
        "provider",
        "order_id",
        "owner",
        "last_error",
    ];

    fn csv(&self) -> Vec<String> {
        fn text(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        vec![
            self.client_id.clone(),
            self.key.clone(),
            self.state.to_owned(),
            self.status.clone(),
            self.attempt.to_string(),
            self.created_at.to_string(),
            self.locked_until.to_string(),
            text(self.lease_remaining_seconds),
            text(self.completed_at),
            text(self.expires_at),
            text(self.response.as_ref().and_then(|response| response.status_code)),
            text(self.operation.as_ref()),
            text(self.provider.as_ref()),
            self.order_id.clone(),
            text(self.owner.as_ref()),
            text(self.last_error.as_ref()),
        ]
    }

    fn id(&self) -> Option<(&str, &str)> {
        Some((&self.client_id, &self.key))
    }
}

/// Tenths of a second are as exact as a lease needs to be shown.
fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// The rest of a lease, or how long it is over.
pub(crate) fn lease(remaining: f64) -> String {
    if remaining > 0.0 {
        format!("{} left", age(remaining))
    } else {
        format!("over {}", age(-remaining))
    }
}

/// A length of time at a glance: its two largest units.
pub(crate) fn age(seconds: f64) -> String {
    if seconds < 10.0 {
        return format!("{:.1}s", seconds.max(0.0));
    }
    // Unwrap safety: a float cast saturates, and no time in the table lies 2^63 seconds away.
    #[expect(clippy::cast_possible_truncation, reason = "whole seconds are wanted")]
    let whole = seconds as i64;
    let (days, hours, minutes, seconds) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60, whole % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{seconds:02}s"),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        (_, _, _) => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_show_two_units() {
        assert_eq!(age(0.04), "0.0s");
        assert_eq!(age(59.9), "59s");
        assert_eq!(age(61.0), "1m01s");
        assert_eq!(age(86_400.0 * 3.5), "3d12h");
        assert_eq!(lease(-12.0), "over 12s");
    }
}
