//! The names under which an operation is known: client, key, operation; and the rules for them.

use std::fmt;

use crate::error::{Error, Result};

/// Longest client id, key, operation, provider name or order id, in characters (Unicode scalar values).
pub const MAX_NAME_CHARS: usize = 255;

/// One idempotency key of one client: the primary key of the table.
///
/// Both parts are 1 to [`MAX_NAME_CHARS`] characters without control characters. The pair identifies an
/// operation, never the key alone: two clients may both send `order-1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    client_id: String,
    key: String,
}

impl KeyId {
    /// Checks both parts.
    ///
    /// Returns [`Error::Invalid`] naming the part that is empty, too long or holds a control character.
    pub fn new(client_id: impl Into<String>, key: impl Into<String>) -> Result<Self> {
        let id = Self {
            client_id: client_id.into(),
            key: key.into(),
        };
        check_name("client_id", &id.client_id)?;
        check_name("key", &id.key)?;
        Ok(id)
    }

    /// A pair as it stands in the table: rows that other programs wrote may break our rules, and must still
    /// be shown and operated on.
    pub(crate) fn from_row(client_id: String, key: String) -> Self {
        Self { client_id, key }
    }

    /// Who sent the key.
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// The client's idempotency key.
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl fmt::Display for KeyId {
    /// `client key`, with control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.client_id.escape_debug(), self.key.escape_debug())
    }
}

/// Checks a name that goes into the table: 1 to [`MAX_NAME_CHARS`] characters, no control characters.
///
/// The limit keeps a primary-key entry far below the 2704 bytes at which PostgreSQL's B-tree refuses a row
/// (and does so only for text that does not compress).
pub fn check_name(field: &'static str, value: &str) -> Result<()> {
    let chars = value.chars().count();
    if chars == 0 {
        return Err(Error::Invalid {
            field,
            reason: "is empty; give 1 to 255 characters".to_owned(),
        });
    }
    if chars > MAX_NAME_CHARS {
        return Err(Error::Invalid {
            field,
            reason: format!("has {chars} characters; at most 255 are allowed"),
        });
    }
    if let Some((at, c)) = value.chars().enumerate().find(|(_, c)| c.is_control()) {
        let reason = format!(
            "has the control character U+{:04X} at position {}",
            u32::from(c),
            at + 1
        );
        return Err(Error::Invalid { field, reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_characters_not_bytes() {
        assert!(KeyId::new("é".repeat(255), "k").is_ok());
        assert!(KeyId::new("é".repeat(256), "k").is_err());
        assert!(KeyId::new("c", "").is_err());
    }

    #[test]
    fn control_characters_are_named_with_their_place() {
        let error = KeyId::new("shop", "a\u{1b}b").unwrap_err().to_string();
        assert_eq!(error, "key has the control character U+001B at position 2");
        assert!(KeyId::new("shop", "a\u{85}b").is_err(), "C1 controls too");
    }
}
