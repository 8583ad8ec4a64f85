//! The exit codes of the contract, and the one place that turns an error into one.

use std::process::ExitCode;

use idemctl::error::Error;

/// How the process ends. The README holds the same table; a test compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// Any other error.
    Other = 1,
    /// Usage or configuration.
    Usage = 2,
    /// Not found.
    NotFound = 3,
    /// Refused as unsafe, or answered "no" at the prompt.
    Refused = 4,
    /// Lost a race: the row changed since it was read.
    Race = 5,
    /// Partly done: some items failed.
    Partial = 6,
    /// Database unreachable or timed out.
    Database = 7,
    /// Provider unreachable, or outcome unknown.
    Provider = 8,
    /// Schema not as expected.
    Schema = 9,
    /// A bug.
    Bug = 70,
    /// Interrupted.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct CliError {
    exit: Exit,
    message: String,
    hint: Option<String>,
}

/// A command's result.
pub(crate) type Result<T, E = CliError> = std::result::Result<T, E>;

impl CliError {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Adds what to do next.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts in front what was being done.
    #[must_use]
    pub(crate) fn context(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Adds what was done before it went wrong.
    #[must_use]
    pub(crate) fn before(mut self, done: &str) -> Self {
        self.message = format!("{}; before that: {done}", self.message);
        self
    }

    /// The exit code, for commands that go on with other items.
    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The message without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// What to do next, where that is known.
    pub(crate) fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Says it on stderr. A reader that went away (closed pipe) is not an error worth a word.
    pub(crate) fn report(&self) -> Exit {
        if self.exit == Exit::Done {
            return Exit::Done;
        }
        complain(&format!(
            "error: {}",
            crate::render::printable_lines(&self.message)
        ));
        if let Some(hint) = &self.hint {
            complain(&format!("hint: {}", crate::render::printable_lines(hint)));
        }
        self.exit
    }
}

/// Writes a line to stderr.
pub(crate) fn say(line: &str) {
    crate::log::say(tracing::Level::INFO, line);
}

/// The same for what went wrong.
pub(crate) fn complain(line: &str) {
    crate::log::say(tracing::Level::ERROR, line);
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        let exit = exit_of(&error);
        let message = error.to_string();
        let cli = Self::new(exit, message);
        match (exit, error.sqlstate()) {
            (_, Some("55P03")) => cli.hint(
                "another session holds a lock (pg_locks and pg_stat_activity show which); wait, or give it longer with \
                 --lock-timeout",
            ),
            (_, Some("57014")) => {
                cli.hint("it took longer than it may, or somebody cancelled it; give it longer with --statement-timeout")
            }
            (_, Some("25006")) => cli.hint(
                "this server is read-only (a standby?); target_session_attrs=read-write in the URL finds the primary",
            ),
            (Exit::Database, _) if error.is_remote() => cli.hint(
                "a node of the Citus cluster is down: keys that lie there can be neither read nor changed until it is \
                 back, so nothing that needs them all can be done; name one client (--client, or a key) to work with \
                 those on other nodes, and retry the others",
            ),
            (Exit::Database, _) => {
                cli.hint("`idemctl config` shows which database is meant and where each setting came from")
            }
            (Exit::Other, Some("42501")) => cli.hint(PRIVILEGES),
            (Exit::Other, Some("22021" | "22P05")) => cli.hint(
                "a row holds bytes that are no text in this connection's encoding; psql with \
                 PGCLIENTENCODING=SQL_ASCII shows and mends it",
            ),
            (Exit::Other, Some(_)) => {
                cli.hint("the server refused the statement; its log has the details")
            }
            _ => cli,
        }
    }
}

/// PostgreSQL names the table but not the privilege.
const PRIVILEGES: &str = "reading needs USAGE on the schema and SELECT on idempotency and idempotency_event; release, \
                          reconcile, resolve and purge also UPDATE and DELETE on idempotency and INSERT on \
                          idempotency_event, purge and janitor also SELECT, INSERT and UPDATE on idempotency_job; \
                          migrate needs \
                          the owner. Have it granted (`idemctl migrate --roles` prints the SQL of a role for each \
                          purpose), or connect as another user";

fn exit_of(error: &Error) -> Exit {
    match error {
        Error::Invalid { .. } | Error::Settings { .. } => Exit::Usage,
        Error::LeaseLost { .. } | Error::Contended { .. } => Exit::Race,
        Error::Schema { .. } | Error::Migration { .. } => Exit::Schema,
        Error::Unreachable { .. } | Error::Deadline { .. } | Error::ReadOnly { .. } => Exit::Database,
        Error::Interrupted => Exit::Interrupted,
        // Statement timeout and lock timeout are the database's own "timed out".
        Error::Database(_) if matches!(error.sqlstate(), Some("57014" | "55P03")) => Exit::Database,
        Error::Database(_) if error.needs_reconnect() => Exit::Database,
        _ => Exit::Other,
    }
}

impl From<std::io::Error> for CliError {
    /// Writing to stdout failed. A closed pipe ends quietly: `idemctl list | head` is not a failure.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(Exit::Done, "");
        }
        Self::new(Exit::Other, format!("couldn't write the output: {error}"))
    }
}
