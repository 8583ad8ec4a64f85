//! Who asks: the database over one connection, one question after the other; and the provider beside it. Keys are
//! never kept waiting by either.

use idemctl::connect::Connection;
use idemctl::key::KeyId;
use idemctl::ops::inspect;
use idemctl::ops::top::{self, Look, Request};
use idemctl::store::Store;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::commands::inspect::{gone, view};
use crate::context::Context;
use crate::exit::{CliError, Exit, Result};
use crate::render::inspect::InspectView;
use crate::render::provider::StatusView;

/// A question to the database.
#[derive(Debug)]
pub(super) enum Question {
    Look,
    /// One key; `ask`: its provider is asked as well.
    Key {
        id: KeyId,
        ask: bool,
    },
}

/// What came of it.
pub(super) enum Answer {
    Look(Result<Look>),
    Key(KeyId, Result<Box<InspectView>>),
    /// The row was read; now somebody has to ask its provider.
    Row(KeyId, Box<inspect::Report>),
}

/// The connection, made anew where it was lost.
pub(super) struct Database<'a> {
    pub(super) context: &'a Context,
    pub(super) request: Request,
    pub(super) way: Option<(Connection, Store)>,
}

impl Database<'_> {
    /// Answers until nobody asks any more.
    pub(super) async fn serve(
        mut self,
        mut questions: UnboundedReceiver<Question>,
        answers: UnboundedSender<Answer>,
    ) {
        while let Some(question) = questions.recv().await {
            let answer = match question {
                Question::Look => Answer::Look(self.look().await),
                Question::Key { id, ask } => match self.key(&id).await {
                    Ok(report) if ask => Answer::Row(id, Box::new(report)),
                    Ok(report) => Answer::Key(id, Ok(Box::new(view(self.context, report, false, None)))),
                    Err(error) => Answer::Key(id, Err(error)),
                },
            };
            // Whoever asked has gone: so does this.
            if answers.send(answer).is_err() {
                return;
            }
        }
    }

    async fn look(&mut self) -> Result<Look> {
        let (connection, store) = open(self.context, &mut self.way).await?;
        let found = top::look(&*connection, store, &self.request).await;
        self.keep(found.map_err(CliError::from))
    }

    async fn key(&mut self, id: &KeyId) -> Result<inspect::Report> {
        let (connection, store) = open(self.context, &mut self.way).await?;
        let found = async {
            if let Some(report) = inspect::run(&*connection, store, id, false).await? {
                return Ok(report);
            }
            let history = inspect::history(&*connection, store, id).await?;
            Err(gone(self.context, id, history))
        };
        let found = found.await;
        self.keep(found)
    }

    /// A connection on which something went wrong is not used again.
    fn keep<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.as_ref().is_err_and(|error| error.exit() == Exit::Database) {
            self.way = None;
        }
        result
    }
}

async fn open<'w>(
    context: &Context,
    way: &'w mut Option<(Connection, Store)>,
) -> Result<&'w mut (Connection, Store)> {
    match way {
        Some(way) => Ok(way),
        None => Ok(way.insert(context.open().await?)),
    }
}

/// Asks providers about rows, one after the other.
pub(super) async fn ask(
    context: &Context,
    mut rows: UnboundedReceiver<(KeyId, Box<inspect::Report>)>,
    answers: UnboundedSender<Answer>,
) {
    while let Some((id, report)) = rows.recv().await {
        let asked = context.ask_about(&report.record, None).await;
        let seen = match asked {
            Ok(Some(status)) => {
                let says = StatusView::new(&status);
                Ok(Box::new(view(context, *report, false, Some(says))))
            }
            Ok(None) => Err(CliError::usage(
                "nobody can be asked: no provider is configured, and the row names none",
            )),
            Err(error) => Err(error),
        };
        if answers.send(Answer::Key(id, seen)).is_err() {
            return;
        }
    }
}
