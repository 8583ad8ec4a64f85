//! The search of objects by our order id.

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::object::{id, metadata};
use super::page::page;
use super::{Direct, StripeProvider};
use crate::fingerprint::json::Value;

/// How many objects that a search found are looked at one by one.
const MAX_HITS: usize = 5;

/// What the search came to.
pub(super) struct Searched {
    /// Payments of the order as they are now, not as the search shows them.
    pub(super) found: Vec<Value>,
    /// Stripe's ids of payments that the search shows for the order, of which it could not be told whether they are.
    pub(super) unconfirmed: Vec<String>,
    /// Whether it was answered, and shows all that it knows.
    pub(super) is_whole: bool,
    /// When the answer was given, by Stripe's clock.
    pub(super) date: Option<DateTime<Utc>>,
    /// What was asked and what came back.
    pub(super) evidence: String,
}

impl Searched {
    /// No answer that can be read.
    fn nothing(evidence: String) -> Self {
        Self {
            found: Vec::new(),
            unconfirmed: Vec::new(),
            is_whole: false,
            date: None,
            evidence,
        }
    }
}

impl StripeProvider {
    /// What the search finds, each confirmed by the object itself. Nothing is concluded from a search that fails
    /// or finds nothing.
    pub(super) async fn search(&self, order_id: &str, deadline: Instant) -> Searched {
        let asked = self.asked("/search");
        let Some(text) = query(&self.field, order_id) else {
            return Searched::nothing(format!("{asked}: not sent, the order id has a backslash"));
        };
        // Most of the time is left to the list, which has the last word.
        let limit = (Instant::now() + self.fetcher.timeout() / 3).min(deadline);
        let path = format!("{}/search", self.object.path());
        let parameters = [("query", text.as_str()), ("limit", "100")];
        let answer = match self.get(&path, &parameters, limit).await {
            Ok(answer) => answer,
            Err(trouble) => return Searched::nothing(format!("{asked}: {}", trouble.reason)),
        };
        let code = answer.status.as_u16();
        if code != 200 {
            return Searched::nothing(format!("{asked}: HTTP {code}, not available"));
        }
        let hits = match page(&answer) {
            Ok(hits) => hits,
            Err(problem) => return Searched::nothing(format!("{asked}: {problem}")),
        };
        let ours = hits
            .data
            .iter()
            .filter(|hit| metadata(hit, &self.field) == Some(order_id));
        let ids: Vec<&str> = ours.filter_map(id).collect();
        let (mut found, mut unconfirmed) = (Vec::new(), Vec::new());
        for (position, id) in ids.iter().enumerate() {
            if position >= MAX_HITS || !self.object.is_id(id) {
                unconfirmed.push((*id).to_owned());
                continue;
            }
            // What the search shows may be old.
            match self.direct(id, deadline).await {
                Direct::Found(payment) if metadata(&payment, &self.field) == Some(order_id) => {
                    found.push(payment);
                }
                // Of another order by now, or gone.
                Direct::Found(_) | Direct::Missing => {}
                Direct::Unclear(_) | Direct::Silent(_) => unconfirmed.push((*id).to_owned()),
            }
        }
        let more = if hits.has_more {
            ", and more that was not read"
        } else {
            ""
        };
        let evidence = format!(
            "{asked}: HTTP 200, {} of {} hits confirmed{more}",
            found.len(),
            ids.len()
        );
        Searched {
            found,
            unconfirmed,
            is_whole: !hits.has_more,
            date: answer.date,
            evidence,
        }
    }
}

/// A clause of the search language (`docs.stripe.com/search`): the value stands in quotes, and a quote in it is
/// escaped with a backslash. How a backslash itself is read is not said there; an order id that has one is not
/// searched for.
///
/// What is found is compared by us again: the search takes a text for a match that holds the words, in any case.
fn query(field: &str, order_id: &str) -> Option<String> {
    let is_plain = !order_id.contains('\\') && !order_id.chars().any(char::is_control);
    is_plain.then(|| format!("metadata[\"{field}\"]:\"{}\"", order_id.replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::query;

    #[test]
    fn an_order_id_stays_within_its_quotes() {
        for (order, expected) in [
            ("order-1", Some(r#"metadata["order_id"]:"order-1""#)),
            (
                r#"x" OR status:"succeeded"#,
                Some(r#"metadata["order_id"]:"x\" OR status:\"succeeded""#),
            ),
            ("it's", Some(r#"metadata["order_id"]:"it's""#)),
            (r"x\", None),
            (r#"x\" OR amount>0"#, None),
            ("x\ny", None),
        ] {
            assert_eq!(query("order_id", order).as_deref(), expected, "{order}");
        }
    }
}
