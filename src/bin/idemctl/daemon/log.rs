//! What the daemon's log says of its jobs.

use idemctl::janitor::Done;
use idemctl::janitor::service::Event;
use idemctl::ops::expired::Policy;

/// Stuck keys that the policy only reports: named, so that somebody looks.
fn stuck(done: &Done) -> Option<String> {
    let Done::Expired(Ok(report)) = done else {
        return None;
    };
    if report.policy != Policy::Report || report.stuck == 0 {
        return None;
    }
    let first: Vec<String> = report.first.iter().map(ToString::to_string).collect();
    let age = report
        .oldest_seconds
        .map(|seconds| format!(", the oldest for {}", crate::render::key::age(seconds)))
        .unwrap_or_default();
    Some(format!("{report}{age}; first: {}", first.join(", ")))
}

/// One line for each event.
pub(super) fn event(event: &Event<'_>) {
    match event {
        Event::Scheduled { job, at } => tracing::info!(%job, at = %at.to_rfc3339(), "next run"),
        Event::Started { job } => tracing::debug!(%job, "run starts"),
        Event::Held { job, by, until } => {
            tracing::info!(%job, by = %by.escape_debug(), %until, "somebody else runs it");
        }
        Event::Lost { job, how } => tracing::warn!(%job, "the run stopped, since the job was lost: {how}"),
        Event::Finished { done } => {
            let job = done.job();
            if done.cause().is_some() {
                tracing::error!(%job, "run failed: {done}");
            } else if done.is_partial() {
                tracing::warn!(%job, "run partly done: {done}");
            } else if let Some(stuck) = stuck(done) {
                tracing::warn!(%job, "{stuck}");
            } else {
                tracing::info!(%job, "run done: {done}");
            }
        }
        Event::NotRun {
            job,
            cause,
            again_in: Some(wait),
        } => {
            tracing::warn!(%job, again_in_ms = wait.as_millis(), "couldn't run, trying again: {cause}");
        }
        Event::NotRun {
            job,
            cause,
            again_in: None,
        } => {
            tracing::error!(%job, "couldn't run, next try on schedule: {cause}");
        }
        _ => {}
    }
}
