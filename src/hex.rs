//! Lower-case hexadecimal digits.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Two digits for each byte.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
}

/// The 64 digits of the SHA-256 of these bytes.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    encode(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_lower_case_and_keep_leading_zeros() {
        assert_eq!(encode(&[0, 10, 255]), "000aff");
        // FIPS 180-4's digest of the empty message.
        assert_eq!(
            sha256(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
