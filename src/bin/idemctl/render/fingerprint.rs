//! A fingerprint, and the stored key beside it.

use std::io::{self, Write};

use idemctl::fingerprint::Fingerprint;
use idemctl::mask::Masker;
use idemctl::ops::compare::{Comparison, Form};
use idemctl::record::State;
use idemctl::time::Timestamp;
use serde::Serialize;

use super::{Document, printable};

/// `fingerprint -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct FingerprintView {
    fingerprint: String,
    made_over: Form,
    /// The text that is hashed, with `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    canonical: Option<String>,
    /// With `--compare`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) compared: Option<StoredView>,
}

/// The stored key.
#[derive(Debug, Serialize)]
pub(crate) struct StoredView {
    client_id: String,
    key: String,
    state: &'static str,
    operation: Option<String>,
    created_at: Timestamp,
    stored: String,
    pub(crate) same: bool,
    /// In which form it is the same.
    same_by: Option<Form>,
}

impl StoredView {
    pub(crate) fn new(found: Comparison, mask: &Masker) -> Self {
        let Comparison { record, same_by } = found;
        Self {
            client_id: record.id.client_id().to_owned(),
            key: record.id.key().to_owned(),
            state: record.state.map_or("unknown", State::as_str),
            operation: record
                .operation
                .map(|operation| mask.text(&operation).into_owned()),
            created_at: record.created_at,
            stored: record.fingerprint,
            same: same_by.is_some(),
            same_by,
        }
    }
}

impl FingerprintView {
    pub(crate) fn new(
        ours: &Fingerprint,
        form: Form,
        canonical: Option<String>,
        compared: Option<StoredView>,
    ) -> Self {
        Self {
            fingerprint: ours.as_str().to_owned(),
            made_over: form,
            canonical,
            compared,
        }
    }
}

impl Document for FingerprintView {
    /// The digest alone, so that a script can take it; more only where it was asked for.
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(stored) = &self.compared else {
            if let Some(canonical) = &self.canonical {
                writeln!(out, "{}", printable(canonical))?;
            }
            return writeln!(out, "{}", self.fingerprint);
        };
        if let Some(canonical) = &self.canonical {
            writeln!(out, "canonical  {}", printable(canonical))?;
        }
        writeln!(
            out,
            "request    {}  over {}",
            self.fingerprint,
            self.made_over.as_str()
        )?;
        writeln!(
            out,
            "stored     {}  {} {}, {}, claimed {}",
            printable(&stored.stored),
            printable(&stored.client_id),
            printable(&stored.key),
            stored.state,
            stored.created_at
        )?;
        if let Some(operation) = &stored.operation {
            writeln!(
                out,
                "operation  {}: on another one a repeat is refused all the same",
                printable(operation)
            )?;
        }
        match stored.same_by {
            Some(form) if form == self.made_over => writeln!(out, "verdict    the same request"),
            Some(form) => writeln!(
                out,
                "verdict    the same request: the stored digest was made over {}",
                form.as_str()
            ),
            None => writeln!(out, "verdict    another request"),
        }
    }
}
