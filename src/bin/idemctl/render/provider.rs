//! What a provider answered.

use std::io::{self, Write};

use idemctl::mask::{self, Masker};
use idemctl::provider::{ProviderStatus, Verdict};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Document, printable};
use crate::exit::{CliError, Exit, Result};

/// `provider status -o json` of the contract.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StatusView {
    order_id: String,
    provider: String,
    pub(crate) verdict: &'static str,
    reference: Option<String>,
    amount: Option<Box<RawValue>>,
    currency: Option<String>,
    raw_status: Option<String>,
    checked_at: String,
    reason: Option<String>,
    not_before: Option<String>,
    evidence: String,
}

impl StatusView {
    /// What the provider said of itself is masked; what we ask it by, and it us, is not.
    pub(crate) fn new(status: &ProviderStatus) -> Self {
        let masked = |text: &Option<String>| text.as_deref().map(|text| mask::text(text).into_owned());
        let now = clock();
        let time =
            |time: chrono::DateTime<chrono::Utc>| time.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let not_before = status
            .not_before
            .and_then(|wait| now.checked_add_signed(chrono::TimeDelta::from_std(wait).ok()?));
        Self {
            order_id: status.order_id.clone(),
            provider: status.provider.clone(),
            verdict: status.verdict.as_str(),
            reference: status.reference.clone(),
            amount: status.amount.as_deref().map(amount),
            currency: masked(&status.currency),
            raw_status: masked(&status.raw_status),
            checked_at: time(now),
            reason: masked(&status.reason),
            not_before: not_before.map(time),
            evidence: mask::text(&status.evidence).into_owned(),
        }
    }

    /// Who said it.
    pub(crate) fn who(&self) -> &str {
        &self.provider
    }

    /// Such as `acme says of order-1: charged (pay_7Q2, 4990 EUR; its own word: succeeded)`.
    pub(crate) fn line(&self) -> String {
        let mut known: Vec<String> = self.reference.iter().cloned().collect();
        known.extend(self.money());
        if let Some(word) = &self.raw_status {
            known.push(format!("its own word: {word}"));
        }
        let known = known.join(", ");
        let known = if known.is_empty() {
            known
        } else {
            format!(" ({known})")
        };
        format!(
            "{} says of {}: {}{known}",
            self.provider, self.order_id, self.verdict
        )
    }

    /// On what the verdict rests, as names and values.
    pub(crate) fn grounds(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            ("why", self.reason.as_deref()),
            ("not before", self.not_before.as_deref()),
            ("evidence", Some(self.evidence.as_str())),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    fn money(&self) -> Option<String> {
        let amount = self.amount.as_ref()?;
        let currency = self.currency.as_deref().unwrap_or("");
        Some(format!("{} {currency}", amount.get()).trim_end().to_owned())
    }

    /// The four that say something are answers; unknown is code 8.
    pub(crate) fn result(&self) -> Result<Exit> {
        if self.verdict != Verdict::Unknown.as_str() {
            return Ok(Exit::Done);
        }
        let reason = self.reason.as_deref().unwrap_or("no reason given");
        let error = CliError::new(
            Exit::Provider,
            format!("{} cannot tell about {}: {reason}", self.provider, self.order_id),
        );
        Err(match &self.not_before {
            Some(time) => error.hint(format!("ask again after {time}")),
            None => error.hint("nothing was changed; leave the row as it is until the provider can tell"),
        })
    }
}

/// A number or text of the provider's, which is whatever the configuration points at.
pub(super) fn amount(amount: &RawValue) -> Box<RawValue> {
    let masked = Masker::default().body(amount.get()).into_owned();
    RawValue::from_string(masked).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// When somebody asked is a fact about this process, shown and never decided on.
#[expect(
    clippy::disallowed_methods,
    reason = "no database takes part in asking a provider"
)]
fn clock() -> chrono::DateTime<chrono::Utc> {
    chrono::Utc::now()
}

impl Document for StatusView {
    fn text(&self, out: &mut dyn Write) -> io::Result<()> {
        let bold = anstyle::Style::new().bold();
        writeln!(
            out,
            "{} says of {}: {bold}{}{bold:#}",
            printable(&self.provider),
            printable(&self.order_id),
            self.verdict
        )?;
        let lines = [
            ("reference", self.reference.clone()),
            ("amount", self.money()),
            ("its own word", self.raw_status.clone()),
            ("why", self.reason.clone()),
            ("not before", self.not_before.clone()),
            ("evidence", Some(self.evidence.clone())),
            ("checked at", Some(self.checked_at.clone())),
        ];
        for (name, value) in lines {
            if let Some(value) = value {
                writeln!(out, "  {name:<13} {}", printable(&value))?;
            }
        }
        Ok(())
    }
}
