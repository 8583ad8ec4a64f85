//! The list of all objects that were created in a window of time.

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::StripeProvider;
use super::object::{id, metadata};
use super::page::page;
use crate::fingerprint::json::Value;
use crate::provider::fetch::Trouble;
use crate::provider::window::{List, Next, Page, Window};

/// How many objects a page has at most (`docs.stripe.com/api/pagination`).
const PER_PAGE: &str = "100";

impl List for StripeProvider {
    fn asked(&self) -> String {
        self.asked("")
    }

    async fn page(&self, window: &Window, cursor: Option<&str>, deadline: Instant) -> Result<Page, Trouble> {
        let from = window.from.map(|from| from.to_string());
        let mut parameters = vec![("limit", PER_PAGE)];
        parameters.extend(from.as_ref().map(|from| ("created[gte]", from.as_str())));
        parameters.extend(cursor.map(|cursor| ("starting_after", cursor)));
        let answer = self.get(self.object.path(), &parameters, deadline).await?;
        let code = answer.status.as_u16();
        if code != 200 {
            return Err(format!("the provider answered the list with HTTP {code}").into());
        }
        let page = page(&answer)?;
        let next = match (page.has_more, page.data.last().and_then(id)) {
            (false, _) => Next::End,
            (true, Some(last)) => Next::At(last.to_owned()),
            (true, None) => Next::Lost,
        };
        Ok(Page {
            payments: page.data,
            next,
        })
    }

    async fn now(&self, deadline: Instant) -> Result<Option<DateTime<Utc>>, Trouble> {
        let answer = self.get(self.object.path(), &[("limit", "1")], deadline).await?;
        match answer.status.as_u16() {
            200 => Ok(answer.date),
            // Perhaps of a gateway, with a clock of its own.
            code => Err(format!("the provider answered the list with HTTP {code}").into()),
        }
    }

    fn order(&self, payment: &Value) -> Option<String> {
        metadata(payment, &self.field).map(str::to_owned)
    }

    fn order_at(&self) -> String {
        format!("/metadata/{}", self.field)
    }

    fn id(&self, payment: &Value) -> Option<String> {
        id(payment).map(str::to_owned)
    }
}
