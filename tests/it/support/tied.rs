//! Helper processes that end when the test process does, in whatever way.

use std::ffi::OsStr;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Ends the program when our end of the pipe closes.
const SUPERVISOR: &str = r#"
exec 3<&0
"$@" </dev/null &
program=$!
( read -r _ <&3; kill -TERM "$program" ) 2>/dev/null &
reader=$!
wait "$program"
kill "$reader" 2>/dev/null
"#;

/// A running helper process.
pub(super) struct Tied {
    supervisor: Child,
    pipe: Option<ChildStdin>,
}

impl Tied {
    /// Starts a program; `prepare` may set user, environment and output.
    pub(super) fn spawn<S: AsRef<OsStr>>(program: &[S], prepare: impl FnOnce(&mut Command)) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SUPERVISOR, "tied"])
            .args(program)
            .stdin(Stdio::piped())
            .process_group(0);
        prepare(&mut command);
        let mut supervisor = command.spawn().expect("/bin/sh runs");
        let pipe = supervisor.stdin.take();
        Self { supervisor, pipe }
    }

    /// Whether the program has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.supervisor.try_wait().expect("our own child").is_some()
    }
}

impl Drop for Tied {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.supervisor.wait();
    }
}
