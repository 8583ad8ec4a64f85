//! What operators and the janitor do with the table: each operation once, as data in and data out.

pub mod migrate;
