//! Idempotency keys in PostgreSQL: the protocol that claims a key before money moves, and the operations on the
//! table that it leaves behind.
//!
//! A service uses [`protocol`]: [`protocol::Idempotency::reserve`] before the work, [`protocol::Lease::complete`]
//! after it. Everything else serves the people who operate the table (feature `operate`) and the binary `idemctl`
//! (feature `cli`, a crate of its own under `src/bin/idemctl/`).
//!
//! Two guides: [`guide::library`] for the service, [`guide::runbook`] for whoever is on call.
//!
//! # Where things are
//!
//! | module | what | may name |
//! | --- | --- | --- |
//! | [`key`], [`record`], [`response`], [`time`], [`duration`], [`error`] | the nouns, with their rules | each other |
//! | [`fingerprint`], [`provider_key`] | pure functions of a request | the nouns |
//! | [`store`] | all SQL, beside its binds and the reading of its rows | the nouns |
//! | [`protocol`] | reserve, complete, renew, abandon, outcome unknown | `store` |
//! | `http` | the protocol as a tower layer (feature `http`) | `protocol` |
//! | `connect` | connections as libpq makes them, with deadlines | `store` (its executor) |
//! | `credential` | the names of systemd's credentials, and where they lie | nothing |
//! | `provider` | asking payment providers | the nouns, `credential` |
//! | `stop`, `pulse` | being asked to stop; signs of progress | nothing |
//! | `mask` | secrets in stored text, for whoever shows it | nothing |
//! | `ops` | one file per operator's verb: request in, report out | `store`, `connect` |
//! | `janitor` | schedules and the daemon's loop over `ops` | `ops`, `connect` |
//! | `dev` | a private PostgreSQL for trials and tests | `connect` |
//!
//! # What is never done
//!
//! - No module but `store` writes SQL; `ops` and `janitor` have none.
//! - The process's clock decides nothing about rows: the database's does, in SQL.
//! - Every statement that writes repeats its condition and its token, and its row count is looked at.
//! - The library prints nothing, asks nobody, installs no signal handler; only `dev`, which looks for
//!   PostgreSQL on the machine, reads environment variables.
//! - No expected outcome is an error, and no unknown one is made to look known.

pub mod duration;
pub mod error;
pub mod fingerprint;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod key;
pub mod protocol;
pub mod provider_key;
pub mod record;
pub mod response;
pub mod store;
pub mod time;

#[cfg(feature = "operate")]
pub mod connect;
#[cfg(feature = "operate")]
pub mod credential;
#[cfg(feature = "operate")]
#[doc(hidden)]
pub mod dev;
#[cfg(feature = "operate")]
mod hex;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "operate")]
pub mod janitor;
#[cfg(feature = "operate")]
pub mod mask;
#[cfg(feature = "operate")]
pub mod ops;
#[cfg(feature = "operate")]
pub mod provider;
#[cfg(feature = "operate")]
pub mod pulse;
#[cfg(feature = "operate")]
pub mod stop;

/// The README's code is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
