//! The one test binary: everything runs against real parts.

mod fingerprint;
mod provider_http;
mod provider_key;
