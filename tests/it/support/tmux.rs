//! A real terminal: a shell under tmux, whose screen can be read, typed into and resized.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::process::Command;

use super::{require_program, temp_dir, until};

/// A terminal with a shell. It has a server, a configuration (none) and a HOME of its own.
pub(crate) struct Tmux {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Tmux {
    /// Starts a shell in a terminal of this size.
    pub(crate) async fn start(columns: u16, rows: u16) -> Self {
        let tmux = Self {
            program: require_program("tmux", "tmux"),
            dir: temp_dir(),
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let shell = "exec env PS1='shell> ' HISTFILE= /bin/sh";
        let new = ["new-session", "-d", "-x", &columns, "-y", &rows, shell];
        let options = [
            ";",
            "set",
            "-g",
            "status",
            "off",
            ";",
            "set",
            "-g",
            "escape-time",
            "0",
        ];
        tmux.tell(&[&new[..], &options[..]].concat()).await;
        tmux.shows("shell>").await;
        tmux
    }

    /// Runs the built binary in the shell's foreground.
    pub(crate) async fn run(&self, url: &str, env: &[(&str, &str)], args: &[&str]) {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let mut script = format!("echo $$ > pid\nexport IDEMCTL_DATABASE_URL={}\n", quoted(url));
        for (name, value) in env {
            writeln!(script, "export {name}={}", quoted(value)).unwrap();
        }
        write!(script, "exec {}", quoted(env!("CARGO_BIN_EXE_idemctl"))).unwrap();
        for arg in args {
            write!(script, " {}", quoted(arg)).unwrap();
        }
        std::fs::write(self.path("run"), script).unwrap();
        let line = "clear; stty -a > before; sh run; code=$?; stty -a > after; echo ended $code";
        self.keys(&[line, "Enter"]).await;
    }

    /// Types keys by tmux' names; other words are typed as they are.
    pub(crate) async fn keys(&self, keys: &[&str]) {
        self.tell(&[&["send-keys"], keys].concat()).await;
    }

    /// Changes the terminal's size.
    pub(crate) async fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.tell(&["resize-window", "-x", &columns, "-y", &rows]).await;
    }

    /// What stands on the screen.
    pub(crate) async fn screen(&self) -> String {
        self.tell(&["capture-pane", "-p"]).await
    }

    /// The same with the codes of its colours.
    pub(crate) async fn coloured_screen(&self) -> String {
        self.tell(&["capture-pane", "-p", "-e"]).await
    }

    /// Waits until a text stands on the screen, and gives all of it.
    pub(crate) async fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text)).await
    }

    /// The same for several: what is drawn in one go may be seen half.
    pub(crate) async fn shows_all(&self, texts: &[&str]) -> String {
        let all = |screen: &str| texts.iter().all(|text| screen.contains(text));
        self.until(&texts.join("\", \""), all).await
    }

    /// Waits until the alternate screen is shown, without a cursor; or the ordinary one, with one.
    pub(crate) async fn is_taken(&self, taken: bool) {
        let wanted = if taken { "1 0" } else { "0 1" };
        until("the terminal changes hands", async || {
            self.flags().await == wanted
        })
        .await;
    }

    /// Waits until the screen is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        until("the screen was looked at", async || {
            screen = self.screen().await;
            let late = tokio::time::Instant::now() > deadline;
            assert!(!late, "{what:?} does not come; the screen:\n{screen}");
            wanted(&screen)
        })
        .await;
        screen
    }

    /// Sends a signal to the binary.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = std::fs::read_to_string(self.path("pid")).unwrap();
        nix::sys::signal::kill(Pid::from_raw(pid.trim().parse().unwrap()), signal).unwrap();
    }

    /// Waits until the binary has ended with this code and checks that it left the terminal as it found it. Gives the
    /// screen.
    pub(crate) async fn ended(&self, code: i32) -> String {
        let screen = self.until("the end", |screen| {
            screen.lines().any(|line| line.starts_with("ended "))
        });
        let screen = screen.await;
        assert!(screen.contains(&format!("ended {code}\n")), "{screen}");
        let modes = |name| std::fs::read_to_string(self.path(name)).unwrap();
        let (before, after) = (modes("before"), modes("after"));
        assert_eq!(after_size(&before), after_size(&after));
        assert_eq!(
            self.flags().await,
            "0 1",
            "the ordinary screen, and a cursor that is seen"
        );
        screen
    }

    /// Whether the alternate screen is shown, and whether the cursor is seen.
    pub(crate) async fn flags(&self) -> String {
        let flags = self
            .tell(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"])
            .await;
        flags.trim().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn tell(&self, args: &[&str]) -> String {
        let output = self.command(args).output().await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {args:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-L", "it", "-f", "/dev/null"]).args(args);
        command.env_clear().current_dir(self.dir.path());
        let dir: &Path = self.dir.path();
        command.env("HOME", dir).env("TMUX_TMPDIR", dir);
        command.env("LANG", "C.UTF-8").env("LC_ALL", "C.UTF-8");
        for name in ["PATH", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let args = ["kill-server"];
        let mut command = self.command(&args);
        // The test is over; a server that is gone already is fine.
        let _ = command.as_std_mut().output();
    }
}

/// What `stty -a` says besides the size.
fn after_size(modes: &str) -> &str {
    modes.split_once("line =").map_or(modes, |(_, rest)| rest)
}
