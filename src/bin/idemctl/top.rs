//! The live view: one loop over keys, signals, answers and time. Nothing in it waits for a database or a provider.

pub(crate) mod app;
mod child;
pub(crate) mod rates;
#[cfg(test)]
mod tests;
pub(crate) mod view;
mod work;

use std::time::Duration;

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use idemctl::connect::Connection;
use idemctl::key::KeyId;
use idemctl::ops::top::{Look, Request};
use idemctl::store::Store;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook_tokio::Signals;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use self::app::{Action, App, Content};
use self::view::Shown;
use self::work::{Answer, Database, Question};
use crate::cli::GlobalArgs;
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::line;
use crate::render::screen::Screen;

/// After so long without an answer it is said that there is none.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long `reconcile` has to end what is under way before it is told a second time, which ends it on the spot: a
/// question that nobody answers holds it up.
const GRACE: Duration = Duration::from_secs(2);
/// How often that is brought up to date.
const TICK: Duration = Duration::from_secs(1);

/// Shows until somebody quits.
pub(crate) async fn run(
    context: &Context,
    global: &GlobalArgs,
    request: Request,
    interval: Duration,
) -> Result<Exit> {
    Screen::check(context.settings.environment().get("TERM"))?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGTSTP, SIGCONT])
        .map_err(|error| CliError::new(Exit::Other, format!("couldn't handle signals: {error}")))?;
    let way = open(context, &mut signals).await?;
    let app = App::new(place(&way), request.client_id.clone(), interval);
    let (questions, asked) = unbounded_channel();
    let (rows, to_ask) = unbounded_channel();
    let (answer, mut answers) = unbounded_channel();
    let database = Database {
        context,
        request,
        way: Some(way),
    };
    let work = async {
        tokio::join!(
            Box::pin(database.serve(asked, answer.clone())),
            Box::pin(work::ask(context, to_ask, answer.clone())),
        )
    };
    let mut top = Top {
        context,
        global,
        app,
        screen: Screen::enter()?,
        events: Some(EventStream::new()),
        signals,
        questions,
        rows,
        looking: None,
        next: Instant::now(),
        silent: None,
    };
    tokio::select! {
        result = Box::pin(top.watch(&mut answers)) => result,
        // They end when nobody asks any more, which is after the end of the above.
        _ended = work => Err(CliError::new(Exit::Bug, "nobody asks the database any more")),
    }
}

/// Ctrl-Z comes before there is anything to put back; the others end the process.
async fn open(context: &Context, signals: &mut Signals) -> Result<(Connection, Store)> {
    let opened = context.open();
    tokio::pin!(opened);
    loop {
        tokio::select! {
            way = &mut opened => return way,
            signal = signals.next() => match signal {
                Some(SIGTSTP) => stop_here(),
                Some(SIGCONT) => {}
                _ => return Err(interrupted()),
            }
        }
    }
}

fn place((connection, store): &(Connection, Store)) -> String {
    let facts = connection.facts();
    format!("{} on {} schema {}", facts.database, facts.host, store.schema())
}

fn interrupted() -> CliError {
    CliError::new(Exit::Interrupted, "interrupted")
}

/// What the signal does to a process that does not handle it.
fn stop_here() {
    if let Err(error) = signal_hook::low_level::emulate_default_handler(SIGTSTP) {
        tracing::warn!(%error, "couldn't stop");
    }
}

struct Top<'a> {
    context: &'a Context,
    global: &'a GlobalArgs,
    app: App,
    screen: Screen,
    /// `None` while another program has the terminal.
    events: Option<EventStream>,
    signals: Signals,
    questions: UnboundedSender<Question>,
    rows: UnboundedSender<(KeyId, Box<idemctl::ops::inspect::Report>)>,
    /// Since when a look is under way.
    looking: Option<Instant>,
    /// When the next look is due.
    next: Instant,
    /// Since when there was no answer, and the latest reason.
    silent: Option<(Instant, String)>,
}

impl Top<'_> {
    async fn watch(&mut self, answers: &mut UnboundedReceiver<Answer>) -> Result<Exit> {
        loop {
            self.tell_silence();
            self.screen.draw(&mut self.app)?;
            let due = self.looking.is_none();
            let next = self.next;
            tokio::select! {
                biased;
                signal = self.signals.next() => match signal {
                    Some(SIGTSTP) => self.suspend()?,
                    // Somebody may have used the terminal meanwhile.
                    Some(SIGCONT) => self.screen.again()?,
                    _ => return Err(interrupted()),
                },
                event = next_event(&mut self.events) => {
                    if let Some(exit) = self.on_event(event).await? {
                        return Ok(exit);
                    }
                }
                answer = answers.recv() => if let Some(answer) = answer {
                    self.take(answer);
                },
                () = tokio::time::sleep_until(next), if due => self.look(),
                () = tokio::time::sleep(TICK), if !due || self.silent.is_some() => {}
            }
        }
    }

    async fn on_event(&mut self, event: Option<std::io::Result<Event>>) -> Result<Option<Exit>> {
        match event {
            Some(Ok(Event::Key(key))) if key.kind == KeyEventKind::Press => match self.app.on_key(key) {
                Some(action) => self.act(action).await,
                None => Ok(None),
            },
            // The size is asked for when it is drawn.
            Some(Ok(_)) => Ok(None),
            Some(Err(error)) => {
                let what = format!("couldn't read from the terminal: {error}");
                Err(CliError::new(Exit::Other, what))
            }
            None => Err(CliError::new(Exit::Other, "the terminal is gone")),
        }
    }

    async fn act(&mut self, action: Action) -> Result<Option<Exit>> {
        match action {
            Action::Quit => return Ok(Some(Exit::Done)),
            Action::Interrupt => return Err(interrupted()),
            Action::Suspend => self.suspend()?,
            Action::Look => self.next = Instant::now(),
            Action::Inspect(id) => self.ask(Question::Key { id, ask: false }),
            Action::Ask(id) => self.ask(Question::Key { id, ask: true }),
            Action::Reconcile { id, reason } => {
                Box::pin(self.reconcile(&id, reason.as_deref())).await?;
                self.next = Instant::now();
            }
        }
        Ok(None)
    }

    fn look(&mut self) {
        self.looking = Some(Instant::now());
        self.next = Instant::now() + self.app.interval;
        self.ask(Question::Look);
    }

    /// Its reader lives as long as we do.
    fn ask(&self, question: Question) {
        let _nobody_left = self.questions.send(question);
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Look(Ok(look)) => {
                self.looking = None;
                self.silent = None;
                self.show(look);
            }
            Answer::Look(Err(error)) => {
                let began = self.looking.take().unwrap_or_else(Instant::now);
                let since = self.silent.as_ref().map_or(began, |(since, _)| *since);
                self.silent = Some((since, error.message().to_owned()));
            }
            Answer::Key(id, Ok(view)) => self.app.fill(&id, Content::Key(view)),
            Answer::Key(id, Err(error)) => {
                let hint = error.hint_text().map(|hint| format!(" ({hint})"));
                let text = format!("{}{}", error.message(), hint.unwrap_or_default());
                let text = crate::render::printable(&text);
                self.app.fill(&id, Content::Failed(text));
            }
            Answer::Row(id, report) => {
                let _nobody_left = self.rows.send((id, report));
            }
        }
    }

    fn show(&mut self, look: Look) {
        let expired = look.expired.map(|expired| expired.all.rows);
        self.app.rates.add(look.counters, expired);
        let shown = Shown::new(look, &self.context.settings.config);
        self.app.show(shown);
    }

    /// Failed, or not answered for a while.
    fn tell_silence(&mut self) {
        let waiting = self.looking.filter(|since| since.elapsed() > PATIENCE);
        let silent = match (&self.silent, waiting) {
            (Some((since, why)), _) => Some((*since, why.clone())),
            (None, Some(since)) => Some((since, "it has not answered yet".to_owned())),
            (None, None) => None,
        };
        self.app.away = silent.map(|(since, why)| (since.elapsed().as_secs_f64(), why));
    }

    fn suspend(&mut self) -> Result<()> {
        self.screen.leave();
        stop_here();
        self.screen.again()
    }

    /// The very command on the ordinary screen; then back.
    async fn reconcile(&mut self, id: &KeyId, reason: Option<&str>) -> Result<()> {
        let mut command = child::reconcile(self.global, id, reason)?;
        // It has the keyboard now.
        self.events = None;
        self.screen.leave();
        line(&format!("idemctl reconcile {id}"))?;
        let mut child = command.kill_on_drop(false).spawn().map_err(|error| {
            CliError::new(Exit::Other, format!("couldn't run `idemctl reconcile`: {error}"))
        })?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let mut ending = false;
        let mut again: Option<Instant> = None;
        let status = loop {
            let due = again.unwrap_or_else(Instant::now);
            tokio::select! {
                status = child.wait() => break status,
                () = tokio::time::sleep_until(due), if again.is_some() => {
                    again = None;
                    terminate(pid);
                }
                signal = self.signals.next() => match signal {
                    Some(SIGTSTP) => stop_here(),
                    // The terminal sent it to both, and it is the other one's.
                    Some(SIGINT | SIGCONT) => {}
                    _ => {
                        again = (!ending).then(|| Instant::now() + GRACE);
                        ending = true;
                        terminate(pid);
                    }
                }
            }
        };
        if ending {
            return Err(interrupted());
        }
        let code = status.ok().and_then(|status| status.code());
        let code = code.map_or("a signal".to_owned(), |code| format!("exit {code}"));
        line(&format!("({code}) Enter goes back to top"))?;
        self.wait_for_enter().await?;
        self.screen.again()?;
        self.events = Some(EventStream::new());
        Ok(())
    }

    async fn wait_for_enter(&mut self) -> Result<()> {
        let typed = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        tokio::pin!(typed);
        loop {
            tokio::select! {
                _read = &mut typed => return Ok(()),
                signal = self.signals.next() => match signal {
                    Some(SIGTSTP) => stop_here(),
                    Some(SIGCONT) => {}
                    _ => return Err(interrupted()),
                }
            }
        }
    }
}

fn terminate(pid: Option<i32>) {
    if let Some(pid) = pid {
        // It may have ended in this moment.
        let _gone =
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM);
    }
}

async fn next_event(events: &mut Option<EventStream>) -> Option<std::io::Result<Event>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}
