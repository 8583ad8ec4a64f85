//! The protocol as a tower layer, for axum and every other server that speaks `http` and `tower`.
//!
//! A request with the header `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header) is claimed before the
//! handler runs; a repeat gets the stored answer, byte for byte. What a client gets that does not reach the handler:
//!
//! | situation | answer | problem type |
//! | --- | --- | --- |
//! | no key where one is required | 400 | [`problem::KEY_MISSING`] |
//! | a key that is none | 400 | [`problem::KEY_INVALID`] |
//! | a body that cannot be fingerprinted | 400 | [`problem::BODY_INVALID`] |
//! | a body over the limit | 413 | [`problem::BODY_TOO_LARGE`] |
//! | another request with this key is at work | 409, `Retry-After` | [`problem::IN_PROGRESS`] |
//! | the key was used for another request | 422 | [`problem::MISMATCH`] |
//! | the table cannot be reached: nothing is done unprotected | 503, `Retry-After` | [`problem::UNAVAILABLE`] |
//! | it was done before | the stored answer with `Idempotent-Replayed: true` | |
//!
//! What becomes of the handler's answer:
//!
//! | the handler | its work had begun ([`Attempt::begin`], or asking for what the provider is sent) | not begun |
//! | --- | --- | --- |
//! | answers 1xx to 3xx | stored | stored |
//! | answers 4xx | stored: a declined card is a final answer | not stored; the key is given back |
//! | answers 5xx, 408, 425, 429, 499 | not stored; outcome unknown, a retry runs it again with the same provider key | the key is given back |
//! | fails with an error of the service | outcome unknown | the key is given back |
//! | panics | outcome unknown | outcome unknown |
//!
//! The handler runs in a task of its own: a client that goes away does not stop it half-way, and its answer is
//! stored. An answer that could not be stored is not given to anybody: where the lease was lost the client gets
//! what is stored instead, and where the table went away a 503 ([`problem::OUTCOME_UNKNOWN`]) that asks it to
//! repeat with the same key.

mod at_work;
mod attempt;
mod claim;
mod connections;
mod key_header;
mod layer;
pub mod problem;
mod rules;
mod service;
mod settle;
mod stored;

pub use attempt::Attempt;
pub use connections::Connections;
pub use layer::{DEFAULT_MAX_REQUEST_BYTES, DEFAULT_STATEMENT_TIMEOUT, IdempotencyLayer};
pub use rules::Requirement;
pub use service::IdempotencyService;

/// Request header with the client's key.
pub const KEY_HEADER: &str = "idempotency-key";

/// `true` on an answer that was stored earlier.
pub const REPLAYED_HEADER: &str = "idempotent-replayed";

/// For how many seconds after it was made an answer is kept: what the configured retention says.
pub const RETENTION_HEADER: &str = "idempotency-retention";

/// On a replay: when its answer may be forgotten (an HTTP date, RFC 9110 section 5.6.7).
pub const EXPIRES_HEADER: &str = "idempotency-expires";
