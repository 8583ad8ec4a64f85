//! Secrets in stored text: card numbers, and values whose names say that they are secret.
//!
//! The table and the event log hold what services, providers and people wrote. Whoever shows such text passes it
//! through here first:
//!
//! - **Card numbers**: every run of 13 to 19 digits that passes the Luhn check keeps its first six and last four
//!   digits, the most that PCI DSS v4.0.1 lets be shown without a business need (requirement 3.4.1; the lengths
//!   and the check digit are those of ISO/IEC 7812-1). Digits may be separated by blanks, dashes, dots and the
//!   like, and may stand in JSON strings, JSON numbers and member names. More than 19 digits without a separator
//!   are no card number.
//! - **Secret names**: passwords, tokens, keys, card verification values, PINs and their like, in JSON members,
//!   forms, headers, XML elements and `name=value` text. The value becomes `***`.
//! - **Account numbers** by name (IBAN and national ones) keep their last four characters: with a name they are
//!   enough for a direct debit, and the rest tells two accounts apart.
//! - **JSON pointers** that the operator chose ([`Pointer`]).
//!
//! What is not masked stays as it is, byte for byte: JSON is neither parsed into values nor written anew, so
//! numbers keep their digits and repeated members stay. (A JSON string that holds a secret among other text is
//! the one thing that is spelled anew.) JSON stays JSON.
//!
//! Masking is a net, not a proof: a secret under an innocent name in free text is not recognised.

mod card;
mod json;
mod name;
mod pointer;
#[cfg(test)]
mod tests;
mod text;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde_json::value::RawValue;

pub use pointer::Pointer;

/// What stands in the place of a secret.
pub const MASK: &str = "***";

/// The same as a JSON string.
const JSON_MASK: &str = "\"***\"";

/// How deep JSON inside JSON strings is looked at as JSON; what lies deeper is looked at as text.
const MAX_NESTING: u8 = 8;

/// The rules in force: the built-in ones and the operator's pointers.
#[derive(Debug, Clone, Default)]
pub struct Masker {
    pointers: Arc<[Pointer]>,
    off: bool,
}

impl Masker {
    /// The built-in rules, and these places of every JSON document.
    pub fn new(pointers: impl IntoIterator<Item = Pointer>) -> Self {
        Self {
            pointers: pointers.into_iter().collect(),
            off: false,
        }
    }

    /// Masks nothing: for somebody who asked to see the secrets, which the caller has to put on record.
    pub fn off() -> Self {
        Self {
            off: true,
            ..Self::default()
        }
    }

    /// Whether it masks nothing.
    pub fn is_off(&self) -> bool {
        self.off
    }

    /// Stored text of any kind (JSON, a form, XML, headers, a sentence) with its secrets masked.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.document(text, 0)
    }

    /// A stored body, which stays JSON where it is: a bare number that is a card's becomes a string.
    pub fn body<'a>(&self, body: &'a str) -> Cow<'a, str> {
        match self.text(body) {
            Cow::Owned(masked) if json::is_document(body) && !json::is_document(&masked) => {
                Cow::Owned(serde_json::Value::from(masked.trim()).to_string())
            }
            masked => masked,
        }
    }

    /// The value of a header.
    pub fn header<'a>(&self, name: &str, value: &'a str) -> Cow<'a, str> {
        if !self.off && name::of_header(name).is_some() && !value.is_empty() {
            return Cow::Borrowed(MASK);
        }
        self.text(value)
    }

    /// JSON that idemctl itself wrote into the event log. Members that people need for acting (the key, the order
    /// id, the fingerprint, the lease's token, the provider's reference) are left alone, since a masked key cannot
    /// be typed; and pointers, which are meant for bodies, do not apply.
    pub fn own_json(&self, json: &RawValue) -> Box<RawValue> {
        if self.off {
            return json.to_owned();
        }
        let rules = json::Rules {
            masker: self,
            pointers: &[],
            own: true,
            nesting: 0,
        };
        let masked = apply(json.get(), json::edits(json.get(), &rules));
        // It was JSON and stays JSON; were it not so, nothing would be shown.
        RawValue::from_string(masked.into_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned())
    }

    /// `nesting`: in how many JSON strings the text stood.
    fn document<'a>(&self, text: &'a str, nesting: u8) -> Cow<'a, str> {
        if self.off {
            return Cow::Borrowed(text);
        }
        let pointers = &*self.pointers;
        let json = text.trim_start_matches('\u{feff}');
        // A bare number is text: what is masked in it needs no quotes.
        let may_be_json = json.trim_start().starts_with(['{', '[', '"']);
        if nesting < MAX_NESTING && may_be_json && json::is_document(json) {
            let rules = json::Rules {
                masker: self,
                pointers,
                own: false,
                nesting,
            };
            // A byte-order mark stays where it is.
            return match apply(json, json::edits(json, &rules)) {
                Cow::Borrowed(_) => Cow::Borrowed(text),
                Cow::Owned(masked) if json.len() == text.len() => Cow::Owned(masked),
                Cow::Owned(masked) => Cow::Owned(format!("{}{masked}", &text[..text.len() - json.len()])),
            };
        }
        apply(text, text::edits(text))
    }
}

/// Stored text with its secrets masked by the built-in rules alone.
pub fn text(text: &str) -> Cow<'_, str> {
    Masker::default().text(text)
}

/// A part of a text, and what to show in its place.
type Edit = (Range<usize>, Cow<'static, str>);

/// The text with its edits. Edits may overlap: what begins first, and of those what is longest, stands for all.
fn apply(text: &str, mut edits: Vec<Edit>) -> Cow<'_, str> {
    if edits.is_empty() {
        return Cow::Borrowed(text);
    }
    edits.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
    let mut masked = String::with_capacity(text.len());
    let mut done = 0;
    for (range, shown) in edits {
        if range.start >= done {
            masked.push_str(&text[done..range.start]);
            masked.push_str(&shown);
        }
        done = done.max(range.end);
    }
    masked.push_str(&text[done..]);
    Cow::Owned(masked)
}
