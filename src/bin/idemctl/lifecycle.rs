//! Signals: the first SIGTERM or SIGINT finishes what is under way, the second gives it up, a third ends the
//! process on the spot. SIGHUP asks a daemon to read its configuration again, SIGUSR1 to log how it stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use idemctl::stop::{self, Stop, Stopper};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook_tokio::SignalsInfo;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::exit::{CliError, Exit, Result};

/// What the process was asked to do.
pub(crate) struct Lifecycle {
    /// For the library's long work.
    pub(crate) stop: Stop,
    /// One message for each SIGHUP; a burst may be one.
    pub(crate) reload: mpsc::Receiver<()>,
    /// One message for each SIGUSR1; a burst may be one.
    pub(crate) report: mpsc::Receiver<()>,
    stopper: Arc<Stopper>,
    asked: Arc<AtomicU8>,
}

/// Values of `asked`.
const NOTHING: u8 = 0;
const TERMINATE: u8 = 1;
const INTERRUPT: u8 = 2;
const AT_ONCE: u8 = 3;

impl Lifecycle {
    /// Takes the signals over. `daemon`: SIGHUP reloads; otherwise it ends the process as usual.
    pub(crate) fn install(daemon: bool) -> Result<Self> {
        Self::take_over(daemon, false)
    }

    /// For a command that somebody waits for: a second signal ends it on the spot, for instance while a pager
    /// that nobody scrolls keeps it from writing.
    pub(crate) fn install_short() -> Result<Self> {
        Self::take_over(false, true)
    }

    /// Work that a signal ends: the statement under way is stopped on the server too.
    pub(crate) async fn unless_stopped<T>(
        &self,
        context: &Context,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        tokio::pin!(work);
        tokio::select! {
            biased;
            () = self.stop.soft() => {}
            result = &mut work => return result,
        }
        // A request that arrives between two messages of the same statement has no effect, so it is repeated
        // until the work has ended.
        for patience in [50, 200, 500].map(Duration::from_millis) {
            context.cancel().await;
            if let Ok(result) = tokio::time::timeout(patience, &mut work).await {
                result
                    .inspect_err(|error| tracing::debug!("ended with: {}", error.message()))
                    .ok();
                break;
            }
        }
        Err(CliError::new(Exit::Interrupted, "interrupted"))
    }

    fn take_over(daemon: bool, second_ends: bool) -> Result<Self> {
        let failed =
            |error: std::io::Error| CliError::new(Exit::Other, format!("couldn't handle signals: {error}"));
        // For a shutdown that hangs: 130 is "interrupted" in our table of exit codes.
        let armed = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            let code = i32::from(Exit::Interrupted as u8);
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&armed))
                .map_err(failed)?;
        }
        let wanted: &[i32] = if daemon {
            &[SIGTERM, SIGINT, SIGHUP, SIGUSR1]
        } else {
            &[SIGTERM, SIGINT]
        };
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted).map_err(failed)?;
        let (stopper, stop) = stop::channel();
        let stopper = Arc::new(stopper);
        let asking = Arc::clone(&stopper);
        let (send_reload, reload) = mpsc::channel(1);
        let (send_report, report) = mpsc::channel(1);
        let asked = Arc::new(AtomicU8::new(NOTHING));
        let told = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Some(origin) = signals.next().await {
                let sender = origin
                    .process
                    .map_or_else(|| "unknown".to_owned(), |process| process.pid.to_string());
                match origin.signal {
                    SIGHUP => {
                        tracing::info!(%sender, "SIGHUP: reading the configuration again");
                        // A reload that is still waiting will read what is there by then.
                        let _ = send_reload.try_send(());
                    }
                    SIGUSR1 => {
                        let _ = send_report.try_send(());
                    }
                    signal if told.load(Ordering::SeqCst) == NOTHING => {
                        tracing::info!(signal, %sender, "stopping after what is under way");
                        let asked = if signal == SIGINT { INTERRUPT } else { TERMINATE };
                        told.store(asked, Ordering::SeqCst);
                        armed.store(second_ends, Ordering::SeqCst);
                        asking.soft();
                    }
                    signal => {
                        tracing::warn!(signal, ?sender, "stopping at once");
                        told.store(AT_ONCE, Ordering::SeqCst);
                        armed.store(true, Ordering::SeqCst);
                        asking.hard();
                    }
                }
            }
        });
        Ok(Self {
            stop,
            reload,
            report,
            stopper,
            asked,
        })
    }

    /// The time for an orderly end is over: what is under way is given up.
    pub(crate) fn give_up(&self) {
        self.stopper.hard();
    }

    /// How a daemon ends that did what it was asked: a service manager's SIGTERM is its ordinary end.
    pub(crate) fn daemon_exit(&self) -> Exit {
        match self.asked.load(Ordering::SeqCst) {
            NOTHING | TERMINATE => Exit::Done,
            _ => Exit::Interrupted,
        }
    }
}
