//! What a layer does with which requests.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::request::Parts;

use crate::fingerprint::{Fields, Fingerprint};
use crate::key::{KeyId, MAX_NAME_CHARS};
use crate::protocol::{OnExpired, Request, SingleFlight};

/// Whether a request must carry a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Requirement {
    /// 400 without one.
    #[default]
    Required,
    /// Without one the handler runs unprotected.
    Optional,
}

/// Who sends a request: `None` when it cannot be told.
pub(super) type ClientOf = Arc<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// Under which of our ids the provider will know the operation.
pub(super) type OrderOf = Arc<dyn Fn(&Parts, &KeyId) -> String + Send + Sync>;

#[derive(Clone)]
pub(super) struct Rules {
    pub(super) client: ClientOf,
    pub(super) requirement: Requirement,
    pub(super) methods: Vec<Method>,
    pub(super) max_request_bytes: usize,
    pub(super) fields: Option<Fields>,
    pub(super) lease: Option<Duration>,
    pub(super) provider: Option<String>,
    pub(super) order: Option<OrderOf>,
    pub(super) on_expired: OnExpired,
    pub(super) retention: Option<Duration>,
    pub(super) single_flight: Option<SingleFlight>,
}

impl Rules {
    /// Method, path and query: another query is another operation.
    pub(super) fn operation(parts: &Parts) -> String {
        let target = parts
            .uri
            .path_and_query()
            .map_or_else(|| parts.uri.path(), http::uri::PathAndQuery::as_str);
        let operation = format!("{} {target}", parts.method);
        if operation.chars().count() <= MAX_NAME_CHARS {
            return operation;
        }
        // Longer than the column may be: the digest tells operations apart as well.
        format!(
            "{} sha256:{}",
            parts.method,
            Fingerprint::of_bytes(target.as_bytes()).as_str()
        )
    }

    /// JSON by its canonical form, so that another serializer makes no other request; anything else by its bytes.
    pub(super) fn fingerprint(&self, parts: &Parts, body: &[u8]) -> crate::error::Result<Fingerprint> {
        if let Some(fields) = &self.fields {
            return Fingerprint::of_json_fields(body, fields);
        }
        let is_json = parts
            .headers
            .get(http::header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| {
                let essence = value
                    .split(';')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .to_ascii_lowercase();
                essence == "application/json" || essence.ends_with("+json")
            });
        if is_json && !body.is_empty() {
            Fingerprint::of_json(body)
        } else {
            Ok(Fingerprint::of_bytes(body))
        }
    }

    /// The request to the protocol.
    pub(super) fn request(
        &self,
        parts: &Parts,
        id: KeyId,
        fingerprint: Fingerprint,
    ) -> crate::error::Result<Request> {
        let order = self.order.as_ref().map(|order| order(parts, &id));
        let mut request = Request::new(id, fingerprint)
            .operation(Self::operation(parts))?
            .on_expired(self.on_expired);
        if let Some(lease) = self.lease {
            request = request.lease(lease)?;
        }
        if let Some(provider) = &self.provider {
            request = request.provider(provider.clone())?;
        }
        if let Some(order) = order {
            request = request.order_id(order)?;
        }
        Ok(request)
    }
}
