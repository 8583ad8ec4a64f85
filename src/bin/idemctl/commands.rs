//! One file per subcommand: its arguments, then `run`.

pub(crate) mod adopt;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod fingerprint;
pub(crate) mod history;
pub(crate) mod inspect;
pub(crate) mod janitor;
pub(crate) mod key_arg;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod provider;
pub(crate) mod purge;
pub(crate) mod reconcile;
pub(crate) mod release;
pub(crate) mod resolve;
pub(crate) mod runbook;
pub(crate) mod selftest;
pub(crate) mod stats;
pub(crate) mod top;
