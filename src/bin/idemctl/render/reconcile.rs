//! What became of the keys that were reconciled.

use std::io::{self, Write};

use idemctl::mask;
use idemctl::ops::reconcile::{Action, Item, Obstacle, Outcome, PlannedRow, Proposal, Report};
use serde::Serialize;

use super::{Document, printable};
use crate::exit::{CliError, Exit};

/// `reconcile -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct ReconcileView {
    reconciled: Vec<ReconciledView>,
    /// What is wrong with rows that hold something unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    dry_run: bool,
}

/// One key: what a plan has of it, and what became of it.
#[derive(Debug, Serialize)]
struct ReconciledView {
    client_id: String,
    key: String,
    result: &'static str,
    reason: Option<String>,
    /// Absent where the row was not looked at any further.
    #[serde(flatten)]
    proposal: Option<ProposalView>,
    #[serde(skip)]
    exit: Exit,
    #[serde(skip)]
    line: String,
    /// Whether a person has to end it.
    #[serde(skip)]
    by_hand: bool,
}

/// What a person can do where nothing else can be done.
const BY_HAND: &str =
    "the rows were left as they are; where no API can tell, `idemctl resolve` ends one by hand with evidence";

/// The part of a planned row that is not in [`ReconciledView`].
#[derive(Debug, Serialize)]
struct ProposalView {
    action: String,
    provider: Option<String>,
    order_id: String,
    verdict: Option<String>,
    reference: Option<String>,
    amount: Option<Box<serde_json::value::RawValue>>,
    currency: Option<String>,
    raw_status: Option<String>,
    evidence: Option<String>,
    not_before_seconds: Option<f64>,
    response: Option<idemctl::ops::reconcile::PlannedResponse>,
}

impl From<PlannedRow> for ProposalView {
    fn from(row: PlannedRow) -> Self {
        Self {
            action: row.action,
            provider: row.provider,
            order_id: row.order_id,
            verdict: row.verdict,
            reference: row.reference,
            amount: row.amount.as_deref().map(super::provider::amount),
            currency: masked(row.currency),
            raw_status: masked(row.raw_status),
            evidence: masked(row.evidence),
            not_before_seconds: row.not_before_seconds,
            response: row.response,
        }
    }
}

/// What the provider said of itself, with its secrets masked; the plan's file has it as it is.
fn masked(text: Option<String>) -> Option<String> {
    text.map(|text| mask::text(&text).into_owned())
}

impl ReconciledView {
    fn new(item: &Item) -> Self {
        let (result, exit, reason) = told(&item.outcome);
        let reason = masked(reason);
        let line = match (&item.outcome, &item.proposal) {
            (Outcome::Completed | Outcome::Released | Outcome::Proposed, Some(proposal)) => {
                proposal_line(proposal)
            }
            _ => reason.clone().unwrap_or_default(),
        };
        Self {
            client_id: item.id.client_id().to_owned(),
            key: item.id.key().to_owned(),
            result,
            reason,
            proposal: item
                .proposal
                .as_ref()
                .map(|proposal| PlannedRow::new(proposal).into()),
            exit,
            line,
            by_hand: matches!(&item.outcome, Outcome::Left(obstacle) if !obstacle.may_pass()),
        }
    }
}

/// The result's name, its code, and why.
fn told(outcome: &Outcome) -> (&'static str, Exit, Option<String>) {
    match outcome {
        Outcome::Proposed => ("proposed", Exit::Done, None),
        Outcome::Completed => ("completed", Exit::Done, None),
        Outcome::Released => ("released", Exit::Done, None),
        Outcome::Left(obstacle) => {
            let exit = match obstacle {
                Obstacle::Final(_) => Exit::Done,
                Obstacle::Unknown { .. } | Obstacle::NotAsked(_) | Obstacle::NoProvider => Exit::Provider,
                Obstacle::Settings(_) => Exit::Usage,
                _ => Exit::Refused,
            };
            let result = if obstacle.may_pass() { "waiting" } else { "left" };
            let reason = match obstacle {
                Obstacle::Unknown {
                    not_before: Some(wait),
                    ..
                } => format!(
                    "{obstacle} (ask again in {})",
                    super::key::age(wait.as_secs_f64())
                ),
                _ => obstacle.to_string(),
            };
            (result, exit, Some(reason))
        }
        Outcome::Changed(now) => {
            let reason = format!("the row moved since it was seen: {now}; nothing was changed");
            ("changed", Exit::Race, Some(reason))
        }
        Outcome::Disagrees(how) => ("changed", Exit::Race, Some(format!("{how}; nothing was changed"))),
        Outcome::Error(problem) => ("error", Exit::Other, Some(problem.clone())),
        Outcome::Unknown => {
            let reason = "the commit was not answered: changed or not, `idemctl inspect` tells";
            ("unknown", Exit::Database, Some(reason.to_owned()))
        }
    }
}

/// What the provider says of a row, and what comes of that.
pub(crate) fn proposal_line(proposal: &Proposal) -> String {
    let says = proposal.status.as_ref().map_or_else(String::new, |status| {
        let amount = status.amount.as_ref().map_or("", |amount| amount.get());
        let currency = status.currency.as_deref().unwrap_or("");
        let money = format!("{amount} {currency}");
        let money = mask::text(&money);
        let known: Vec<&str> = [status.reference.as_deref().unwrap_or(""), money.trim()]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect();
        let known = if known.is_empty() {
            String::new()
        } else {
            format!(" ({})", known.join(", "))
        };
        format!("{} says {}{known}", status.provider, status.verdict)
    });
    match &proposal.action {
        Action::Complete(response) => format!(
            "{says}; repeats get {} with {} bytes",
            response.status_code(),
            response.body().len()
        ),
        Action::Release => format!("{says}; the next request starts afresh"),
        Action::Nothing(obstacle) => mask::text(&obstacle.to_string()).into_owned(),
    }
}

impl ReconcileView {
    pub(crate) fn new(report: &Report, unreadable: &[String], dry_run: bool) -> Self {
        Self {
            reconciled: report.items.iter().map(ReconciledView::new).collect(),
            unreadable: unreadable
                .iter()
                .map(|problem| mask::text(problem).into_owned())
                .collect(),
            dry_run,
        }
    }

    fn bad(&self) -> Vec<&ReconciledView> {
        self.reconciled
            .iter()
            .filter(|item| item.exit != Exit::Done)
            .collect()
    }

    /// The code that all failures share where nothing succeeded, else 6.
    pub(crate) fn complaint(&self, bulk: bool) -> Option<CliError> {
        let bad = self.bad();
        let Some(first) = bad.first() else {
            let problem = self.unreadable.first()?;
            let message = format!("{} row(s) could not be read: {problem}", self.unreadable.len());
            return Some(CliError::new(Exit::Partial, message).hint("psql shows and mends them"));
        };
        let same = self.unreadable.is_empty()
            && bad.len() == self.reconciled.len()
            && bad.iter().all(|item| item.exit == first.exit);
        let exit = if same || !bulk { first.exit } else { Exit::Partial };
        let message = if bad.len() == 1 {
            let reason = first.reason.as_deref().unwrap_or("no reason known");
            let (client, key) = (printable(&first.client_id), printable(&first.key));
            format!("{client} {key}: {}: {reason}", first.result)
        } else {
            format!(
                "{} of {} keys were left as they were; each is listed with what is known of it",
                bad.len(),
                self.reconciled.len()
            )
        };
        let error = CliError::new(exit, message);
        Some(match exit {
            Exit::Provider | Exit::Refused | Exit::Usage if first.by_hand => error.hint(BY_HAND),
            Exit::Provider => {
                error.hint("the rows were left as they are; mend what the reason says, or ask again later")
            }
            Exit::Race => error.hint("look again with `idemctl inspect`"),
            _ => error,
        })
    }
}

impl ReconcileView {
    /// A line for each key.
    pub(super) fn lines(&self, out: &mut dyn Write, indent: &str) -> io::Result<()> {
        let width = |name: fn(&ReconciledView) -> &str| {
            let names = self
                .reconciled
                .iter()
                .map(|item| printable(name(item)).chars().count());
            names.max().unwrap_or(0)
        };
        let clients = width(|item| &item.client_id);
        let keys = width(|item| &item.key);
        let verb = |item: &ReconciledView| match (item.result, item.proposal.as_ref()) {
            ("proposed", Some(proposal)) => format!("would {}", proposal.action),
            (other, _) => other.to_owned(),
        };
        let verbs = self
            .reconciled
            .iter()
            .map(|item| verb(item).len())
            .max()
            .unwrap_or(0);
        for item in &self.reconciled {
            let verb = verb(item);
            writeln!(
                out,
                "{indent}{:clients$} {:keys$}  {verb:verbs$}  {}",
                printable(&item.client_id),
                printable(&item.key),
                printable(&item.line)
            )?;
        }
        for problem in &self.unreadable {
            writeln!(out, "{indent}unreadable: {}", printable(problem))?;
        }
        Ok(())
    }
}

impl Document for ReconcileView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.reconciled.is_empty() && self.unreadable.is_empty() {
            return writeln!(out, "no key to reconcile");
        }
        self.lines(out, "")
    }

    /// Those that were changed, or would be.
    fn ids(&self) -> Option<Vec<(&str, &str)>> {
        let done = self
            .reconciled
            .iter()
            .filter(|item| matches!(item.result, "completed" | "released" | "proposed"));
        Some(
            done.map(|item| (item.client_id.as_str(), item.key.as_str()))
                .collect(),
        )
    }

    fn csv(&self) -> Option<Vec<Vec<String>>> {
        let head = [
            "client_id",
            "key",
            "result",
            "action",
            "verdict",
            "provider",
            "reference",
            "amount",
            "currency",
            "reason",
        ];
        let rows = self.reconciled.iter().map(|item| {
            let from = |get: fn(&ProposalView) -> Option<String>| {
                item.proposal.as_ref().and_then(get).unwrap_or_default()
            };
            vec![
                item.client_id.clone(),
                item.key.clone(),
                item.result.to_owned(),
                from(|proposal| Some(proposal.action.clone())),
                from(|proposal| proposal.verdict.clone()),
                from(|proposal| proposal.provider.clone()),
                from(|proposal| proposal.reference.clone()),
                from(|proposal| proposal.amount.as_ref().map(|amount| amount.get().to_owned())),
                from(|proposal| proposal.currency.clone()),
                item.reason.clone().unwrap_or_default(),
            ]
        });
        Some(
            std::iter::once(head.map(str::to_owned).to_vec())
                .chain(rows)
                .collect(),
        )
    }
}
