//! Whether a request is the one that a stored key was claimed with.
//!
//! The table keeps a digest of the request, never its body. So what differs cannot be told, only that something does.

use crate::error::Result;
use crate::fingerprint::{Fields, Fingerprint};
use crate::key::KeyId;
use crate::record::Record;
use crate::store::{Executor, Store};

/// What a fingerprint was made over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// The selected fields of a JSON body.
    Fields,
    /// A whole JSON body.
    Body,
    /// The bytes as they are.
    Bytes,
}

impl Form {
    /// In words, behind "made over".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fields => "the selected fields",
            Self::Body => "the whole JSON body",
            Self::Bytes => "the bytes as they are",
        }
    }

    /// The fingerprint of a body in this form; `fields` are those of [`Form::Fields`].
    ///
    /// Returns what [`Fingerprint`]'s functions do for a body that has none.
    pub fn fingerprint(self, body: &[u8], fields: Option<&Fields>) -> Result<Fingerprint> {
        match (self, fields) {
            (Self::Fields, Some(fields)) => Fingerprint::of_json_fields(body, fields),
            (Self::Bytes, _) => Ok(Fingerprint::of_bytes(body)),
            (Self::Body | Self::Fields, _) => Fingerprint::of_json(body),
        }
    }
}

/// A request beside a stored key.
#[derive(Debug)]
pub struct Comparison {
    /// The row.
    pub record: Record,
    /// In which form the request has the stored fingerprint: the one that was asked for, else another one in which
    /// it does; `None` where it differs in every form that is known here.
    pub same_by: Option<Form>,
}

/// Compares a body with what a key was claimed with; `None` where there is no such key.
///
/// `form`: how the service makes its fingerprints. Where that does not fit, the other forms are tried: the same digest
/// over the whole body is no coincidence.
pub async fn run(
    executor: &impl Executor,
    store: &Store,
    id: &KeyId,
    body: &[u8],
    (form, fields): (Form, Option<&Fields>),
) -> Result<Option<Comparison>> {
    let Some(record) = store.get(executor, id).await? else {
        return Ok(None);
    };
    let fits = |form: &Form| {
        form.fingerprint(body, fields)
            .is_ok_and(|ours| ours.as_str() == record.fingerprint)
    };
    let same_by = [form, Form::Body, Form::Bytes].into_iter().find(fits);
    Ok(Some(Comparison { record, same_by }))
}
