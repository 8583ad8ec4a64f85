//! The units of `systemd/`, under a real systemd that `tests/systemd/boot` boots in namespaces of its own.

mod boot;
mod janitor;
mod package;
mod timer;
mod units;
