//! What the configuration promises, against what providers remember and take.

use std::time::Duration;

use super::{Check, Request};
use crate::duration::format;
use crate::ops::ask::Providers;
use crate::provider::Facts;
use crate::provider_key::{DERIVED_LEN, KeyScheme};

/// How long clients may go on repeating a request: what is published, and what most providers remember.
const LEAST_RETENTION: Duration = Duration::from_hours(24);

/// The longest plain key in bytes: two names of 255 characters and a colon, of one byte each.
const LONGEST_PLAIN: usize = 511;

/// The shortest time for which one of the providers remembers a key, where that is known.
pub(super) fn shortest_memory(providers: &Providers) -> Option<Duration> {
    facts(providers)
        .filter_map(|(_, facts)| facts.key_retention)
        .min()
}

fn facts(providers: &Providers) -> impl Iterator<Item = (&str, Facts)> {
    providers
        .each()
        .filter_map(|(name, provider)| Some((name, provider.ok()?.facts().clone())))
}

/// Providers, lease, retention, keys.
pub(super) fn checks(request: &Request<'_>) -> Vec<Check> {
    vec![
        providers(request.providers),
        lease(request),
        retention(request),
        keys(request.providers),
    ]
}

fn providers(providers: &Providers) -> Check {
    let check = Check::of("providers", "every configured provider can be asked");
    let wrong = providers
        .each()
        .find_map(|(_, provider)| provider.err())
        .map(|error| error.to_string());
    match wrong {
        Some(wrong) => check.error(wrong, "idemctl config --check"),
        None if providers.is_empty() => check.ok("none is configured"),
        None => check.ok(providers.names()),
    }
}

/// A lease that ends before the provider's answer lets a retry run beside the first request.
fn lease(request: &Request<'_>) -> Check {
    let check = Check::of(
        "lease",
        "a lease of more than twice the slowest provider's timeout",
    );
    let lease = request.lease;
    let slowest = facts(request.providers).max_by_key(|(_, facts)| facts.timeout);
    let Some((name, slowest)) = slowest else {
        return check.ok(format!("{}; no provider is configured", format(lease)));
    };
    let found = format!(
        "lease {}, timeout of {name} {}",
        format(lease),
        format(slowest.timeout)
    );
    let mend = format!(
        "[lease] default = \"{}\" in the configuration and in the services, or a shorter [providers.{name}] timeout",
        format(slowest.timeout.saturating_mul(3))
    );
    if lease <= slowest.timeout {
        check.error(format!("{found}: a retry runs beside the first request"), mend)
    } else if lease < slowest.timeout.saturating_mul(2) {
        check.warning(
            format!("{found}: little is left for the rest of the request"),
            mend,
        )
    } else {
        check.ok(found)
    }
}

fn retention(request: &Request<'_>) -> Check {
    let check = Check::of(
        "retention",
        "24 hours or more, and not longer than the providers remember their keys",
    );
    let kept = request.retention.done.min(request.retention.failed);
    let longest = request.retention.done.max(request.retention.failed);
    let found = format!(
        "done {}, failed {}",
        format(request.retention.done),
        format(request.retention.failed)
    );
    if kept < LEAST_RETENTION {
        return check.warning(
            format!("{found}: a client that repeats after that is charged again"),
            "[retention] done = \"24h\" and failed = \"24h\" in the configuration",
        );
    }
    let forgetful = facts(request.providers)
        .filter_map(|(name, facts)| Some((name, facts.key_retention?)))
        .min_by_key(|(_, retention)| *retention)
        .filter(|(_, retention)| *retention < longest);
    match forgetful {
        None => check.ok(found),
        Some((name, remembers)) => check.warning(
            format!(
                "{found}, but {name} forgets a key after {}: one that is taken over later than that is charged again",
                format(remembers)
            ),
            format!(
                "[retention] of {} at most, or settle stuck keys sooner (idemctl reconcile --expired)",
                format(remembers)
            ),
        ),
    }
}

/// Whether our keys fit into the providers'.
fn keys(providers: &Providers) -> Check {
    let check = Check::of("provider_keys", "keys within every provider's limit");
    let long = facts(providers).find_map(|(name, facts)| {
        let (scheme, longest) = match facts.key_scheme {
            KeyScheme::Derived => ("derived", DERIVED_LEN),
            KeyScheme::Plain => ("plain", LONGEST_PLAIN),
        };
        let limit = facts.key_limit.filter(|limit| *limit < longest)?;
        Some((name, scheme, longest, limit))
    });
    match long {
        Some((name, scheme @ "derived", longest, limit)) => check.error(
            format!("{name} takes {limit} bytes, and a {scheme} key has {longest}"),
            format!("[providers.{name}] key_limit as the provider documents it"),
        ),
        Some((name, scheme, longest, limit)) => check.warning(
            format!("{name} takes {limit} bytes, and a {scheme} key (client:key) can have {longest}"),
            format!("[providers.{name}] key_scheme = \"derived\", unless the fleet already sends plain keys"),
        ),
        None if providers.is_empty() => check.ok("no provider is configured"),
        None => check.ok("they fit"),
    }
}
