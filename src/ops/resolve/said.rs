//! What is known of the charge besides the operator's evidence.

use serde_json::{Value, json};

use super::Refusal;
use super::intent::{Decision, Intent};
use crate::ops::ask::Providers;
use crate::provider::{ProviderStatus, Verdict};
use crate::record::Record;

/// What a provider says, or why none was asked.
#[derive(Debug, Clone)]
pub enum Said {
    /// Nobody is configured for the row; why.
    Nobody(String),
    /// A provider may know, but cannot be asked as things are configured; why.
    CannotAsk(String),
    /// Its answer; unknown is one.
    Answer(Box<ProviderStatus>),
}

impl Said {
    /// Asks about a row. `named`: whom, where the row names none.
    pub(super) async fn about(providers: &Providers, seen: &Record, named: Option<&str>) -> Self {
        if let Some(name) = seen.provider.as_deref().filter(|name| !providers.has(name)) {
            return Self::Nobody(format!("the row's provider {name:?} is not configured"));
        }
        match providers.for_row(seen, named) {
            Ok(Some(chosen)) => Self::Answer(Box::new(chosen.about(seen).await)),
            Ok(None) => Self::Nobody("no provider is configured".to_owned()),
            Err(error) => Self::CannotAsk(error.to_string()),
        }
    }

    /// The provider's answer, if it was asked.
    pub fn answer(&self) -> Option<&ProviderStatus> {
        match self {
            Self::Answer(status) => Some(status),
            Self::Nobody(_) | Self::CannotAsk(_) => None,
        }
    }

    /// Why this forbids what is intended; `None` where it does not. That it was to be overridden is not looked at.
    pub(super) fn refusal(&self, seen: &Record, intent: &Intent) -> Option<Refusal> {
        let status = match self {
            Self::Nobody(_) => return None,
            Self::CannotAsk(why) => return Some(Refusal::CannotAsk(why.clone())),
            Self::Answer(status) => status,
        };
        let code = intent.response.status_code();
        let claims_charge = intent.decision == Decision::Done && code < 400;
        let contradicts = match status.verdict {
            Verdict::Pending => true,
            Verdict::Charged | Verdict::Authorized => !claims_charge,
            Verdict::NotCharged => claims_charge,
            // A charge that it will know of again must not be declared impossible. Of a provider that nobody named,
            // no more was to be expected.
            Verdict::Unknown if !claims_charge && (seen.provider.is_some() || intent.provider.is_some()) => {
                return Some(Refusal::CannotTell(format!(
                    "{} cannot say whether the money moved ({}), and {} with {code} tells the client that it did not",
                    status.provider,
                    crate::mask::text(status.reason.as_deref().unwrap_or("it gave no reason")),
                    intent.decision.as_str(),
                )));
            }
            Verdict::Unknown => false,
        };
        contradicts.then(|| {
            let (decision, provider, verdict) = (intent.decision.as_str(), &status.provider, status.verdict);
            Refusal::Contradiction(format!(
                "{provider} says {verdict}, which contradicts {decision} with {code}"
            ))
        })
    }

    /// As the event log keeps it.
    pub(super) fn details(&self) -> Value {
        match self {
            Self::Nobody(why) => json!({ "provider": null, "why": why }),
            Self::CannotAsk(why) => json!({ "provider": null, "error": why }),
            Self::Answer(status) => json!({
                "provider": status.provider,
                "order_id": status.order_id,
                "verdict": status.verdict.as_str(),
                "reference": status.reference,
                "amount": status.amount.as_ref().map(|amount| amount.get()),
                "currency": status.currency,
                "raw_status": status.raw_status,
                "reason": status.reason,
                "evidence": status.evidence,
            }),
        }
    }
}
