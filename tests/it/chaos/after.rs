//! What may still be heard of a key once somebody has heard its final answer.

use std::collections::BTreeSet;

use super::checker::{Violation, shown};
use super::history::{Exchange, Heard, Id};

/// Requests that were started after a final answer was heard. The answer was stored before it was given, so each of
/// them may hear that same answer as a stored one (another amount: that it is refused), that the service is not
/// available, or nothing.
pub(super) fn check(
    id: &Id,
    exchanges: &[&Exchange],
    shares_flights: Option<usize>,
    found: &mut BTreeSet<Violation>,
) {
    let finals = exchanges.iter().filter(|exchange| exchange.heard.is_final());
    let Some(first) = finals.min_by_key(|exchange| exchange.ended) else {
        return;
    };
    for late in exchanges.iter().filter(|late| late.started > first.ended) {
        let Heard::Answer {
            status,
            replayed,
            body,
        } = &late.heard
        else {
            continue;
        };
        let same = !late.wish.wrong && late.wish.amount == first.wish.amount;
        let allowed = match status {
            503 => true,
            422 => !same,
            201 | 402 => same && *replayed,
            409 => shares_flights == Some(late.service) && boarded(exchanges, first, late),
            _ => false,
        };
        if !allowed {
            found.insert(Violation::AskedAgain {
                id: id.clone(),
                answer: shown(*status, body),
            });
        }
    }
}

/// Whether an equal request was under way at the same service that may have asked the table before the answer was
/// there: the late one gets what that one was told. How long a service works on a request whose client has gone is
/// not known here.
fn boarded(exchanges: &[&Exchange], first: &Exchange, late: &Exchange) -> bool {
    exchanges.iter().any(|other| {
        let under_way = other.ended > late.started || matches!(other.heard, Heard::Nothing(_));
        other.service == late.service && other.wish == late.wish && other.started < first.ended && under_way
    })
}
