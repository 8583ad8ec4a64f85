//! Which fields of a body define the operation.

use std::collections::BTreeMap;

use super::json::{Pointer, Value};
use crate::error::{Error, Result};

/// The fields that define an operation (amount, currency, recipient ...), as JSON Pointers (RFC 6901).
///
/// The fingerprint is over the *projection*: the body with only these fields in it, at the places where they
/// stand. `/amount` and `/payee/iban` of `{"amount":1,"payee":{"iban":"X","name":"Y"},"sent_at":"..."}` give
/// `{"amount":1,"payee":{"iban":"X"}}`. A selected field is taken whole, with everything below it.
///
/// * An absent field is left out, a null one is kept, so the two differ. An object or array under which nothing
///   is selected is left out as well.
/// * Arrays: a pointer to the array takes all of it, in order; this is what one mostly wants. An index
///   (`/items/0/sku`) takes that element; other elements up to the last one taken become null, so that each
///   keeps its index, and elements after that are left out. The end of an array (`-`) is never there.
/// * On an object an index is a name like any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    pointers: Vec<String>,
    tree: Node,
}

/// A selected field, or the way to selected fields.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Whole,
    Below(BTreeMap<String, Node>),
}

impl Fields {
    /// Checks the pointers.
    ///
    /// Returns [`Error::Invalid`] for an empty list, for a pointer that does not begin with `/` (only the
    /// pointer to the whole body is empty) or has a `~` that is not part of `~0` or `~1`, and for one that is
    /// given twice or lies within another.
    pub fn new<P: Into<String>>(pointers: impl IntoIterator<Item = P>) -> Result<Self> {
        let pointers: Vec<String> = pointers.into_iter().map(Into::into).collect();
        if pointers.is_empty() {
            return invalid("name no field; give at least one JSON Pointer such as /amount".to_owned());
        }
        let mut tree = Node::Below(BTreeMap::new());
        for pointer in &pointers {
            let parsed =
                Pointer::parse(pointer).or_else(|reason| invalid(format!("name a place that {reason}")))?;
            if !tree.add(parsed.tokens()) {
                return invalid(format!(
                    "name {pointer:?} twice, or it lies within another field that is named"
                ));
            }
        }
        Ok(Self { pointers, tree })
    }

    /// The pointers, as given.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        self.pointers.iter().map(String::as_str)
    }

    pub(super) fn project(&self, body: Value) -> Result<Value> {
        match self.tree.project(body) {
            Some(value) => Ok(value),
            None => Err(Error::Invalid {
                field: "the JSON text",
                reason: format!("has none of the fields {}", self.pointers.join(", ")),
            }),
        }
    }
}

impl Node {
    /// Adds a way; false when it is taken already, begins with a selected field, or goes to a place above one.
    fn add(&mut self, tokens: &[String]) -> bool {
        let Self::Below(children) = self else { return false };
        match tokens {
            [] if children.is_empty() => {
                *self = Self::Whole;
                true
            }
            [] => false,
            [last] if !children.contains_key(last) => {
                children.insert(last.clone(), Self::Whole);
                true
            }
            [first, rest @ ..] => children
                .entry(first.clone())
                .or_insert(Self::Below(BTreeMap::new()))
                .add(rest),
        }
    }

    fn project(&self, value: Value) -> Option<Value> {
        let children = match self {
            Self::Whole => return Some(value),
            Self::Below(children) => children,
        };
        match value {
            Value::Object(members) => {
                let kept: BTreeMap<_, _> = members
                    .into_iter()
                    .filter_map(|(name, value)| {
                        let value = children.get(&name)?.project(value)?;
                        Some((name, value))
                    })
                    .collect();
                (!kept.is_empty()).then_some(Value::Object(kept))
            }
            Value::Array(elements) => {
                let mut kept: Vec<Option<Value>> = elements
                    .into_iter()
                    .enumerate()
                    .map(|(i, element)| children.get(&i.to_string())?.project(element))
                    .collect();
                while kept.last().is_some_and(Option::is_none) {
                    kept.pop();
                }
                let kept: Vec<_> = kept
                    .into_iter()
                    .map(|element| element.unwrap_or(Value::Null))
                    .collect();
                (!kept.is_empty()).then_some(Value::Array(kept))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }
}

fn invalid<T>(reason: String) -> Result<T> {
    Err(Error::Invalid {
        field: "fields",
        reason,
    })
}
