//! A plan: what would be done with many rows, written down for somebody to look at before it is done.
//!
//! It only ever narrows what is done. Each row is read again when it is applied and must be as it was (token,
//! attempt, end of the lease, expired), its provider is asked again, and the answer must come to the same action:
//! whoever edits a plan can strike rows out, but cannot make idemctl do what it would not do by itself.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Action, Database, Item, Outcome, Proposal, Ready};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::mask;
use crate::ops::actor::Actor;
use crate::record::{Record, State};
use crate::response::Response;
use crate::stop::Stop;
use crate::store::Store;

/// The largest plan that is read: 64 MiB.
pub const MAX_PLAN_BYTES: usize = 64 * 1024 * 1024;

/// What the file calls itself.
const FORMAT: &str = "idemctl reconcile plan 1";

/// The file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Which kind of file this is.
    format: String,
    /// Of which database.
    pub database: String,
    /// Of which schema.
    pub schema: String,
    /// When it was made, by the database's clock.
    pub created_at: String,
    /// By whom.
    pub made_by: Option<String>,
    /// The rows.
    pub rows: Vec<PlannedRow>,
}

/// A row of the plan: as it was seen, what its provider said, and what would be done.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRow {
    /// Who sent the key.
    pub client_id: String,
    /// The client's idempotency key.
    pub key: String,
    /// How many times it was acquired.
    pub attempt: i32,
    /// The last holder's token.
    pub lease_token: Option<Uuid>,
    /// When its lease ended.
    pub locked_until: String,
    /// Who was asked.
    pub provider: Option<String>,
    /// Under which id.
    pub order_id: String,
    /// What the provider said; `None`: it was not asked.
    pub verdict: Option<String>,
    /// The provider's id of the payment.
    pub reference: Option<String>,
    /// The amount as the provider writes it.
    pub amount: Option<Box<RawValue>>,
    /// The currency.
    pub currency: Option<String>,
    /// The provider's own word for the state.
    pub raw_status: Option<String>,
    /// What was asked and what came back.
    pub evidence: Option<String>,
    /// `complete`, `release`, `wait` or `leave`.
    pub action: String,
    /// Why nothing would be done.
    pub why: Option<String>,
    /// How many seconds from the plan's making it makes no sense to ask again, where that is known.
    pub not_before_seconds: Option<f64>,
    /// What would be stored.
    pub response: Option<PlannedResponse>,
}

/// What would be stored with a row. The bytes themselves are made anew from the provider's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedResponse {
    /// HTTP status.
    pub status_code: u16,
    /// The header `content-type`.
    pub content_type: Option<String>,
    /// Size of the body.
    pub body_bytes: usize,
    /// Hex SHA-256 of the body.
    pub body_sha256: String,
}

impl Plan {
    /// Of what was proposed, dated by the database's clock.
    pub async fn of<'a>(
        conn: &Connection,
        store: &Store,
        actor: &Actor,
        proposals: impl Iterator<Item = &'a Proposal>,
    ) -> Result<Self> {
        let who = |name: &Option<String>| name.as_deref().unwrap_or("unknown").to_owned();
        Ok(Self {
            format: FORMAT.to_owned(),
            database: conn.facts().database.clone(),
            schema: store.schema().to_owned(),
            created_at: store.now(conn).await?.to_string(),
            made_by: Some(format!("{}@{}", who(&actor.os_user), who(&actor.host))),
            rows: proposals
                .map(|proposal| PlannedRow::new(proposal).masked())
                .collect(),
        })
    }

    /// Reads a plan and checks its form.
    ///
    /// Returns [`Error::Invalid`] that says where it is wrong.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let wrong = |reason: String| Error::Invalid {
            field: "the plan",
            reason,
        };
        let plan: Self =
            serde_json::from_slice(text).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        if plan.format != FORMAT {
            let found = &plan.format;
            return Err(wrong(format!("has the format {found:?}; {FORMAT:?} is needed")));
        }
        let mut known = HashSet::new();
        for (i, row) in plan.rows.iter().enumerate() {
            if !known.insert((&row.client_id, &row.key)) {
                return Err(wrong(format!("has {} a second time in row {}", row.id(), i + 1)));
            }
            if !["complete", "release", "wait", "leave"].contains(&row.action.as_str()) {
                let action = &row.action;
                return Err(wrong(format!(
                    "has the action {action:?} in row {}; complete, release, wait and leave are allowed",
                    i + 1
                )));
            }
        }
        Ok(plan)
    }

    /// Refuses a plan of another database or schema.
    pub fn check_place(&self, conn: &Connection, store: &Store) -> Result<()> {
        let (database, schema) = (conn.facts().database.as_str(), store.schema());
        if self.database == database && self.schema == schema {
            return Ok(());
        }
        let reason = format!(
            "was made for the database {:?}, schema {:?}; this is {database:?}, schema {schema:?}",
            self.database, self.schema
        );
        Err(Error::Invalid {
            field: "the plan",
            reason,
        })
    }
}

impl PlannedRow {
    /// Of what was proposed.
    pub fn new(proposal: &Proposal) -> Self {
        let Proposal {
            seen,
            status,
            action,
            answered: _,
        } = proposal;
        let status = status.as_ref();
        let (why, response) = match action {
            Action::Nothing(obstacle) => (Some(obstacle.to_string()), None),
            Action::Complete(response) => (None, Some(PlannedResponse::new(response))),
            Action::Release => (None, None),
        };
        Self {
            client_id: seen.id.client_id().to_owned(),
            key: seen.id.key().to_owned(),
            attempt: seen.attempt,
            lease_token: seen.lease_token,
            locked_until: seen.locked_until.to_string(),
            provider: status
                .map(|status| status.provider.clone())
                .or_else(|| seen.provider.clone()),
            order_id: seen.order_id().to_owned(),
            verdict: status.map(|status| status.verdict.as_str().to_owned()),
            reference: status.and_then(|status| status.reference.clone()),
            amount: status.and_then(|status| status.amount.clone()),
            currency: status.and_then(|status| status.currency.clone()),
            raw_status: status.and_then(|status| status.raw_status.clone()),
            evidence: status.map(|status| status.evidence.clone()),
            action: action.as_str().to_owned(),
            why,
            not_before_seconds: status
                .and_then(|status| status.not_before)
                .map(|wait| wait.as_secs_f64()),
            response,
        }
    }

    /// With the secrets masked that a provider's words may hold. Nothing of it is compared when it is applied.
    fn masked(mut self) -> Self {
        for text in [
            &mut self.currency,
            &mut self.raw_status,
            &mut self.evidence,
            &mut self.why,
        ]
        .into_iter()
        .flatten()
        {
            *text = mask::text(text).into_owned();
        }
        let amount = self
            .amount
            .as_ref()
            .map(|amount| (amount.get(), mask::text(amount.get())));
        if let Some((shown, masked)) = amount
            && shown != masked
        {
            self.amount = serde_json::value::to_raw_value(&masked).ok();
        }
        self
    }

    /// Its key.
    pub(super) fn id(&self) -> KeyId {
        KeyId::from_row(self.client_id.clone(), self.key.clone())
    }

    /// The action in words.
    pub(super) fn text(&self) -> String {
        match (&self.response, &self.reference) {
            (Some(response), reference) => format!(
                "{} with {} and {} bytes for the payment {}",
                self.action,
                response.status_code,
                response.body_bytes,
                reference.as_deref().unwrap_or("without a reference")
            ),
            (None, _) => self.action.clone(),
        }
    }

    /// Whether the plan wants the row changed.
    pub fn changes(&self) -> bool {
        matches!(self.action.as_str(), "complete" | "release")
    }

    /// Whether the row is still as it was.
    fn is_still(&self, now: &Record) -> bool {
        now.state == Some(State::Expired)
            && now.lease_token == self.lease_token
            && now.attempt == self.attempt
            && now.locked_until.to_string() == self.locked_until
    }

    /// Whether what is proposed now is what was planned.
    pub(super) fn agrees(&self, now: &Proposal) -> bool {
        let status = now.status.as_ref();
        let same_payment = status.and_then(|status| status.reference.as_deref()) == self.reference.as_deref();
        let same_question = status.map(|status| status.provider.as_str()) == self.provider.as_deref()
            && now.seen.order_id() == self.order_id;
        if !same_question {
            return false;
        }
        match (&now.action, self.action.as_str()) {
            (Action::Complete(response), "complete") => {
                self.response.as_ref() == Some(&PlannedResponse::new(response)) && same_payment
            }
            (Action::Release, "release") => true,
            _ => false,
        }
    }
}

impl PlannedResponse {
    /// Of a response.
    pub fn new(response: &Response) -> Self {
        Self {
            status_code: response.status_code(),
            content_type: response.header("content-type").map(str::to_owned),
            body_bytes: response.body().len(),
            body_sha256: crate::hex::sha256(response.body()),
        }
    }
}

impl PartialEq for PlannedResponse {
    fn eq(&self, other: &Self) -> bool {
        (self.status_code, &self.content_type, &self.body_sha256)
            == (other.status_code, &other.content_type, &other.body_sha256)
    }
}

/// How a row is, for whoever expected it otherwise.
pub(super) fn state_of(record: &Record) -> String {
    let state = record.state.map_or("of an unknown status", State::as_str);
    let owner = record.owner.as_deref().unwrap_or("unknown");
    format!("it is {state} now, attempt {}, owner {owner}", record.attempt)
}

/// Reads the rows of a plan that are to be changed, and tells of those that are not any more as they were.
pub(super) async fn read_again(
    db: &mut Database<'_>,
    rows: Vec<PlannedRow>,
    stop: &Stop,
    tell: &mut impl FnMut(Item),
) -> Result<Vec<Ready>> {
    let mut ready = Vec::new();
    for planned in rows.into_iter().filter(PlannedRow::changes) {
        if stop.is_soft() {
            break;
        }
        let id = planned.id();
        let found = loop {
            match db.store.get(db.conn, &id).await {
                Err(error) if error.needs_reconnect() => db.again(error, stop).await?,
                other => break other,
            }
        };
        let outcome = match found {
            Ok(Some(seen)) if planned.is_still(&seen) => {
                let planned = Some(planned);
                ready.push(Ready { seen, planned });
                continue;
            }
            Ok(Some(seen)) => Outcome::Changed(state_of(&seen)),
            Ok(None) => Outcome::Changed("it is gone (released or purged)".to_owned()),
            Err(error @ Error::Schema { .. }) => return Err(error),
            Err(error) => Outcome::Error(error.to_string()),
        };
        tell(Item {
            id,
            proposal: None,
            outcome,
        });
    }
    Ok(ready)
}
