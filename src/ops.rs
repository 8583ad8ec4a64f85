//! What operators and the janitor do to the table: one module per verb, each `run(.., Request) -> Report`.
//! Nothing here prints, asks or reads the environment.

pub mod actor;
pub mod purge;
