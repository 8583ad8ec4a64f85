//! Running the built binary and other processes: with a clean environment, a time limit, and `kill -9`.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long a process may run before the test fails.
const LIMIT: Duration = Duration::from_mins(1);

/// The built binary with arguments, ready to be given more and to run.
pub(crate) fn idemctl<S: AsRef<str>>(args: &[S]) -> Run {
    Run::new(env!("CARGO_BIN_EXE_idemctl"), args)
}

/// Finds a program that tests need; the test fails if it is not installed.
pub(crate) fn require_program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]);
    dirs.map(|dir| dir.join(name))
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            panic!("this test needs {name}; install it (Debian: apt-get install {package}, or run tests/run)")
        })
}

/// A process to be run, with HOME in a directory of its own and nothing else but PATH in its environment.
pub(crate) struct Run {
    program: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    stdin: Option<Vec<u8>>,
    pty: bool,
    limit: Duration,
    dir: Option<PathBuf>,
    inherit: bool,
    home: tempfile::TempDir,
}

/// How a process ended and what it said.
#[derive(Debug)]
pub(crate) struct Output {
    /// The exit code; 128 + n when signal n ended it.
    pub(crate) code: i32,
    /// What it wrote to stdout; with a pty, everything.
    pub(crate) stdout: String,
    /// What it wrote to stderr.
    pub(crate) stderr: String,
}

impl Output {
    /// The exit code, stdout and stderr in one text, for golden files.
    pub(crate) fn transcript(&self) -> String {
        format!(
            "exit {}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.stdout, self.stderr
        )
    }

    /// Fails the test unless the process ended well; gives stdout.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.transcript());
        self.stdout
    }
}

impl Run {
    /// Any program.
    pub(crate) fn new<S: AsRef<str>>(program: &str, args: &[S]) -> Self {
        Self {
            program: program.to_owned(),
            args: args.iter().map(|arg| arg.as_ref().to_owned()).collect(),
            env: Vec::new(),
            stdin: None,
            pty: false,
            limit: LIMIT,
            dir: None,
            inherit: false,
            home: super::temp_dir(),
        }
    }

    /// One test of this binary in a process of its own, so that it can be killed. The test has to be marked
    /// `#[ignore = "a child process"]`; what it prints can be waited for.
    pub(crate) fn test(name: &str) -> Self {
        let program = std::env::current_exe()
            .expect("the test binary")
            .to_string_lossy()
            .into_owned();
        Self::new(&program, &["--exact", name, "--ignored", "--nocapture"])
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    /// Connects the process to a database.
    pub(crate) fn on(self, url: &str) -> Self {
        self.env("IDEMCTL_DATABASE_URL", url)
    }

    /// What the process reads; nothing (end of file at once) unless given.
    pub(crate) fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Runs it in a terminal; what is given as stdin is typed.
    pub(crate) fn pty(mut self) -> Self {
        self.pty = true;
        self
    }

    /// Another time limit.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The working directory.
    pub(crate) fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Keeps the environment of the tests, for programs that need their own configuration.
    pub(crate) fn inherit_env(mut self) -> Self {
        self.inherit = true;
        self
    }

    /// Runs to the end; the test fails when that takes longer than the limit.
    pub(crate) async fn run(self) -> Output {
        let limit = self.limit;
        self.spawn().wait_within(limit).await
    }

    /// Starts it, to be watched and killed.
    pub(crate) fn spawn(self) -> Spawned {
        let mut command = if self.pty {
            // The shell in between must not get the signals of the terminal, too.
            let mut line = format!("exec {}", quote(&self.program));
            for arg in &self.args {
                line.push(' ');
                line.push_str(&quote(arg));
            }
            let mut command = Command::new(require_program("script", "bsdutils"));
            command.args(["-q", "-e", "-c", &line, "/dev/null"]);
            command
        } else {
            let mut command = Command::new(&self.program);
            command.args(&self.args);
            command
        };
        if !self.inherit {
            command
                .env_clear()
                .env("HOME", self.home.path())
                .env("LANG", "C.UTF-8")
                .env("LC_ALL", "C.UTF-8");
        }
        for name in ["PATH", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.pty {
            command.env("TERM", "xterm").env("SHELL", "/bin/sh");
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let child = command
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}", self.program));
        Spawned::new(child, self.stdin, self.pty, Some(self.home))
    }
}

/// A running process.
pub(crate) struct Spawned {
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    /// A terminal's keyboard stays connected.
    keyboard: Option<tokio::process::ChildStdin>,
    _home: Option<tempfile::TempDir>,
}

impl Spawned {
    /// Starts [`Run::test`] with these environment variables.
    pub(crate) fn test(name: &str, env: &[(&str, &str)]) -> Self {
        env.iter()
            .fold(Run::test(name), |run, (name, value)| run.env(name, *value))
            .spawn()
    }

    fn new(mut child: Child, stdin: Option<Vec<u8>>, pty: bool, home: Option<tempfile::TempDir>) -> Self {
        let (send, lines) = mpsc::unbounded_channel();
        let stdout = collect(child.stdout.take().expect("piped"), send.clone());
        let stderr = collect(child.stderr.take().expect("piped"), send);
        let mut input = child.stdin.take().expect("piped");
        let keyboard = if pty && stdin.is_none() {
            Some(input)
        } else {
            tokio::spawn(async move {
                // A process that does not read its input closes the pipe; that is its business.
                let _ = input.write_all(&stdin.unwrap_or_default()).await;
            });
            None
        };
        Self {
            child,
            lines,
            stdout,
            stderr,
            keyboard,
            _home: home,
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("not waited for yet")
    }

    /// Waits for a line of stdout or stderr that contains `part`, and gives the line.
    pub(crate) async fn wait_for_line(&mut self, part: &str) -> String {
        let mut seen = String::new();
        let search = async {
            while let Some(line) = self.lines.recv().await {
                if line.contains(part) {
                    return Some(line);
                }
                seen.push_str(&line);
                seen.push('\n');
            }
            None
        };
        match tokio::time::timeout(LIMIT, search).await {
            Ok(Some(line)) => line,
            ended => panic!("no line with {part:?} (ended or too late: {ended:?}); seen:\n{seen}"),
        }
    }

    /// Types into the terminal.
    pub(crate) async fn type_in(&mut self, text: &str) {
        let keyboard = self
            .keyboard
            .as_mut()
            .expect("a process with a pty and no stdin of its own");
        keyboard
            .write_all(text.as_bytes())
            .await
            .expect("the terminal is open");
    }

    /// Presses Ctrl-C as people do: again when nothing comes of it. (What is typed while the terminal is still in
    /// its ordinary mode is a signal, which comes too early for a question that is only about to be asked.)
    pub(crate) async fn press_ctrl_c(mut self) -> Output {
        for _ in 0..20 {
            if let Some(keyboard) = &mut self.keyboard {
                // The process may have ended meanwhile, and the terminal with it.
                let _ = keyboard.write_all(b"\x03").await;
            }
            if tokio::time::timeout(Duration::from_secs(2), self.child.wait())
                .await
                .is_ok()
            {
                break;
            }
        }
        self.wait().await
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).expect("a pid");
        nix::sys::signal::kill(Pid::from_raw(pid), signal).expect("the process lives");
    }

    /// `kill -9`, and waits until the process is gone.
    pub(crate) async fn kill9(mut self) -> Output {
        self.signal(Signal::SIGKILL);
        let status = self.child.wait().await.expect("our own child");
        self.finish(status).await
    }

    /// Waits for the end.
    pub(crate) async fn wait(self) -> Output {
        self.wait_within(LIMIT).await
    }

    /// Waits for the end, at most this long.
    pub(crate) async fn wait_within(mut self, limit: Duration) -> Output {
        let Ok(status) = tokio::time::timeout(limit, self.child.wait()).await else {
            self.signal(Signal::SIGKILL);
            let status = self.child.wait().await.expect("our own child");
            panic!(
                "still running after {limit:?}: {}",
                self.finish(status).await.transcript()
            );
        };
        self.finish(status.expect("our own child")).await
    }

    async fn finish(self, status: ExitStatus) -> Output {
        use std::os::unix::process::ExitStatusExt;
        let code = status
            .code()
            .or_else(|| Some(128 + status.signal()?))
            .expect("it has ended");
        let stdout = self.stdout.await.expect("the reader lives");
        let stderr = self.stderr.await.expect("the reader lives");
        Output { code, stdout, stderr }
    }
}

/// Collects a stream and passes its lines on as they come.
fn collect(
    stream: impl AsyncRead + Unpin + Send + 'static,
    lines: mpsc::UnboundedSender<String>,
) -> JoinHandle<String> {
    tokio::spawn(async move {
        let mut reader = BufReader::new(stream);
        let mut all = Vec::new();
        loop {
            let start = all.len();
            match reader.read_until(b'\n', &mut all).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {
                    let line = String::from_utf8_lossy(&all[start..]).trim_end().to_owned();
                    // Nobody may be waiting for lines any more.
                    let _ = lines.send(line);
                }
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    })
}

/// One word for /bin/sh.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}
