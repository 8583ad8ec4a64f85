//! Pages of the list and of the search.

use super::object::{id, member};
use crate::fingerprint::json::{self, Value};
use crate::provider::fetch::Answer;

/// A page of a list or a search (`docs.stripe.com/api/pagination`).
pub(super) struct Page {
    pub(super) data: Vec<Value>,
    pub(super) has_more: bool,
}

/// Reads a page; otherwise says what is wrong with the answer.
pub(super) fn page(answer: &Answer) -> Result<Page, String> {
    let mut document =
        json::parse(&answer.body).map_err(|error| format!("the answer cannot be read: {error}"))?;
    let has_more = match member(&document, "has_more") {
        Some(Value::Bool(has_more)) => *has_more,
        _ => return Err("the answer does not say whether there is more".to_owned()),
    };
    let data = match &mut document {
        Value::Object(members) => members.remove("data"),
        _ => None,
    };
    match data {
        Some(Value::Array(data)) if data.iter().all(|object| id(object).is_some()) => {
            Ok(Page { data, has_more })
        }
        _ => Err("the answer has no list of objects".to_owned()),
    }
}
