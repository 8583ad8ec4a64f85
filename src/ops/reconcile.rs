//! Stuck keys: asks the provider about each, says what that means, and does the safe thing once.
//!
//! | what is known | action |
//! | --- | --- |
//! | the provider says `charged`, and its section says what to store | complete: the client's retry gets the answer |
//! | the provider says `not_charged` | release: the next request starts afresh |
//! | `pending`, `unknown`, or a lease that is alive | wait |
//! | `authorized`; `charged` and nothing says what to store; nobody can be asked | leave for a person |
//!
//! A row is changed only while it is still as it was seen (token, attempt, lease end, expired), in one
//! transaction with its event.

mod asking;
mod backoff;
mod database;
mod ending;
mod plan;
mod proposal;
mod report;

use futures_util::StreamExt as _;
use tokio::time::Instant;
use uuid::Uuid;

pub use backoff::Backoff;
pub use database::Database;
pub use plan::{MAX_PLAN_BYTES, Plan, PlannedResponse, PlannedRow};
pub use proposal::{Action, Obstacle, Proposal};
pub use report::{Item, Outcome, Report};

use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::ops::Failure;
use crate::ops::actor::Actor;
use crate::ops::ask::Providers;
use crate::record::Record;
use crate::stop::Stop;
use ending::{Payments, Writer};

/// How many questions to one provider may be under way at once: 1 to this.
pub const MAX_CONCURRENCY: usize = 64;

/// How many questions a second to one provider: at least one in about 17 minutes, at most 1,000.
pub const RPS_RANGE: std::ops::RangeInclusive<f64> = 0.001..=1000.0;

/// The rows, as far as they are known.
#[derive(Debug)]
pub enum Rows {
    /// As they were just read: each is asked about.
    Seen(Vec<Record>),
    /// As somebody was shown them a moment ago: they are not asked about again.
    Proposed(Vec<Proposal>),
    /// Of a plan that has waited: each is read and asked about again, and is changed only where that comes to the
    /// same action.
    Planned(Vec<PlannedRow>),
}

impl Rows {
    /// The keys that the report will have.
    fn ids(&self) -> Vec<KeyId> {
        match self {
            Self::Seen(rows) => rows.iter().map(|row| row.id.clone()).collect(),
            Self::Proposed(rows) => rows.iter().map(|row| row.seen.id.clone()).collect(),
            Self::Planned(rows) => {
                let changing = rows.iter().filter(|row| row.changes());
                changing.map(PlannedRow::id).collect()
            }
        }
    }

    /// How many the report will have.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match self {
            Self::Seen(rows) => rows.len(),
            Self::Proposed(rows) => rows.len(),
            Self::Planned(rows) => rows.iter().filter(|row| row.changes()).count(),
        }
    }
}

/// What to do.
#[derive(Debug)]
pub struct Request<'a> {
    /// With which rows.
    pub rows: Rows,
    /// Do it; otherwise only propose.
    pub write: bool,
    /// Whom to ask about rows that name no provider.
    pub named: Option<&'a str>,
    /// How many questions to one provider may be under way at once, 1 to [`MAX_CONCURRENCY`].
    pub concurrency: usize,
    /// How many questions a second to one provider at most, within [`RPS_RANGE`]; `None`: no limit.
    pub rps: Option<f64>,
    /// Who acts, and why.
    pub actor: Actor,
}

impl Request<'_> {
    /// Four questions to each provider at once.
    pub fn new(rows: Rows, write: bool, actor: Actor) -> Self {
        Self {
            rows,
            write,
            named: None,
            concurrency: 4,
            rps: None,
            actor,
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |field, reason: String| Err(Error::Invalid { field, reason });
        if !(1..=MAX_CONCURRENCY).contains(&self.concurrency) {
            let reason = format!("is {}; 1 to {MAX_CONCURRENCY} are allowed", self.concurrency);
            return wrong("concurrency", reason);
        }
        match self.rps {
            Some(rps) if !RPS_RANGE.contains(&rps) => {
                let (least, most) = (RPS_RANGE.start(), RPS_RANGE.end());
                wrong("rps", format!("is {rps}; {least} to {most} are allowed"))
            }
            _ => Ok(()),
        }
    }
}

/// What the work tells of, row by row.
struct Log<'a, P> {
    report: &'a mut Report,
    progress: &'a mut P,
    payments: Payments,
}

impl<P: FnMut(&Item)> Log<'_, P> {
    fn tell(&mut self, item: Item) {
        count(&item);
        (self.progress)(&item);
        self.report.under_way = None;
        self.report.items.push(item);
    }

    /// Ends a row, if that is what it comes to, and tells what became of it.
    async fn end(
        &mut self,
        db: &mut Database<'_>,
        writer: Option<&Writer<'_>>,
        (proposal, planned): (Proposal, Option<PlannedRow>),
        stop: &Stop,
    ) -> Result<()> {
        self.report.under_way = writer.map(|_| proposal.seen.id.clone());
        let decided = ending::decide(db, writer, proposal, planned, &mut self.payments, stop).await;
        self.tell(decided.row);
        decided.fatal.map_or(Ok(()), Err)
    }
}

/// A row that still has to be asked about or ended.
#[derive(Debug)]
pub(crate) struct Ready {
    seen: Record,
    /// What a plan says must come out of it.
    planned: Option<PlannedRow>,
}

/// Asks about each row and, if so requested, ends those that can be ended.
///
/// Questions run beside each other, each provider in a lane of its own, so that one that is slow or dead holds up
/// no rows of others; the rows are written one after the other. Neither a lost race nor an error of one row stops
/// the rest. A lost connection is made anew where `db` permits; otherwise it ends the run, and the failure carries
/// the report so far. A soft stop ends it after the row under way, a hard one at once.
pub async fn run(
    db: &mut Database<'_>,
    providers: &Providers,
    request: Request<'_>,
    stop: &Stop,
    progress: &mut impl FnMut(&Item),
) -> Result<Report, Failure<Report>> {
    let started = Instant::now();
    let ids = request.rows.ids();
    let mut report = Report::default();
    let result = tokio::select! {
        biased;
        () = stop.hard() => Err(Error::Interrupted),
        result = work(db, providers, request, stop, progress, &mut report) => result,
    };
    report.interrupted = stop.is_soft() && report.items.len() < ids.len();
    report.elapsed = started.elapsed();
    report.list_the_rest(ids);
    match result {
        Ok(()) => Ok(report),
        Err(cause) => Err(Failure {
            report: Box::new(report),
            cause,
        }),
    }
}

async fn work(
    db: &mut Database<'_>,
    providers: &Providers,
    request: Request<'_>,
    stop: &Stop,
    progress: &mut impl FnMut(&Item),
    report: &mut Report,
) -> Result<()> {
    request.check()?;
    let writer = request.write.then_some(Writer {
        actor: &request.actor,
        run: Uuid::new_v4(),
    });
    let mut log = Log {
        report,
        progress,
        payments: Payments::default(),
    };
    let ready = match request.rows {
        Rows::Seen(records) => records
            .into_iter()
            .map(|seen| Ready { seen, planned: None })
            .collect(),
        Rows::Planned(rows) => plan::read_again(db, rows, stop, &mut |item| log.tell(item)).await?,
        Rows::Proposed(proposals) => {
            for proposal in proposals {
                if stop.is_soft() {
                    break;
                }
                log.end(db, writer.as_ref(), (proposal, None), stop).await?;
            }
            return Ok(());
        }
    };
    let questions = asking::Questions {
        providers,
        named: request.named,
        concurrency: request.concurrency,
        rps: request.rps,
        stop,
    };
    ask_and_end(questions, ready, db, writer.as_ref(), stop, &mut log).await
}

/// Asks and writes at the same time.
async fn ask_and_end(
    questions: asking::Questions<'_>,
    ready: Vec<Ready>,
    db: &mut Database<'_>,
    writer: Option<&Writer<'_>>,
    stop: &Stop,
    log: &mut Log<'_, impl FnMut(&Item)>,
) -> Result<()> {
    // Without a bound, which the rows are: the questions under way have deadlines, and must not wait for the writing.
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let ask = async move {
        let mut proposals = questions.ask_all(ready);
        while let Some(proposal) = proposals.next().await {
            if send.send(proposal).is_err() {
                break;
            }
        }
    };
    let end = async {
        loop {
            let next = tokio::select! {
                biased;
                () = stop.soft() => break,
                next = receive.recv() => next,
            };
            let Some(proposal) = next else { break };
            log.end(db, writer, proposal, stop).await?;
        }
        Ok(())
    };
    tokio::pin!(ask);
    tokio::pin!(end);
    // When the writing ends first, whoever still asks need not go on.
    tokio::select! {
        biased;
        result = &mut end => return result,
        () = &mut ask => {}
    }
    end.await
}

/// For whatever recorder the application installs.
fn count(item: &Item) {
    metrics::counter!("idemctl_reconcile_total", "outcome" => item.outcome.metric()).increment(1);
}
