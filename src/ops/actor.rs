//! Who acts, and why: what the event log keeps besides the database's own user.

/// The person or service behind a change, as far as the caller knows it.
///
/// The database adds its session user and its time to each event by itself; these fields are what only the
/// calling side can tell. Nothing here is checked or trusted for permission: it is a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Actor {
    /// Name of the operating system's user.
    pub os_user: Option<String>,
    /// Name of the host on which the command or daemon runs.
    pub host: Option<String>,
    /// Why: `--reason` of a command, or the policy that a daemon followed.
    pub reason: Option<String>,
}

impl Actor {
    /// The same actor with another reason.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}
