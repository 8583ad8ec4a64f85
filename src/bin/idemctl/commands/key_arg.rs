//! The two words that name a key.

use idemctl::key::KeyId;

use crate::exit::Result;

/// Client and key.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct KeyArgs {
    /// Who sent the key
    #[arg(value_name = "CLIENT", allow_hyphen_values = true)]
    client: String,
    /// The client's idempotency key
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: String,
}

impl KeyArgs {
    /// Checked before the database is asked.
    pub(crate) fn id(&self) -> Result<KeyId> {
        Ok(KeyId::new(&self.client, &self.key)?)
    }
}
