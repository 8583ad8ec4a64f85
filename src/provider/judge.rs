//! The rules that every adapter shares: from what a look-up found to a verdict.
//!
//! Whoever reads "not charged" repeats the charge. So it is said only where the look-up covers the attempt, is
//! complete, and the provider has had the time to show the payment; everything else is unknown, with the reason.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::fetch::Trouble;
use super::{LookUp, Payment, ProviderStatus, StatusQuery, Verdict};
use crate::fingerprint::json::{Pointer, Value};

/// Where a payment says what.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) status: Pointer,
    pub(super) reference: Option<Pointer>,
    pub(super) amount: Option<Pointer>,
    pub(super) currency: Option<Pointer>,
}

/// Judges what was found at one provider.
#[derive(Debug)]
pub(super) struct Judge {
    /// The provider's name in the configuration.
    pub(super) name: String,
    pub(super) look_up: LookUp,
    pub(super) fields: Fields,
    /// What the provider's words mean. A word that is absent is unknown.
    pub(super) words: BTreeMap<String, Verdict>,
    /// The verdict where the word alone does not give it; what it leaves open is for `words`.
    pub(super) special: Option<fn(&Value) -> Option<Verdict>>,
    /// Who does not know an absent word: `providers.acme.verdicts does not list`.
    pub(super) unlisted: String,
}

impl Judge {
    /// All payments of the order that a look-up found. `gap`: why the look-up may have missed some.
    ///
    /// One order may have several payments, one for each attempt. Where all but one are void, that one decides.
    /// Two that are not void are for people: money may have moved twice. A payment that was found counts though
    /// others may have been missed, but "not charged" is never said with a gap.
    pub(super) fn payments(
        &self,
        query: &StatusQuery,
        evidence: String,
        found: Vec<Value>,
        gap: Option<Trouble>,
    ) -> ProviderStatus {
        let gap = gap.or_else(|| self.window_gap(query));
        let is_live = |payment: &Value| self.word(payment).1 != Some(Verdict::NotCharged);
        let (mut live, mut void): (Vec<_>, Vec<_>) = found.into_iter().partition(is_live);
        match (live.pop(), void.pop(), gap) {
            (None, None, None) => self.miss(query, evidence),
            (None, None, Some(gap)) => {
                let reason = format!("no payment was found, which proves nothing: {}", gap.reason);
                self.unknown(query, evidence, Trouble { reason, ..gap })
            }
            (None, Some(payment), None) => self.payment(query, evidence, payment),
            (None, Some(payment), Some(gap)) => {
                let reason = format!(
                    "an attempt failed, but a later one may have been missed: {}",
                    gap.reason
                );
                let status = self.unknown(query, evidence, Trouble { reason, ..gap });
                self.describe(status, payment)
            }
            (Some(payment), _, gap) if live.is_empty() => {
                let evidence = match gap {
                    None => evidence,
                    Some(gap) => format!("{evidence}; others may have been missed: {}", gap.reason),
                };
                self.payment(query, evidence, payment)
            }
            (Some(payment), _, _) => {
                live.push(payment);
                self.several(query, evidence, &live)
            }
        }
    }

    /// A window that does not begin before the first attempt proves nothing.
    fn window_gap(&self, query: &StatusQuery) -> Option<Trouble> {
        let without_begin =
            matches!(self.look_up, LookUp::Window { .. }) && query.first_attempted_at_age.is_none();
        without_begin.then(|| {
            Trouble::from(
                "it is not known when the first attempt began, and so how far back to look".to_owned(),
            )
        })
    }

    /// Several payments that may all have moved money.
    fn several(&self, query: &StatusQuery, evidence: String, live: &[Value]) -> ProviderStatus {
        let shown: Vec<_> = live
            .iter()
            .take(5)
            .map(|payment| {
                let reference = self.reference(payment);
                let (word, _) = self.word(payment);
                format!(
                    "{:?} ({:?})",
                    reference.unwrap_or_default(),
                    word.unwrap_or_default()
                )
            })
            .collect();
        let reason = format!(
            "{} payments of this order are not void, and somebody has to look at them: {}{}",
            live.len(),
            shown.join(", "),
            if live.len() > shown.len() { ", ..." } else { "" }
        );
        self.unknown(query, evidence, reason.into())
    }

    /// Nothing was found by a look-up without gaps, which proves something only when the provider has had the
    /// time to show it.
    pub(super) fn miss(&self, query: &StatusQuery, evidence: String) -> ProviderStatus {
        if let Some(gap) = self.window_gap(query) {
            return self.unknown(query, evidence, gap);
        }
        let (LookUp::Exact { lag } | LookUp::Window { lag }) = self.look_up else {
            let reason = "this provider cannot be asked for an order".to_owned();
            return self.unknown(query, evidence, reason.into());
        };
        let Some(age) = query.attempted_at_age else {
            let reason = "no payment was found, which proves nothing while it is not known when the last attempt began";
            return self.unknown(query, evidence, reason.to_owned().into());
        };
        if age < lag {
            let reason = format!(
                "no payment was found, which proves nothing until {} after the last attempt",
                crate::duration::format(lag)
            );
            let not_before = Some(lag.saturating_sub(age));
            return self.unknown(query, evidence, Trouble { reason, not_before });
        }
        ProviderStatus::new(&self.name, &query.order_id, Verdict::NotCharged, evidence)
    }

    /// The one payment of the order.
    pub(super) fn payment(&self, query: &StatusQuery, evidence: String, payment: Value) -> ProviderStatus {
        let status = match self.word(&payment) {
            (_, Some(Verdict::NotCharged)) => self.not_charged(query, evidence),
            (_, Some(verdict)) => ProviderStatus::new(&self.name, &query.order_id, verdict, evidence),
            (Some(raw), None) => {
                let reason = format!("the payment has the status {raw:?}, which {}", self.unlisted);
                self.unknown(query, evidence, reason.into())
            }
            (None, None) => {
                let at = self.fields.status.to_string();
                self.unknown(
                    query,
                    evidence,
                    format!("the payment has no status at {at:?}").into(),
                )
            }
        };
        self.describe(status, payment)
    }

    /// A payment that was asked for by the provider's own id of it, which is not an order with perhaps several
    /// payments: its own word is the last one.
    pub(super) fn object(&self, query: &StatusQuery, evidence: String, payment: Value) -> ProviderStatus {
        if self.verdict(&payment) != Some(Verdict::NotCharged) {
            return self.payment(query, evidence, payment);
        }
        let status = ProviderStatus::new(&self.name, &query.order_id, Verdict::NotCharged, evidence);
        self.describe(status, payment)
    }

    /// The payment that was found failed; but a later one may not be visible yet. How many attempts there were is
    /// not asked: a row that was released and reserved anew counts them from one.
    fn not_charged(&self, query: &StatusQuery, evidence: String) -> ProviderStatus {
        let (LookUp::Exact { lag } | LookUp::Window { lag }) = self.look_up else {
            let reason = "this provider cannot be asked for an order".to_owned();
            return self.unknown(query, evidence, reason.into());
        };
        if query.attempted_at_age.is_some_and(|age| age >= lag) {
            return ProviderStatus::new(&self.name, &query.order_id, Verdict::NotCharged, evidence);
        }
        let trouble = Trouble {
            reason: format!(
                "an attempt failed, but a later one may not be visible until {} after the last attempt",
                crate::duration::format(lag)
            ),
            not_before: query.attempted_at_age.map(|age| lag.saturating_sub(age)),
        };
        self.unknown(query, evidence, trouble)
    }

    /// Nothing can be told.
    pub(super) fn unknown(&self, query: &StatusQuery, evidence: String, trouble: Trouble) -> ProviderStatus {
        let mut status = ProviderStatus::new(&self.name, &query.order_id, Verdict::Unknown, evidence);
        status.reason = Some(trouble.reason);
        status.not_before = trouble.not_before;
        status
    }

    /// The provider's own id of a payment.
    pub(super) fn reference(&self, payment: &Value) -> Option<String> {
        scalar(self.fields.reference.as_ref(), payment)
    }

    /// What the payment comes to by itself; `None`: nobody knows its word.
    pub(super) fn verdict(&self, payment: &Value) -> Option<Verdict> {
        self.word(payment).1
    }

    /// The provider's word for the payment's state, and what it means.
    fn word(&self, payment: &Value) -> (Option<String>, Option<Verdict>) {
        let word = scalar(Some(&self.fields.status), payment);
        let special = self.special.and_then(|special| special(payment));
        let verdict = special.or_else(|| self.words.get(word.as_ref()?).copied());
        (word, verdict)
    }

    /// Adds what the payment says of itself.
    fn describe(&self, mut status: ProviderStatus, payment: Value) -> ProviderStatus {
        let Fields { amount, currency, .. } = &self.fields;
        status.reference = self.reference(&payment);
        status.currency = scalar(currency.as_ref(), &payment);
        status.amount = amount.as_ref().and_then(|pointer| exact(pointer.find(&payment)?));
        status.raw_status = self.word(&payment).0;
        status.payment = Some(Payment(payment));
        status
    }
}

fn scalar(pointer: Option<&Pointer>, payment: &Value) -> Option<String> {
    pointer?.find(payment)?.scalar_text()
}

/// The text of a number or string, digit for digit.
fn exact(value: &Value) -> Option<Box<RawValue>> {
    matches!(value, Value::Number(_) | Value::String(_))
        .then(|| RawValue::from_string(value.compact()).ok())?
}
