//! What the section of the configuration may hold.

use crate::error::Result;
use crate::fingerprint::json::Pointer;
use crate::provider::config::wrong;
use crate::provider::judge::Fields;

/// Whether a text has the form of an account's id.
pub(super) fn is_account(text: &str) -> bool {
    text.strip_prefix("acct_").is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

/// Where both kinds of objects say what.
pub(super) fn fields(name: &str) -> Result<Fields> {
    let at = |text: &str| Pointer::parse(text).map_err(|problem| wrong(name, "object", problem));
    Ok(Fields {
        status: at("/status")?,
        reference: Some(at("/id")?),
        amount: Some(at("/amount")?),
        currency: Some(at("/currency")?),
    })
}

/// The name below `metadata` that `match` means. Elsewhere the search could not find an order id.
pub(super) fn field(name: &str, pointer: Option<&str>) -> Result<String> {
    let field = pointer.map_or(Some("order_id"), |pointer| pointer.strip_prefix("/metadata/"));
    // Names have up to 40 characters, and no square brackets (docs.stripe.com/api/metadata).
    let is_name = |field: &&str| {
        (1..=40).contains(&field.chars().count())
            && !field.contains(['[', ']', '"', '\\', '/', '~'])
            && !field.chars().any(char::is_control)
    };
    field.filter(is_name).map(str::to_owned).ok_or_else(|| {
        let problem = "is not of the form /metadata/NAME, and only metadata can be searched for";
        wrong(name, "match", problem)
    })
}
