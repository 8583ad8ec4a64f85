//! The one test binary: everything runs against real parts.

mod dev;
mod support;
