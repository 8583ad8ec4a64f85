//! Which requests are the same one.

use super::check::Check;
use super::env::{Env, id, request, word};
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::key::KeyId;
use crate::protocol::{Request, Reservation};
use crate::response::Response;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::of(
            "mismatch",
            "a key that is done is sent again with another body",
            "a mismatch (HTTP 422), and nothing is done",
        ),
        Check::of(
            "other_client",
            "another client sends the same key",
            "a row of its own",
        ),
    ]
}

pub(super) async fn run(env: &Env, checks: &mut [Check]) -> Result<()> {
    let id = id("identity")?;
    let first = request(id.clone())?;
    let mut lease = env.first().acquire(&first).await?;
    lease
        .complete(&env.first().conn, &Response::new(201, "{}")?)
        .await?;
    let body = Fingerprint::of_json(br#"{"amount":9999}"#)?;
    let other = env.second().ask(&Request::new(id.clone(), body)).await?;
    checks[0].judge(
        matches!(other, Reservation::Mismatch(_)),
        format!("the answer was: {}", word(&other)),
        (
            "An order number that is used again for another amount is noticed.",
            "An order number that is used again for another amount is NOT noticed.",
        ),
    );
    let theirs = KeyId::new("selftest-other-shop", id.key())?;
    let other = env.second().ask(&request(theirs)?).await?;
    let own = matches!(&other, Reservation::Acquired(lease) if lease.attempt() == 1);
    checks[1].judge(
        own,
        format!("the answer was: {}", word(&other)),
        (
            "Two shops may use the same order number.",
            "Two shops that use the same order number get in each other's way.",
        ),
    );
    if let Reservation::Acquired(mut lease) = other {
        lease.abandon(&env.second().conn).await?;
    }
    Ok(())
}
