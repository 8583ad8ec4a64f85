//! Ending one stuck key by hand, with evidence, where no provider's interface can tell what became of the charge.
//!
//! | what is known | what happens |
//! | --- | --- |
//! | the lease is alive, the row is final, its status is an unknown word | refused |
//! | the row's provider is asked, and contradicts | refused, unless the intent overrides it |
//! | it, or one that the operator names, cannot be reached or cannot tell, and the decision says that nothing was charged | refused, unless the intent overrides it |
//! | it cannot tell, and the decision says that the charge was made | done |
//! | nobody is configured, or one that nobody named cannot tell | done; that is what this is for |
//!
//! With every [`Approval`] but none the first call only writes the event `resolve_requested`, and a call of another
//! person who wants the same about the same row ends it. A request holds for 24 hours of the database's clock, only
//! for the row as it was (token, attempt, lease end), and only the newest one of a key counts. Who is another
//! person is told by the database's session user; with [`Approval::TwoPerson`] also by the user of the operating
//! system, which the calling side only says of itself.

mod intent;
mod refusal;
mod said;

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

pub use intent::{Approval, Decision, Intent, MAX_TEXT_CHARS, not_made};
pub use refusal::Refusal;
pub use said::Said;

use crate::connect::{Connection, Tx};
use crate::error::Result;
use crate::key::KeyId;
use crate::ops::ask::Providers;
use crate::ops::end::{Ending, end_row_in};
use crate::provider::Verdict;
use crate::record::{Record, State};
use crate::store::Store;
use crate::store::approval::{Asked, REQUESTED, row_texts};
use crate::store::event::NewEvent;
use crate::store::expired::Stuck;
use crate::time::Timestamp;

/// The lease must be over, and no longer.
const OVER: Option<Duration> = Some(Duration::ZERO);

/// How often a serialization failure or a deadlock is tried again.
const RETRIES: u32 = 5;

/// A request of another person, or of the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// Number of the event.
    pub event: i64,
    /// When, by the database's clock.
    pub at: Timestamp,
    /// Session user of the database.
    pub db_user: String,
    /// User of the operating system, as the acting program said.
    pub os_user: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// What shows it.
    pub evidence: Option<String>,
}

impl From<Asked> for Asking {
    fn from(asked: Asked) -> Self {
        Self {
            event: asked.event,
            at: asked.at,
            db_user: asked.db_user,
            os_user: asked.os_user,
            reason: asked.reason,
            evidence: asked.evidence,
        }
    }
}

impl fmt::Display for Asking {
    /// Who, and when.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let os_user = self.os_user.as_deref().unwrap_or("unknown");
        write!(f, "{os_user} (database user {}) at {}", self.db_user, self.at)
    }
}

/// What would be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// End the row.
    End,
    /// Write down that it is wanted; an earlier request that this makes void, and why.
    Request(Option<(Asking, &'static str)>),
    /// End the row, as another person has asked for.
    Confirm(Asking),
    /// Nothing.
    Refuse(Refusal),
}

/// A row, what its provider says, and what would be done with it.
#[derive(Debug, Clone)]
pub struct Proposal {
    /// The row as it was seen; it is changed only while it is still so.
    pub seen: Record,
    /// What is known of the charge; `None` where it did not come to asking.
    pub said: Option<Said>,
    /// What would be done.
    pub next: Next,
}

impl Proposal {
    /// Whether the provider says the same in both: the same verdict about the same payment.
    ///
    /// What somebody agreed to, or overrode, is what they were shown of it.
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.answer() == other.answer()
    }

    fn answer(&self) -> Option<(&str, Verdict, Option<&str>)> {
        let status = self.said.as_ref()?.answer()?;
        Some((&status.provider, status.verdict, status.reference.as_deref()))
    }
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The row holds the answer (with a dry run: would hold).
    Ended,
    /// The request is written (with a dry run: would be).
    Requested,
    /// Nothing was changed.
    Refused(Refusal),
    /// Nothing was changed: the row, or the request of the other person, is not any more as it was seen.
    Changed(&'static str),
    /// The commit was not answered: changed or not, the database knows.
    Unknown,
}

/// Reads the row, asks its provider, and says what would be done; `None` where there is no row.
pub async fn propose(
    conn: &Connection,
    store: &Store,
    providers: &Providers,
    id: &KeyId,
    intent: &Intent,
) -> Result<Option<Proposal>> {
    intent.check()?;
    let Some(seen) = store.get(conn, id).await? else {
        return Ok(None);
    };
    if let Some(refusal) = of_the_row(&seen) {
        let next = Next::Refuse(refusal);
        return Ok(Some(Proposal {
            seen,
            said: None,
            next,
        }));
    }
    let said = Said::about(providers, &seen, intent.provider.as_deref()).await;
    let next = match said.refusal(&seen, intent) {
        Some(refusal) if !intent.against_provider => Next::Refuse(refusal),
        against if intent.approval != Approval::None => {
            let row = Stuck::from(&seen);
            let wanted = intent.wanted(&row, against.is_some());
            next(store.resolve_request(conn, &wanted).await?)
        }
        // Another configuration file must not undo what the first person's asked for.
        against => {
            let row = Stuck::from(&seen);
            let wanted = intent.wanted(&row, against.is_some());
            match store.resolve_request(conn, &wanted).await? {
                Some(asked) if asked.fresh && asked.same_row => Next::Refuse(Refusal::Pending(asked.into())),
                _ => Next::End,
            }
        }
    };
    Ok(Some(Proposal {
        seen,
        said: Some(said),
        next,
    }))
}

/// Does what was proposed, with its event, in one transaction.
///
/// A commit that is not answered leaves the outcome open ([`Outcome::Unknown`]): look again with `inspect`.
pub async fn run(
    conn: &mut Connection,
    store: &Store,
    intent: &Intent,
    proposal: &Proposal,
    dry_run: bool,
) -> Result<Outcome> {
    intent.check()?;
    let would_be = match &proposal.next {
        Next::Refuse(refusal) => return Ok(Outcome::Refused(refusal.clone())),
        Next::Request(_) => Outcome::Requested,
        Next::End | Next::Confirm(_) => Outcome::Ended,
    };
    if dry_run {
        return Ok(would_be);
    }
    let change = Change {
        store,
        intent,
        proposal,
        row: (&proposal.seen).into(),
    };
    let mut tries = 0;
    loop {
        let mut committing = false;
        match change.apply(conn, &mut committing).await {
            Err(error) if error.is_retryable() && tries < RETRIES => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(1..=20 << tries))).await;
            }
            Err(error) if committing && error.needs_reconnect() => return Ok(Outcome::Unknown),
            outcome => return outcome,
        }
    }
}

/// What the row itself says, before anybody is asked.
fn of_the_row(seen: &Record) -> Option<Refusal> {
    match seen.state {
        Some(State::Expired) => None,
        Some(State::InProgress) => Some(Refusal::Live),
        Some(state @ (State::Done | State::Failed)) => {
            let stored = seen.response.as_ref().map_or_else(String::new, |response| {
                let code = response
                    .status_code
                    .map_or_else(|| "no status code".to_owned(), |code| code.to_string());
                let body = match (response.body_bytes, &response.body_sha256) {
                    (Some(bytes), Some(sha256)) => format!("{bytes} bytes, sha256 {sha256}"),
                    _ => "a body hidden from this role".to_owned(),
                };
                format!(", {code} with {body}")
            });
            Some(Refusal::Final(format!("{state}{stored}")))
        }
        None => Some(Refusal::UnknownStatus(seen.status.clone())),
    }
}

/// What a request that is there, or none, leads to.
fn next(asked: Option<Asked>) -> Next {
    let Some(asked) = asked else {
        return Next::Request(None);
    };
    let void = match &asked {
        Asked { same_row: false, .. } => "the row has moved since",
        Asked { fresh: false, .. } => "it is older than 24 hours",
        Asked {
            same_decision: false, ..
        } => "it was for another decision or response",
        Asked {
            other_person: false, ..
        } => return Next::Refuse(Refusal::SamePerson(asked.into())),
        _ => return Next::Confirm(asked.into()),
    };
    Next::Request(Some((asked.into(), void)))
}

/// One row's change.
struct Change<'a> {
    store: &'a Store,
    intent: &'a Intent,
    proposal: &'a Proposal,
    row: Stuck,
}

impl Change<'_> {
    /// `committing` is set before the commit is sent: an error after that leaves the outcome open.
    async fn apply(&self, conn: &mut Connection, committing: &mut bool) -> Result<Outcome> {
        let tx = conn.begin().await?;
        self.store.short_lock_timeout(&tx).await?;
        let outcome = match &self.proposal.next {
            Next::Refuse(refusal) => return Ok(Outcome::Refused(refusal.clone())),
            Next::End if self.intent.approval == Approval::None => self.end(&tx, None).await?,
            _ => self.with_two(&tx).await?,
        };
        if matches!(outcome, Outcome::Ended | Outcome::Requested) {
            *committing = true;
            tx.commit().await?;
        }
        Ok(outcome)
    }

    /// Looks for the other person's request again while the row is locked, so that it is used at most once.
    async fn with_two(&self, tx: &Tx<'_>) -> Result<Outcome> {
        let Some(before) = self.store.expired_lock(tx, OVER, &self.row).await? else {
            return Ok(MOVED);
        };
        let wanted = self.intent.wanted(&self.row, self.against());
        let now = next(self.store.resolve_request(tx, &wanted).await?);
        match (&self.proposal.next, now) {
            (Next::Confirm(seen), Next::Confirm(asking)) if *seen == asking => {
                self.end(tx, Some(&asking)).await
            }
            (Next::Request(_), Next::Request(_)) => self.request(tx, before).await,
            (_, Next::Refuse(refusal)) => Ok(Outcome::Refused(refusal)),
            _ => Ok(Outcome::Changed(
                "another request came, or the one that was there is void",
            )),
        }
    }

    async fn end(&self, tx: &Tx<'_>, asking: Option<&Asking>) -> Result<Outcome> {
        let end = self.intent.end();
        let mut details = self.details();
        details["approval"] = self.intent.approval.as_str().into();
        details["requested_by"] = asking.map_or(Value::Null, |asking| {
            json!({
                "event": asking.event,
                "at": asking.at,
                "db_user": asking.db_user,
                "os_user": asking.os_user,
                "reason": asking.reason,
                "evidence": asking.evidence,
            })
        });
        let ending = Ending {
            how: &end,
            action: "resolve",
            older_than: OVER,
            actor: &self.intent.actor,
            details,
        };
        let ended = end_row_in(tx, self.store, &ending, &self.row).await?;
        Ok(if ended { Outcome::Ended } else { MOVED })
    }

    /// Only the event: the row stays as it is.
    async fn request(&self, tx: &Tx<'_>, before: Value) -> Result<Outcome> {
        let (token, _, locked_until) = row_texts(&self.row);
        let mut details = self.details();
        details["lease_token"] = token.into();
        details["attempt"] = self.row.attempt.into();
        details["locked_until"] = locked_until.into();
        let event = NewEvent {
            id: Some(&self.row.id),
            action: REQUESTED,
            after: Some(before.clone()),
            before: Some(before),
            details: Some(details),
        };
        self.store.append_event(tx, &self.intent.actor, &event).await?;
        Ok(Outcome::Requested)
    }

    /// Whether the provider's word is overridden.
    fn against(&self) -> bool {
        let said = self.proposal.said.as_ref();
        said.is_some_and(|said| said.refusal(&self.proposal.seen, self.intent).is_some())
    }

    fn details(&self) -> Value {
        let intent = self.intent;
        json!({
            "decision": intent.decision.as_str(),
            "status_code": intent.response.status_code(),
            "body_bytes": intent.response.body().len(),
            "body_sha256": intent.body_sha256(),
            "response_sha256": intent.response_sha256(),
            "evidence": intent.evidence,
            "provider_says": self.proposal.said.as_ref().map(Said::details),
            "against_provider": self.against(),
        })
    }
}

const MOVED: Outcome =
    Outcome::Changed("the row is not any more as it was seen (taken over, completed, released)");
