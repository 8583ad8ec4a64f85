//! The one test binary: everything runs against real parts.

mod fingerprint;
mod provider_key;
