//! A private PostgreSQL for trying things out and for tests: real `initdb` and `postgres` binaries, a data
//! directory that only we can enter, a unix socket inside it, no TCP and no password.
//!
//! - [`Binaries`] finds the server's programs on the machine.
//! - [`Server`] starts, finds and stops one server per directory, either tied to this process (it goes when the
//!   process goes, even by `kill -9`) or detached.
//! - [`Identity`] is the unprivileged user that a root process drops to: PostgreSQL refuses to run as root.

mod binaries;
mod directory;
mod fetch;
mod identity;
mod launch;
mod server;
mod spawn;

pub use binaries::Binaries;
pub use directory::default_dir;
pub use identity::Identity;
pub use server::{Lifetime, Options, Server};
pub use spawn::USER;
