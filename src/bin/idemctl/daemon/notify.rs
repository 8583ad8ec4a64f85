//! What the service manager is told: `sd_notify(3)`. Without `NOTIFY_SOCKET` nobody is.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use sd_notify::NotifyState;

/// Longest text of `STATUS=`; the manager shows it in one line.
const MOST_CHARS: usize = 1000;

/// How long the last messages may take to be sent at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// One message.
#[derive(Debug)]
enum Message {
    Ready(String),
    Status(String),
    Reloading,
    Stopping(String, Duration),
    Extend(Duration),
    Alive,
}

impl Message {
    fn has_status(&self) -> bool {
        matches!(self, Self::Ready(_) | Self::Status(_) | Self::Stopping(..))
    }
}

/// The way to the service manager. Sending never waits: a manager that is slow to read must not hold up the work.
pub(crate) struct Notifier {
    /// `None`: nobody listens.
    sender: Mutex<Option<mpsc::Sender<Message>>>,
    ended: Mutex<mpsc::Receiver<()>>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// `listening`: whether `NOTIFY_SOCKET` is set.
    pub(crate) fn new(listening: bool) -> Self {
        Self::through(listening.then_some(send), sd_notify::watchdog_enabled())
    }

    /// Sends through a function of its own; `None`: nobody listens.
    fn through(send: Option<impl Fn(&Message) + Send + 'static>, watchdog: Option<Duration>) -> Self {
        let (end, ended) = mpsc::channel();
        let (sender, messages) = mpsc::channel::<Message>();
        let thread = send.map(|send| {
            thread::Builder::new().name("notify".to_owned()).spawn(move || {
                while let Ok(first) = messages.recv() {
                    // A manager that is slow to read gets the newest status, not each of them.
                    let mut batch: Vec<_> = std::iter::once(first).chain(messages.try_iter()).collect();
                    let newest = batch.iter().rposition(Message::has_status);
                    let mut index = 0..;
                    batch.retain(|message| index.next() >= newest || !matches!(message, Message::Status(_)));
                    batch.iter().for_each(&send);
                }
                // Nobody may be waiting any more.
                let _ = end.send(());
            })
        });
        let running = match thread {
            Some(Ok(_)) => true,
            Some(Err(error)) => {
                tracing::warn!(%error, "the service manager cannot be told anything");
                false
            }
            None => false,
        };
        Self {
            sender: Mutex::new(running.then_some(sender)),
            ended: Mutex::new(ended),
            watchdog: watchdog.filter(|_| running),
        }
    }

    /// One whose manager is a test that wants to hear within this time: what it is told, as text.
    #[cfg(test)]
    pub(super) fn tested(watchdog: Duration) -> (Self, mpsc::Receiver<String>) {
        let (told, messages) = mpsc::channel();
        let send = move |message: &Message| {
            // The test may have ended.
            let _ = told.send(format!("{message:?}"));
        };
        (Self::through(Some(send), Some(watchdog)), messages)
    }

    /// How often the manager wants to hear that all is well: half of the time after which it ends us, as
    /// `sd_watchdog_enabled(3)` recommends.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog
            .map(|limit| (limit / 2).max(Duration::from_millis(1)))
    }

    /// Able to work; again after [`Notifier::reloading`].
    pub(crate) fn ready(&self, status: &str) {
        self.tell(Message::Ready(one_line(status)));
    }

    pub(crate) fn status(&self, status: &str) {
        self.tell(Message::Status(one_line(status)));
    }

    pub(crate) fn reloading(&self) {
        self.tell(Message::Reloading);
    }

    /// `within`: what `TimeoutStopSec=` may be too short for.
    pub(crate) fn stopping(&self, status: &str, within: Duration) {
        self.tell(Message::Stopping(one_line(status), within));
    }

    /// Not ready yet, and still at it: the start may take this much longer from now.
    pub(crate) fn extend_start(&self, by: Duration) {
        self.tell(Message::Extend(by));
    }

    /// Feeds the watchdog, where there is one.
    pub(crate) fn alive(&self) {
        if self.watchdog.is_some() {
            self.tell(Message::Alive);
        }
    }

    fn tell(&self, message: Message) {
        if let Some(sender) = &*lock(&self.sender) {
            // The thread ends only after the sender has gone.
            let _ = sender.send(message);
        }
    }

    /// Lets the last messages out.
    pub(crate) fn close(&self) {
        if lock(&self.sender).take().is_some() {
            // Whether they were sent or the manager does not read, the process ends now.
            let _ = lock(&self.ended).recv_timeout(FAREWELL);
        }
    }
}

fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing in it is half-written.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line of its own for `STATUS=`: a line break would begin another assignment.
fn one_line(text: &str) -> String {
    let text = crate::render::printable(text);
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

/// `EXTEND_TIMEOUT_USEC=`, counted from when it is received.
fn extend(by: Duration) -> NotifyState<'static> {
    NotifyState::ExtendTimeoutUsec(u32::try_from(by.as_micros()).unwrap_or(u32::MAX))
}

fn send(message: &Message) {
    let sent = match message {
        Message::Ready(status) => sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)]),
        Message::Status(status) => sd_notify::notify(&[NotifyState::Status(status)]),
        // In one datagram: Type=notify-reload of systemd 253 and later wants both.
        Message::Reloading => NotifyState::monotonic_usec_now()
            .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now])),
        Message::Stopping(status, within) => sd_notify::notify(&[
            NotifyState::Stopping,
            NotifyState::Status(status),
            extend(*within),
        ]),
        Message::Extend(by) => sd_notify::notify(&[extend(*by)]),
        Message::Alive => sd_notify::notify(&[NotifyState::Watchdog]),
    };
    if let Err(error) = sent {
        tracing::debug!(%error, "the service manager could not be told");
    }
}
