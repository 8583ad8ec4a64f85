//! The whole terminal, for as long as `top` has it: taken, and put back on every way out that a process can see.
//! `kill -9` is none; then `reset` does it.

use std::io::{self, IsTerminal};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use super::top::{Theme, draw};
use crate::exit::{CliError, Result};
use crate::top::app::App;

/// Whether the terminal is ours.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal; dropped, it is as it was.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<io::Stdout>>,
    theme: Theme,
}

impl Screen {
    /// Refuses where there is nobody to look or to press keys.
    pub(crate) fn check(term: Option<&str>) -> Result<()> {
        let both = io::stdin().is_terminal() && io::stdout().is_terminal();
        if both && term.is_some_and(|term| term != "dumb") {
            return Ok(());
        }
        Err(
            CliError::usage("`top` needs a terminal on stdin and stdout that can move its cursor").hint(
                "for programs: `idemctl stats -o json`, `idemctl list --state expired -o json`, or /metrics of the janitor",
            ),
        )
    }

    pub(crate) fn enter() -> Result<Self> {
        restore_on_panic();
        let colour = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
        Ok(Self {
            terminal: take().map_err(failed)?,
            theme: Theme { colour },
        })
    }

    /// Draws all of it; only what changed is sent.
    pub(crate) fn draw(&mut self, app: &mut App) -> Result<()> {
        let theme = self.theme;
        self.terminal
            .draw(|frame| draw(frame, app, theme))
            .map(drop)
            .map_err(failed)
    }

    /// Gives the terminal to somebody else.
    pub(crate) fn leave(&mut self) {
        // A terminal that is gone needs nothing any more.
        let _gone = self.terminal.show_cursor();
        put_back();
    }

    /// Takes it again, whatever was done to it meanwhile.
    pub(crate) fn again(&mut self) -> Result<()> {
        put_back();
        self.terminal = take().map_err(failed)?;
        // The one that is dropped here shows the cursor once more.
        execute!(io::stdout(), Hide).map_err(failed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        put_back();
    }
}

fn take() -> io::Result<Terminal<CrosstermBackend<io::Stdout>>> {
    TAKEN.store(true, Ordering::SeqCst);
    let taken = || {
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Terminal::new(CrosstermBackend::new(io::stdout()))
    };
    taken().inspect_err(|_| put_back())
}

/// Any number of times, from anywhere.
fn put_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone needs nothing any more.
        let _gone = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _gone = disable_raw_mode();
    }
}

/// Before anything is said of the panic: on the alternate screen it would be lost.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            put_back();
            before(panic);
        }));
    });
}

fn failed(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::from(error),
        _ => CliError::new(
            crate::exit::Exit::Other,
            format!("couldn't use the terminal: {error}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    #[ignore = "a child process"]
    fn child_panics_on_the_screen() {
        let _screen = Screen::enter().unwrap();
        panic!("the bug is said");
    }

    /// In a real terminal: the alternate screen is left before the panic is told.
    #[test]
    fn a_panic_puts_the_terminal_back_first() {
        let this = std::env::current_exe().unwrap();
        let line = format!(
            "stty -a; {} --exact render::screen::tests::child_panics_on_the_screen --ignored --nocapture; stty -a",
            this.display()
        );
        let mut command = Command::new("script");
        command
            .args(["-q", "-e", "-c", &line, "/dev/null"])
            .env("TERM", "xterm");
        let output = command.stdin(Stdio::piped()).output().unwrap();
        let all = String::from_utf8_lossy(&output.stdout);
        let entered = all.find("\x1b[?1049h").expect("it was entered");
        let left = all.find("\x1b[?1049l").expect("it was left");
        let shown = all.find("\x1b[?25h").expect("the cursor is seen");
        let said = all.find("the bug is said").expect("the panic is told");
        assert!(entered < left && left < said && shown < said, "{all}");
        let modes: Vec<&str> = all
            .split("speed ")
            .skip(1)
            .map(|part| part.split("\r\n\r\n").next().unwrap())
            .collect();
        let modes: Vec<String> = modes
            .iter()
            .map(|modes| modes.lines().take(10).collect())
            .collect();
        assert!(
            modes.len() == 2 && modes[0] == modes[1] && modes[0].contains(" icanon"),
            "{all}"
        );
    }
}
