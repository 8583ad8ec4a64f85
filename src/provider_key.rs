//! The key that a payment provider is given: the same for every attempt of one operation.

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::key::KeyId;

/// What is hashed in front of the parts, so that no other use of SHA-256 gives the same key. It never changes:
/// another value would be another key at the provider, and so a second charge for every retry in flight.
const DOMAIN: &str = "idemctl/provider-key/v1";

/// How many characters a derived key has: a UUID, within every limit we know (Stripe 255, Adyen 64,
/// YooKassa 64, `PayPal` orders 108, Square 45).
pub const DERIVED_LEN: usize = 36;

/// How the provider's key is made from ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum KeyScheme {
    /// A hash of client, key and operation in the shape of a lower-case UUID, version 8 (RFC 9562 section 5.8):
    /// SHA-256 over each of `idemctl/provider-key/v1`, client id, key and, if there is one, operation, each in
    /// UTF-8 behind its length in bytes as 8 bytes, big-endian; the first 16 bytes, with version and variant.
    #[default]
    Derived,
    /// `client:key`, for fleets that already send that.
    Plain,
}

impl KeyScheme {
    /// The provider's key of an operation. A pure function: every attempt gets the same one.
    ///
    /// `limit` is the provider's, in bytes. [`KeyScheme::Plain`] knows nothing of the operation, and is refused
    /// where it is ambiguous or too long. Returns [`Error::Invalid`] then.
    pub fn provider_key(self, id: &KeyId, operation: Option<&str>, limit: usize) -> Result<String> {
        let key = match self {
            Self::Derived => derive(id, operation),
            Self::Plain => plain(id)?,
        };
        if key.len() > limit {
            let reason = format!("has {} bytes; the provider allows {limit}", key.len());
            return Err(Error::Invalid {
                field: "the provider key",
                reason,
            });
        }
        Ok(key)
    }
}

/// The key of [`KeyScheme::Derived`].
pub fn derive(id: &KeyId, operation: Option<&str>) -> String {
    let mut hash = Sha256::new();
    for part in [Some(DOMAIN), Some(id.client_id()), Some(id.key()), operation]
        .into_iter()
        .flatten()
    {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let digest = hash.finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .hyphenated()
        .to_string()
}

/// With a colon in the client id, `a:b` + `c` and `a` + `b:c` would be one key; the first colon must end it.
fn plain(id: &KeyId) -> Result<String> {
    if id.client_id().contains(':') {
        let reason = "contains a colon, so that a plain provider key (client:key) would be ambiguous; \
                      use the derived scheme";
        return Err(Error::Invalid {
            field: "client_id",
            reason: reason.to_owned(),
        });
    }
    Ok(format!("{}:{}", id.client_id(), id.key()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(client: &str, key: &str) -> KeyId {
        KeyId::new(client, key).unwrap()
    }

    #[test]
    fn no_two_operations_share_a_key() {
        let keys = [
            derive(&id("a", "bc"), None),
            derive(&id("ab", "c"), None),
            derive(&id("a", "b"), Some("c")),
            derive(&id("a", "bc"), Some("")),
            derive(&id("a", "bc"), Some("POST /payments")),
            derive(&id("a", "bc"), Some("POST /refunds")),
        ];
        for (i, key) in keys.iter().enumerate() {
            assert_eq!(key.len(), DERIVED_LEN);
            assert_eq!(&key[14..15], "8", "version");
            assert!(!keys[..i].contains(key));
        }
    }

    #[test]
    fn plain_keys_are_refused_when_ambiguous_or_too_long() {
        let plain = |client, key, limit| KeyScheme::Plain.provider_key(&id(client, key), None, limit);
        assert_eq!(plain("shop", "order:1", 12).unwrap(), "shop:order:1");
        assert!(
            plain("shop", "order:1", 11)
                .unwrap_err()
                .to_string()
                .contains("allows 11")
        );
        assert!(
            plain("shop:order", "1", 64)
                .unwrap_err()
                .to_string()
                .contains("ambiguous")
        );
    }
}
