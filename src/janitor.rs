//! The janitor: the jobs `purge` and `expired` on their schedules.

pub mod schedule;
