//! A holder whose lease is over, and whose key another one took, can change nothing any more.

use std::time::Duration;

use super::check::Check;
use super::env::{Env, id, request};
use crate::error::{Error, Result};
use crate::protocol::{Lease, MIN_LEASE};
use crate::response::Response;

/// How long after the end of a lease the takeover may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a holder may do with its lease.
#[derive(Debug, Clone, Copy)]
enum Action {
    Complete,
    Renew,
    Abandon,
    OutcomeUnknown,
}

const ACTIONS: [(Action, &str, &str); 4] = [
    (Action::Complete, "fencing.complete", "stores its result"),
    (Action::Renew, "fencing.renew", "renews its lease"),
    (Action::Abandon, "fencing.abandon", "gives the key back"),
    (
        Action::OutcomeUnknown,
        "fencing.outcome_unknown",
        "says that its outcome is unknown",
    ),
];

pub(super) fn checks() -> Vec<Check> {
    ACTIONS
        .iter()
        .map(|(_, name, does)| {
            Check::of(
                name,
                format!("a holder whose lease ran out and whose key another client took {does}"),
                "\"lease lost\", and the row stays as it is",
            )
        })
        .collect()
}

impl Action {
    async fn attempt(self, env: &Env, lease: &mut Lease) -> Result<()> {
        let conn = &env.first().conn;
        match self {
            Self::Complete => lease.complete(conn, &Response::new(201, "\"late\"")?).await,
            Self::Renew => lease.renew(conn, Duration::from_secs(30)).await,
            Self::Abandon => lease.abandon(conn).await.map(|_| ()),
            Self::OutcomeUnknown => lease.outcome_unknown(conn, "late").await,
        }
    }
}

pub(super) async fn run(env: &Env, checks: &mut [Check]) -> Result<()> {
    let mut late = Vec::new();
    for (_, name, _) in ACTIONS {
        let request = request(id(name)?)?.lease(MIN_LEASE)?;
        late.push(env.first().acquire(&request).await?);
    }
    for (check, ((action, name, does), mut old)) in checks.iter_mut().zip(ACTIONS.into_iter().zip(late)) {
        let id = id(name)?;
        let request = request(id.clone())?;
        let mut taken = env
            .second()
            .acquire_within(&request, MIN_LEASE + PATIENCE)
            .await?;
        let before = env.row(&id).await?;
        let result = action.attempt(env, &mut old).await;
        let after = env.row(&id).await;
        let unchanged = matches!(&after, Ok(after) if *after == before);
        let refused = matches!(result, Err(Error::LeaseLost { .. }));
        let said = match &result {
            Ok(()) => "it was accepted".to_owned(),
            Err(error) => error.to_string(),
        };
        let row = if unchanged { "unchanged" } else { "CHANGED" };
        // The second holder, for whom all this is done, must be able to go on.
        let finished = taken
            .complete(&env.second().conn, &Response::new(201, "{}")?)
            .await;
        let second = match &finished {
            Ok(()) => "the new holder then stored its result".to_owned(),
            Err(error) => format!("the new holder then could not store its result: {error}"),
        };
        check.judge(
            refused && unchanged && finished.is_ok(),
            format!("{said}; the row is {row}; {second}"),
            (
                "A late process can change nothing any more.".to_owned(),
                format!("A late process that {does} CHANGES a payment that another one has taken over."),
            ),
        );
        // It was lost, whatever the answer was.
        old.forget();
        taken.forget();
    }
    Ok(())
}
