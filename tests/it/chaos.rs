//! Nothing is charged twice: real processes, killed; a real PostgreSQL, restarted; a provider that fails; and a
//! checker that is shown to find what it looks for.

mod checker;
mod checker_tests;
mod history;
