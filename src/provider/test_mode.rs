//! Keys of a vendor's test mode, which see no payment of live mode: what they do not find proves nothing about money.

use super::secret::HeaderValue;
use super::{ProviderStatus, Surroundings};

/// What a provider's key has to be for its answers to prove something.
#[derive(Debug)]
pub(super) struct TestMode {
    pub(super) secret: HeaderValue,
    pub(super) surroundings: Surroundings,
    /// How keys of test mode begin.
    pub(super) prefixes: &'static [&'static str],
    /// Whether the configuration says that payments of test mode are meant (`test_mode = true`).
    pub(super) is_meant: bool,
}

impl TestMode {
    /// Takes "not charged" back where the key is one of test mode and nobody said that it is meant to be, and says
    /// in any case that it is one.
    pub(super) async fn judge(&self, mut status: ProviderStatus) -> ProviderStatus {
        let is_of_test_mode = self
            .secret
            .text(&self.surroundings)
            .await
            .map(|secret| self.prefixes.iter().any(|prefix| secret.starts_with(prefix)));
        let reason = match is_of_test_mode {
            Ok(false) => return status,
            Ok(true) => {
                status.evidence.push_str("; the key is one of test mode");
                "the key is one of test mode, which sees no payment of live mode: use a live key, or set \
                 test_mode = true where the payments are of test mode"
                    .to_owned()
            }
            // It was rotated or removed since it was used.
            Err(problem) => format!("it cannot be told whether the key is one of test mode: {problem}"),
        };
        if self.is_meant {
            return status;
        }
        status.doubted(reason)
    }
}
