//! Connecting as libpq does, with deadlines on our side.

mod connection;

pub use connection::{Connection, Settings, Timeouts, Tx};
