//! What is known of the charge of a row, and whether the row may be released for it.

use idemctl::mask;
use idemctl::provider::{ProviderStatus, Verdict};
use idemctl::record::Record;
use idemctl::time::Stopwatch;

use super::{KeepAs, ReleaseArgs};
use crate::context::Context;
use crate::exit::Result;
use crate::safety::FRESH;

/// What is known. Of the provider's answer only this is kept: there may be as many of them as there are lines of input.
#[derive(Debug)]
pub(super) struct Answer {
    /// When it came.
    at: Stopwatch,
    /// For the event log.
    pub(super) evidence: serde_json::Value,
    /// Why the row may not be released, unless somebody accepts that.
    problem: Option<String>,
}

impl Answer {
    /// Asks about a row.
    pub(super) async fn about(context: &Context, record: &Record, args: &ReleaseArgs) -> Self {
        let answer = context.ask_about(record, args.provider.as_deref()).await;
        Self::new(answer, args.accept_double_charge)
    }

    fn new(answer: Result<Option<ProviderStatus>>, accept: bool) -> Self {
        let (evidence, problem) = match answer {
            Ok(None) => {
                let why = "no provider is configured for the row";
                (serde_json::json!({ "provider": null, "why": why }), None)
            }
            Ok(Some(status)) => {
                let evidence = serde_json::json!({
                    "provider": status.provider,
                    "verdict": status.verdict.as_str(),
                    "reference": status.reference,
                    "evidence": status.evidence,
                    "accept_double_charge": accept,
                });
                let problem = (status.verdict != Verdict::NotCharged).then(|| match &status.reason {
                    Some(reason) => {
                        let reason = mask::text(reason);
                        format!("{} says {}: {reason}", status.provider, status.verdict)
                    }
                    None => format!("{} says {}", status.provider, status.verdict),
                });
                (evidence, problem)
            }
            Err(error) => (
                serde_json::json!({ "error": error.message(), "accept_double_charge": accept }),
                Some(format!("the provider could not be asked: {}", error.message())),
            ),
        };
        Self {
            at: Stopwatch::start(),
            evidence,
            problem,
        }
    }

    /// Why the row may not be released.
    pub(super) fn refusal(&self, args: &ReleaseArgs) -> Option<String> {
        let problem = self.problem.as_ref().filter(|_| !args.accept_double_charge)?;
        let danger = match args.keep_as {
            None => "a release could charge again",
            Some(KeepAs::Failed) => "a final error could hide a charge",
        };
        let instead = match self.evidence["verdict"].as_str() {
            Some("charged") => "`idemctl reconcile` stores the answer",
            Some("pending" | "unknown") => "ask again later",
            _ => "`idemctl resolve` ends it by hand, with evidence",
        };
        Some(format!("{problem}; {danger}: {instead}"))
    }

    /// Whether it is too old to act on.
    pub(super) fn is_stale(&self) -> bool {
        self.at.elapsed() > FRESH
    }

    /// What has come up since, and was never accepted: somebody who accepts a double charge accepts what was known.
    pub(super) fn news_since(&self, before: &Self) -> Option<String> {
        let known =
            |answer: &Self| ["provider", "verdict", "reference"].map(|part| answer.evidence[part].clone());
        let news = self.problem.as_ref()?;
        (known(self) != known(before)).then(|| {
            format!("{news}; that was not known when this was decided; nothing was changed, look again")
        })
    }

    /// In short, for the question.
    pub(super) fn says(&self) -> String {
        let part = |name: &str| self.evidence[name].as_str();
        match (part("provider"), part("verdict")) {
            (Some(provider), Some(verdict)) => format!("{provider} says {verdict}"),
            _ => "no provider could be asked".to_owned(),
        }
    }
}
