//! What Stripe's objects say of the money.

use std::collections::BTreeMap;

use crate::fingerprint::json::Value;
use crate::provider::Verdict;

/// Which of Stripe's objects stands for one of our orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Object {
    PaymentIntent,
    Charge,
}

impl Object {
    /// Reads the setting; by default a payment intent.
    pub(super) fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("payment_intent") => Some(Self::PaymentIntent),
            Some("charge") => Some(Self::Charge),
            Some(_) => None,
        }
    }

    /// Where the API has them.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::PaymentIntent => "/v1/payment_intents",
            Self::Charge => "/v1/charges",
        }
    }

    /// Whether a text has the form of Stripe's own id of such an object (charges of some methods begin with `py_`).
    pub(super) fn is_id(self, text: &str) -> bool {
        let prefixes: &[&str] = match self {
            Self::PaymentIntent => &["pi_"],
            Self::Charge => &["ch_", "py_"],
        };
        let rest = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
        rest.is_some_and(|rest| {
            !rest.is_empty()
                && rest
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
    }

    /// What a word of `status` means by itself.
    ///
    /// The lifecycle of payment intents is at `docs.stripe.com/payments/paymentintents/lifecycle`: after a decline
    /// one goes back to `requires_payment_method` and may be paid with another card, so that only `canceled` is
    /// the end without money. Statuses of charges are those of `docs.stripe.com/api/charges/object`.
    pub(super) fn words(self) -> BTreeMap<String, Verdict> {
        let words: &[(&str, Verdict)] = match self {
            Self::PaymentIntent => &[
                ("succeeded", Verdict::Charged),
                ("requires_capture", Verdict::Authorized),
                ("processing", Verdict::Pending),
                ("requires_payment_method", Verdict::Pending),
                ("requires_confirmation", Verdict::Pending),
                ("requires_action", Verdict::Pending),
                ("canceled", Verdict::NotCharged),
            ],
            // `succeeded` depends on more: see `verdict`.
            Self::Charge => &[("pending", Verdict::Pending), ("failed", Verdict::NotCharged)],
        };
        words
            .iter()
            .map(|(word, verdict)| ((*word).to_owned(), *verdict))
            .collect()
    }

    /// The verdict where the status alone does not give it; `None` leaves it to the word.
    pub(super) fn verdict(self) -> fn(&Value) -> Option<Verdict> {
        match self {
            Self::PaymentIntent => intent,
            Self::Charge => charge,
        }
    }
}

/// A part of the money may have been captured while the intent still holds the rest, or gave the rest back
/// (`docs.stripe.com/payments/multicapture`): received money was charged, whatever the status.
fn intent(payment: &Value) -> Option<Verdict> {
    is_positive(payment, "amount_received").then_some(Verdict::Charged)
}

fn charge(payment: &Value) -> Option<Verdict> {
    let text = |name: &str| member(payment, name).and_then(Value::scalar_text);
    match (text("status").as_deref(), member(payment, "captured")) {
        (Some("succeeded"), Some(Value::Bool(true))) => Some(Verdict::Charged),
        // An authorization is given back by refunding the charge that was never captured; no money moved.
        (Some("succeeded"), Some(Value::Bool(false))) => match member(payment, "refunded") {
            Some(Value::Bool(true)) => Some(Verdict::NotCharged),
            _ => Some(Verdict::Authorized),
        },
        // One try of an intent, which may still be paid otherwise.
        (Some("failed"), _) if text("payment_intent").is_some() => Some(Verdict::Pending),
        _ => None,
    }
}

fn is_positive(payment: &Value, name: &str) -> bool {
    match member(payment, name) {
        Some(Value::Number(number)) => {
            !number.starts_with('-') && number.bytes().any(|b| (b'1'..=b'9').contains(&b))
        }
        _ => false,
    }
}

/// A member of an object.
pub(super) fn member<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    match value {
        Value::Object(members) => members.get(name),
        _ => None,
    }
}

/// Stripe's id of an object.
pub(super) fn id(value: &Value) -> Option<&str> {
    match member(value, "id") {
        Some(Value::String(id)) => Some(id),
        _ => None,
    }
}

/// What an object has under `metadata.NAME`.
pub(super) fn metadata<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    match member(member(value, "metadata")?, name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::json;

    fn verdict(object: Object, text: &str) -> Option<Verdict> {
        let payment = json::parse(text.as_bytes()).unwrap();
        let word = member(&payment, "status").and_then(Value::scalar_text);
        object.verdict()(&payment).or_else(|| object.words().get(&word.unwrap_or_default()).copied())
    }

    #[test]
    fn received_money_was_charged_whatever_the_status() {
        for (text, expected) in [
            (r#"{"status":"succeeded"}"#, Some(Verdict::Charged)),
            (
                r#"{"status":"canceled","amount_received":0}"#,
                Some(Verdict::NotCharged),
            ),
            (
                r#"{"status":"canceled","amount_received":1000}"#,
                Some(Verdict::Charged),
            ),
            (
                r#"{"status":"requires_capture","amount_received":1}"#,
                Some(Verdict::Charged),
            ),
            (
                r#"{"status":"requires_capture","amount_received":null}"#,
                Some(Verdict::Authorized),
            ),
            (r#"{"status":"requires_source"}"#, None),
            (r#"{"amount":1}"#, None),
        ] {
            assert_eq!(verdict(Object::PaymentIntent, text), expected, "{text}");
        }
    }

    #[test]
    fn a_charge_that_succeeded_is_judged_by_its_capture() {
        for (text, expected) in [
            (
                r#"{"status":"succeeded","captured":true}"#,
                Some(Verdict::Charged),
            ),
            (
                r#"{"status":"succeeded","captured":true,"refunded":true}"#,
                Some(Verdict::Charged),
            ),
            (
                r#"{"status":"succeeded","captured":false,"refunded":false}"#,
                Some(Verdict::Authorized),
            ),
            (
                r#"{"status":"succeeded","captured":false,"refunded":true}"#,
                Some(Verdict::NotCharged),
            ),
            (r#"{"status":"succeeded"}"#, None),
            (r#"{"status":"pending","captured":true}"#, Some(Verdict::Pending)),
            (
                r#"{"status":"failed","payment_intent":null}"#,
                Some(Verdict::NotCharged),
            ),
            (
                r#"{"status":"failed","payment_intent":"pi_1"}"#,
                Some(Verdict::Pending),
            ),
            (r#"{"status":"paid","captured":true}"#, None),
        ] {
            assert_eq!(verdict(Object::Charge, text), expected, "{text}");
        }
    }

    #[test]
    fn ids_cannot_step_out_of_the_path() {
        assert!(Object::PaymentIntent.is_id("pi_3MtwBwLkdIwHu7ix28a3tqPa"));
        assert!(Object::Charge.is_id("py_1") && Object::Charge.is_id("ch_1"));
        for text in ["pi_", "pi_1/../x", "pi_1?x", "pi_é", "PI_1", "order-1", "ch_1"] {
            assert!(!Object::PaymentIntent.is_id(text), "{text}");
        }
    }
}
