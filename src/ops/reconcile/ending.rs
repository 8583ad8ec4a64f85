//! Ending one row, across lost connections: both the row and its event, or neither, and never twice.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::plan::PlannedRow;
use super::{Action, Database, Item, Obstacle, Outcome, Proposal};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::ops::actor::Actor;
use crate::ops::end::{End, Ending, end_row};
use crate::stop::Stop;

/// How often one row is tried again after a serialization failure or a deadlock.
const RETRIES: u32 = 5;

/// How often one row is tried again after a lost connection: a row whose change kills the server each time must
/// not hold up the rest for ever.
const RECONNECTS: u32 = 5;

/// How old an answer may be that a key is given up on, for instance because the database was away meanwhile.
const MAX_ANSWER_AGE: Duration = Duration::from_secs(30);

/// Who writes. `run` marks the events of this run, so that a commit whose answer was lost can be found.
#[derive(Debug)]
pub(super) struct Writer<'a> {
    pub(super) actor: &'a Actor,
    pub(super) run: Uuid,
}

/// Which key was completed with which payment in this run: one payment is never two keys'.
#[derive(Debug, Default)]
pub(super) struct Payments(HashMap<(String, String), KeyId>);

impl Payments {
    /// The other key that has the payment of this proposal; else it is remembered for this one.
    fn taken(&mut self, proposal: &Proposal) -> Option<KeyId> {
        let status = proposal.status.as_ref()?;
        let payment = (status.provider.clone(), status.reference.clone()?);
        let id = &proposal.seen.id;
        let first = self.0.entry(payment).or_insert_with(|| id.clone());
        (first != id).then(|| first.clone())
    }
}

/// A row's outcome, and an error that concerns all rows.
pub(super) struct Decided {
    pub(super) row: Item,
    pub(super) fatal: Option<Error>,
}

/// Does what was proposed, if that is wanted and is what was planned.
pub(super) async fn decide(
    db: &mut Database<'_>,
    writer: Option<&Writer<'_>>,
    mut proposal: Proposal,
    planned: Option<PlannedRow>,
    payments: &mut Payments,
    stop: &Stop,
) -> Decided {
    let mut fatal = None;
    if matches!(proposal.action, Action::Complete(_))
        && let Some(other) = payments.taken(&proposal)
    {
        proposal.action = Action::Nothing(Obstacle::SamePayment(other));
    }
    let other = planned.filter(|row| !row.agrees(&proposal));
    let outcome = match (&proposal.action, other, writer) {
        (Action::Nothing(obstacle), _, _) => Outcome::Left(obstacle.clone()),
        (_, Some(planned), _) => Outcome::Disagrees(format!(
            "the plan says {}; the provider's answer now comes to {}",
            planned.text(),
            PlannedRow::new(&proposal).text(),
        )),
        (_, None, None) => Outcome::Proposed,
        // That money did not move may be otherwise by now; that it moved stays so.
        (Action::Release, None, Some(_)) if proposal.answered.elapsed() > MAX_ANSWER_AGE => {
            let why = "the answer is too old to give a key up on it".to_owned();
            Outcome::Left(Obstacle::NotAsked(why))
        }
        (action, None, Some(writer)) => {
            let (outcome, error) = writer.end(db, &proposal, action, stop).await;
            fatal = error;
            outcome
        }
    };
    Decided {
        row: Item {
            id: proposal.seen.id.clone(),
            proposal: Some(proposal),
            outcome,
        },
        fatal,
    }
}

impl Writer<'_> {
    /// The outcome, and the error that ends the whole run, if any.
    async fn end(
        &self,
        db: &mut Database<'_>,
        proposal: &Proposal,
        action: &Action,
        stop: &Stop,
    ) -> (Outcome, Option<Error>) {
        let (how, done) = match action {
            Action::Complete(response) => (End::Complete(response.clone()), Outcome::Completed),
            Action::Release => (End::Release, Outcome::Released),
            Action::Nothing(obstacle) => return (Outcome::Left(obstacle.clone()), None),
        };
        let ending = Ending {
            how: &how,
            action: "reconcile",
            // It was seen expired, and must still be.
            older_than: Some(Duration::ZERO),
            actor: self.actor,
            details: self.details(proposal, action),
        };
        let row = (&proposal.seen).into();
        let (mut retries, mut reconnects, mut sent) = (0, 0, false);
        loop {
            let mut committing = false;
            let error = match end_row(db.conn, db.store, &ending, &row, &mut committing).await {
                Ok(true) => return (done, None),
                // Our own commit may have been the one that changed it.
                Ok(false) if sent => match self.was_done(db, proposal).await {
                    Ok(true) => return (done, None),
                    Ok(false) => return (self.changed(db, proposal).await, None),
                    Err(error) => error,
                },
                Ok(false) => return (self.changed(db, proposal).await, None),
                Err(error) => error,
            };
            sent |= committing;
            if error.needs_reconnect() || db.conn.is_closed() {
                reconnects += 1;
                let text = error.to_string();
                let outcome = || {
                    if sent {
                        Outcome::Unknown
                    } else {
                        Outcome::Error(text)
                    }
                };
                if let Err(error) = db.again(error, stop).await {
                    return (outcome(), Some(error));
                }
                if sent && matches!(self.was_done(db, proposal).await, Ok(true)) {
                    return (done, None);
                }
                if reconnects > RECONNECTS {
                    return (outcome(), None);
                }
                continue;
            }
            match error {
                error if error.is_retryable() && retries < RETRIES => {
                    retries += 1;
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=20 << retries))).await;
                }
                // The table itself is not as expected: no other row will fare better.
                error @ Error::Schema { .. } => return (Outcome::Error(error.to_string()), Some(error)),
                // A commit that was sent before may still be waiting on the server.
                _ if sent => match self.was_done(db, proposal).await {
                    Ok(true) => return (done, None),
                    Ok(false) | Err(_) => return (Outcome::Unknown, None),
                },
                error => return (Outcome::Error(error.to_string()), None),
            }
        }
    }

    /// Whether an earlier try of this run has done it.
    async fn was_done(&self, db: &Database<'_>, proposal: &Proposal) -> Result<bool> {
        db.store.event_of_run(db.conn, &proposal.seen.id, self.run).await
    }

    /// How the row is now.
    async fn changed(&self, db: &Database<'_>, proposal: &Proposal) -> Outcome {
        let now = match db.store.get(db.conn, &proposal.seen.id).await {
            Ok(None) => "it is gone (released or purged)".to_owned(),
            Ok(Some(record)) => super::plan::state_of(&record),
            Err(error) => format!("how it is now could not be read: {error}"),
        };
        Outcome::Changed(now)
    }

    fn details(&self, proposal: &Proposal, action: &Action) -> serde_json::Value {
        let status = proposal.status.as_ref();
        let amount = status.and_then(|status| status.amount.as_ref());
        json!({
            "run": self.run,
            "action": action.as_str(),
            "verdict": status.map(|status| status.verdict.as_str()),
            "provider": status.map(|status| &status.provider),
            "reference": status.and_then(|status| status.reference.as_ref()),
            "amount": amount.map(|amount| amount.get()),
            "currency": status.and_then(|status| status.currency.as_ref()),
            "raw_status": status.and_then(|status| status.raw_status.as_ref()),
            "evidence": status.map(|status| &status.evidence),
        })
    }
}
