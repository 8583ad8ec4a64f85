//! A strict JSON reader (RFC 8259) that loses nothing, and the two ways to write a value.
//!
//! `serde_json` keeps the last of two members with one name and reads numbers as doubles; both would make two
//! different payments one.

mod parse;
mod pointer;

use std::collections::BTreeMap;
use std::fmt::Write as _;

pub(crate) use pointer::Pointer;

use super::number;
use crate::error::{Error, Result};

/// A JSON value. Equality is that of the texts: use [`Value::canonical`] to compare values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As written, checked.
    Number(String),
    String(String),
    Array(Vec<Value>),
    /// Strings are ordered by their UTF-8 bytes, which is the order of code points.
    Object(BTreeMap<String, Value>),
}

/// How numbers are written.
#[derive(Clone, Copy)]
enum Numbers {
    Canonical,
    #[cfg(feature = "operate")]
    AsWritten,
}

/// Reads one JSON text. See [`super`] for what is refused.
pub(crate) fn parse(input: &[u8]) -> Result<Value> {
    parse::text(input).map_err(|reason| Error::Invalid {
        field: "the JSON text",
        reason,
    })
}

impl Value {
    /// The one text of this value.
    pub(crate) fn canonical(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Numbers::Canonical);
        out
    }

    /// A compact text with sorted names that keeps each number as it was written (`10.50` stays).
    #[cfg(feature = "operate")]
    pub(crate) fn compact(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, Numbers::AsWritten);
        out
    }

    /// The text of a string, a number (as written) or a boolean; `None` for the others.
    #[cfg(feature = "operate")]
    pub(crate) fn scalar_text(&self) -> Option<String> {
        match self {
            Self::String(text) | Self::Number(text) => Some(text.clone()),
            Self::Bool(bool) => Some(bool.to_string()),
            Self::Null | Self::Array(_) | Self::Object(_) => None,
        }
    }

    fn write(&self, out: &mut String, numbers: Numbers) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(true) => out.push_str("true"),
            Self::Bool(false) => out.push_str("false"),
            Self::Number(text) => match numbers {
                Numbers::Canonical => out.push_str(&number::canonical(text)),
                #[cfg(feature = "operate")]
                Numbers::AsWritten => out.push_str(text),
            },
            Self::String(text) => write_string(out, text),
            Self::Array(elements) => {
                for (i, element) in elements.iter().enumerate() {
                    out.push(if i == 0 { '[' } else { ',' });
                    element.write(out, numbers);
                }
                out.push_str(if elements.is_empty() { "[]" } else { "]" });
            }
            Self::Object(members) => {
                for (i, (name, value)) in members.iter().enumerate() {
                    out.push(if i == 0 { '{' } else { ',' });
                    write_string(out, name);
                    out.push(':');
                    value.write(out, numbers);
                }
                out.push_str(if members.is_empty() { "{}" } else { "}" });
            }
        }
    }
}

/// Writes a string with the escapes of RFC 8785 section 3.2.2.2: the short ones where there is one, `\u00xx` in
/// lower case for the other controls below U+0020, and everything else as it is.
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
