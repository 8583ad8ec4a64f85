//! The fingerprint of a request: SHA-256 over canonical JSON, so that field order, blanks and another
//! serializer give the same value, and another amount does not.
//!
//! # The canonical form
//! The layout of RFC 8785 (no blanks, sorted names, minimal escapes, numbers laid out as ECMAScript does),
//! with two departures that a table of payments needs:
//!
//! * Numbers are exact. RFC 8785 section 3.2.2.3 goes through a double, where 9007199254740993 and
//!   9007199254740992 become one; here its *layout* is applied to the exact decimal digits. `1`, `1.0` and
//!   `1e0` are one number, `-0` is `0`, and a number written in its shortest double form comes out as RFC 8785
//!   has it. Integers of 22 and more digits therefore come in exponent form (`1e+21`), unlike in Python.
//! * Names are sorted by Unicode code point, not by UTF-16 unit as RFC 8785 section 3.2.3 has it. The orders
//!   differ only where a name with a character above U+FFFF meets one with U+E000 to U+FFFF.
//!
//! For bodies of strings, integers of at most 21 digits, booleans, null, arrays and objects the canonical form
//! equals what Python's `json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)` gives,
//! which is what services in other languages that share the table compute.
//!
//! # What is refused
//! Duplicate names (also when spelled with different escapes), NaN and Infinity, lone surrogates, invalid
//! UTF-8, nesting deeper than [`MAX_DEPTH`], input longer than [`MAX_BYTES`], and numbers whose decimal
//! exponent is over [`MAX_EXPONENT`]. Each is an [`Error::Invalid`] that names the byte offset, line, column
//! and JSON Pointer: two readers would disagree on such a body, so it has no meaning that can be compared.

mod fields;
pub(crate) mod json;
mod number;

use std::fmt;

use sha2::{Digest, Sha256};

pub use fields::Fields;

use crate::error::{Error, Result};

/// Longest JSON text that is read, in bytes: 1 MiB.
pub const MAX_BYTES: usize = 1024 * 1024;

/// Deepest nesting of arrays and objects that is read.
pub const MAX_DEPTH: usize = 128;

/// Largest decimal exponent of a number in scientific notation, in either direction: `1e9999` and `1e-9999`
/// are read, `1e10000` is not. Zero may be written with any exponent.
pub const MAX_EXPONENT: i64 = 9_999;

/// What the bytes of a body that is not JSON are prefixed with before they are hashed. No JSON text begins
/// with an `i`, so a body of bytes can never have the fingerprint of a JSON body.
const BYTES_DOMAIN: &[u8] = b"idemctl/fingerprint/bytes/v1\0";

/// SHA-256 of a request: 64 lower-case hex digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// A fingerprint that was computed elsewhere.
    ///
    /// Returns [`Error::Invalid`] unless it has exactly 64 digits of `0-9a-f`.
    pub fn from_hex(hex: impl Into<String>) -> Result<Self> {
        let hex = hex.into();
        let invalid = |reason: String| {
            Err(Error::Invalid {
                field: "fingerprint",
                reason,
            })
        };
        let chars = hex.chars().count();
        if chars != 64 {
            return invalid(format!("has {chars} characters; give 64 lower-case hex digits"));
        }
        match hex.chars().position(|c| !matches!(c, '0'..='9' | 'a'..='f')) {
            None => Ok(Self(hex)),
            Some(at) => invalid(format!(
                "has no lower-case hex digit at position {}; give 64 of them",
                at + 1
            )),
        }
    }

    /// The fingerprint of a whole JSON body. See the [module](self) for what is refused.
    pub fn of_json(body: &[u8]) -> Result<Self> {
        Ok(Self::of_text(&canonical(body)?))
    }

    /// The fingerprint of those fields of a JSON body that define the operation. See [`Fields`] for what the
    /// projection is.
    ///
    /// Besides what [`Fingerprint::of_json`] refuses, a body that has none of the fields is an
    /// [`Error::Invalid`]: with a misspelt pointer all bodies would be one operation.
    pub fn of_json_fields(body: &[u8], fields: &Fields) -> Result<Self> {
        Ok(Self::of_text(&canonical_fields(body, fields)?))
    }

    /// The fingerprint of a body that is not JSON: over its bytes as they are. Never equals the fingerprint of
    /// a JSON body, not even of the same bytes. The length is not limited.
    pub fn of_bytes(body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(BYTES_DOMAIN);
        hash.update(body);
        Self(hex(&hash.finalize()))
    }

    /// The 64 lower-case hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of_text(text: &str) -> Self {
        Self(hex(&Sha256::digest(text.as_bytes())))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({})", self.0)
    }
}

impl serde::Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// The canonical form of a JSON text: what [`Fingerprint::of_json`] hashes.
pub fn canonical(body: &[u8]) -> Result<String> {
    Ok(json::parse(body)?.canonical())
}

/// The canonical form of the selected fields: what [`Fingerprint::of_json_fields`] hashes.
pub fn canonical_fields(body: &[u8], fields: &Fields) -> Result<String> {
    Ok(fields.project(json::parse(body)?)?.canonical())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .map(|n| char::from(DIGITS[usize::from(n)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_json_of_the_same_text_differ() {
        assert_ne!(Fingerprint::of_bytes(b"1"), Fingerprint::of_json(b"1").unwrap());
        assert_ne!(Fingerprint::of_bytes(b""), Fingerprint::of_bytes(b"\0"));
        // echo -ne 'idemctl/fingerprint/bytes/v1\0a=1' | sha256sum
        assert_eq!(
            Fingerprint::of_bytes(b"a=1").as_str(),
            "7dc298012e792410af1e73c2af289d7247e4c9e66feead7e7f15098d18702366"
        );
    }

    #[test]
    fn only_64_lower_case_hex_digits_are_a_fingerprint() {
        let good = "0123456789abcdef".repeat(4);
        assert_eq!(Fingerprint::from_hex(good.clone()).unwrap().as_str(), good);
        assert!(
            Fingerprint::from_hex(good.to_uppercase())
                .unwrap_err()
                .to_string()
                .contains("position 11")
        );
        assert!(
            Fingerprint::from_hex(&good[1..])
                .unwrap_err()
                .to_string()
                .contains("63 characters")
        );
        assert!(Fingerprint::from_hex("é".repeat(64)).is_err());
        assert!(Fingerprint::from_hex("").is_err());
    }
}
