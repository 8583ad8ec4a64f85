//! Connecting as libpq does, with deadlines on our side.
//!
//! [`Settings::resolve`] turns a connection string, service and password files and the caller's environment
//! into settings; [`Connection::open`] connects. TLS is done by rustls with libpq's meaning of `sslmode`.

mod attempt;
mod cancel;
mod connection;
mod endpoints;
mod environment;
mod explain;
mod facts;
mod keyvalue;
mod line;
mod merge;
mod params;
mod passfile;
mod resolve;
mod secret;
mod service;
mod settings;
mod socket;
mod tls;
mod transaction;
mod uri;
mod verifier;

pub use cancel::Canceller;
pub use connection::Connection;
pub use environment::Environment;
pub use facts::{Encryption, Facts, Route};
pub use merge::Source;
#[cfg(feature = "operate")]
pub(crate) use settings::Target;
pub use settings::{Entry, Settings, SslMode, StatementMode, Timeouts};
pub use transaction::Tx;
