//! The one test binary: everything runs against real parts.

mod dev;
mod fingerprint;
mod provider_key;
mod support;
