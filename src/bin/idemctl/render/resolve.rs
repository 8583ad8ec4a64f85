//! What became of a key that was to be ended by hand.

use std::io::{self, Write};

use idemctl::key::KeyId;
use idemctl::mask::Masker;
use idemctl::ops::resolve::{Approval, Intent, Next, Outcome, Proposal, Refusal, Said};
use serde::Serialize;

use super::provider::StatusView;
use super::{Document, key, printable, printable_lines};
use crate::exit::{CliError, Exit};

/// How much of a body is shown before a question.
const PREVIEW_CHARS: usize = 2_000;

/// `resolve -o json`.
#[derive(Debug, Serialize)]
pub(crate) struct ResolveView {
    client_id: String,
    key: String,
    result: &'static str,
    reason: Option<String>,
    status_code: u16,
    body_sha256: String,
    provider_says: Option<StatusView>,
    dry_run: bool,
    #[serde(skip)]
    exit: Exit,
    #[serde(skip)]
    hint: Option<&'static str>,
    #[serde(skip)]
    line: String,
}

impl ResolveView {
    pub(crate) fn new(
        id: &KeyId,
        intent: &Intent,
        proposal: &Proposal,
        outcome: &Outcome,
        dry_run: bool,
    ) -> Self {
        let (code, bytes) = (intent.response.status_code(), intent.response.body().len());
        let stored = format!("repeats get {code} with {bytes} bytes");
        let (result, exit, reason) = match outcome {
            Outcome::Ended => (intent.decision.as_str(), Exit::Done, None),
            Outcome::Requested => ("requested", Exit::Done, void(&proposal.next)),
            Outcome::Refused(refusal) => {
                let reason = format!("{refusal}; nothing was changed");
                ("refused", Exit::Refused, Some(reason))
            }
            Outcome::Changed(why) => ("changed", Exit::Race, Some(format!("{why}; nothing was changed"))),
            Outcome::Unknown => {
                let reason = "the commit was not answered: changed or not, `idemctl inspect` tells";
                ("unknown", Exit::Database, Some(reason.to_owned()))
            }
        };
        let line = match (&reason, outcome, &proposal.next) {
            (void, Outcome::Requested, _) => {
                let void = void.as_ref().map_or_else(String::new, |void| format!("; {void}"));
                format!("another person has to run the same command within 24 hours; then {stored}{void}")
            }
            (Some(reason), ..) => reason.clone(),
            (None, _, Next::Confirm(asking)) => format!("{stored}; asked for by {asking}"),
            _ => stored,
        };
        Self {
            client_id: id.client_id().to_owned(),
            key: id.key().to_owned(),
            result,
            reason,
            status_code: code,
            body_sha256: intent.body_sha256(),
            provider_says: proposal.said.as_ref().and_then(Said::answer).map(StatusView::new),
            dry_run,
            exit,
            hint: hint(outcome, intent.approval),
            line,
        }
    }

    /// What stderr says about a code that is not 0.
    pub(crate) fn complaint(&self) -> Option<CliError> {
        let reason = self.reason.as_deref().filter(|_| self.exit != Exit::Done)?;
        let message = format!("{} {}: {}: {reason}", self.client_id, self.key, self.result);
        let error = CliError::new(self.exit, message);
        Some(match self.hint {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }
}

/// An earlier request that a new one makes void, and why.
pub(crate) fn void(next: &Next) -> Option<String> {
    match next {
        Next::Request(Some((asking, why))) => Some(format!("the request of {asking} is void: {why}")),
        _ => None,
    }
}

fn hint(outcome: &Outcome, approval: Approval) -> Option<&'static str> {
    match outcome {
        Outcome::Refused(Refusal::Live) => {
            Some("wait until it is over; `idemctl inspect --watch` shows when")
        }
        Outcome::Refused(Refusal::Contradiction(_)) => Some(
            "`idemctl reconcile` does what the provider's answer makes safe; --against-provider overrides it",
        ),
        Outcome::Refused(Refusal::CannotTell(_)) => {
            Some("ask again later; --against-provider where the evidence is better than any answer of it")
        }
        Outcome::Refused(Refusal::CannotAsk(_)) => Some(
            "mend the configuration or name one with --provider; --against-provider does it without asking",
        ),
        Outcome::Refused(Refusal::SamePerson(_)) if approval == Approval::TwoDatabaseUsers => Some(
            "audit.approval = \"two-database-users\": only another user of the database is another person",
        ),
        Outcome::Changed(_) if approval != Approval::None => {
            Some("look again with `idemctl inspect`, then run the command again")
        }
        Outcome::Changed(_) => Some("look again with `idemctl inspect`"),
        _ => None,
    }
}

impl Document for ResolveView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let verb = match (self.result, self.dry_run) {
            (result @ ("done" | "failed" | "requested"), true) => format!("would be {result}"),
            (result, _) => result.to_owned(),
        };
        writeln!(
            out,
            "{} {}  {verb}: {}",
            printable(&self.client_id),
            printable(&self.key),
            printable(&self.line)
        )
    }

    /// If it was ended, or would be.
    fn ids(&self) -> Option<Vec<(&str, &str)>> {
        let ended = matches!(self.result, "done" | "failed");
        Some(
            ended
                .then_some((self.client_id.as_str(), self.key.as_str()))
                .into_iter()
                .collect(),
        )
    }
}

/// What the operator has to know before agreeing: the row, what the provider says, and exactly what repeats will
/// get, with secrets masked. Ready for a terminal.
pub(crate) fn preview(intent: &Intent, proposal: &Proposal, mask: &Masker) -> Vec<String> {
    let seen = &proposal.seen;
    let owner = mask.text(seen.owner.as_deref().unwrap_or("unknown owner"));
    let lease = seen
        .lease_remaining_seconds
        .map_or_else(String::new, |rest| format!(", lease {}", key::lease(rest)));
    let says = match &proposal.said {
        Some(Said::Answer(status)) => {
            let reason = status
                .reason
                .as_ref()
                .map_or_else(String::new, |reason| format!(": {}", mask.text(reason)));
            format!("{} says {}{reason}", status.provider, status.verdict)
        }
        Some(Said::Nobody(why)) => format!("nobody was asked: {why}"),
        Some(Said::CannotAsk(why)) => format!("could not be asked: {why}"),
        None => "nobody was asked".to_owned(),
    };
    let response = &intent.response;
    let mut lines = vec![
        format!("{}  attempt {}, {owner}{lease}", seen.id, seen.attempt),
        format!("  provider: {says}"),
        format!("  evidence: {}", mask.text(&intent.evidence)),
        format!("  repeats will get: HTTP {}", response.status_code()),
    ];
    let headers = response.headers().iter();
    lines.extend(headers.map(|(name, value)| format!("    {name}: {}", mask.header(name, value))));
    lines.push(format!(
        "    {} bytes, sha256 {}",
        response.body().len(),
        intent.body_sha256()
    ));
    let mut lines: Vec<String> = lines.iter().map(|line| printable(line)).collect();
    lines.extend(
        body(response.body(), mask)
            .lines()
            .map(|line| format!("    | {line}")),
    );
    lines
}

/// The beginning of a body, masked as a whole first.
fn body(bytes: &[u8], mask: &Masker) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return "(no text)".to_owned();
    };
    let masked = mask.body(text);
    let mut shown: String = masked.chars().take(PREVIEW_CHARS).collect();
    if shown.len() < masked.len() {
        shown.push_str(" ...");
    }
    printable_lines(&shown)
}
