//! The command line as its contract has it: what is printed where, exit codes, and what stays unchanged.

mod bad_input;
mod config;
mod describe;
mod example_file;
mod fingerprint;
pub(crate) mod fixture;
mod help;
mod history;
mod hostile;
mod inspect;
mod list;
mod masking;
mod output;
mod prompt;
mod provider;
mod readme;
mod release;
mod roles;
mod server_trouble;
mod signals;
mod stats;
mod watch;
