//! The one test binary: everything runs against real parts.
fn main() {}
