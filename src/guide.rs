//! The guides: how a service uses the library, and what whoever is on call does.

#[doc = include_str!("guide/library.md")]
pub mod library {}

#[doc = include_str!("guide/runbook.md")]
pub mod runbook {}
