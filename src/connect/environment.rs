//! What the caller's surroundings say. The library reads no environment variable and looks up no user itself.

use std::collections::HashMap;
use std::path::PathBuf;

/// Environment variables, home directory and OS user, as the caller found them.
///
/// The default is an empty one: then only the connection string counts.
#[derive(Clone, Default)]
pub struct Environment {
    /// Variables by name; only those that libpq knows (`PGHOST` ...) are looked at.
    pub variables: HashMap<String, String>,
    /// The home directory, for `.pgpass`, `.pg_service.conf` and `.postgresql/`.
    pub home: Option<PathBuf>,
    /// The OS user's name, the default for `user`.
    pub user: Option<String>,
}

impl Environment {
    /// A variable's value. One that is set but empty counts, as in libpq.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }
}

impl std::fmt::Debug for Environment {
    /// Names only: `PGPASSWORD` is among the values.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("variables", &self.variables.keys())
            .field("home", &self.home)
            .field("user", &self.user)
            .finish()
    }
}
