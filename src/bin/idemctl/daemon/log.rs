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

/// One line for each event; `before`: what was the matter with the job until then, `cleared`: it is not any more.
pub(super) fn event(event: &Event<'_>, before: Option<&str>, cleared: bool) {
    match event {
        Event::Looked { job, .. } if cleared => tracing::info!(%job, "the job can run again"),
        Event::Scheduled { job, at } => tracing::info!(%job, at = %at.to_rfc3339(), "next run"),
        Event::Started { job } => tracing::debug!(%job, "run starts"),
        Event::Held { job, by, until } => {
            tracing::info!(%job, by = %by.escape_debug(), %until, "somebody else runs it");
        }
        Event::Lost { job, how } => tracing::warn!(%job, "the run stopped, since the job was lost: {how}"),
        Event::Finished { done } => {
            let job = done.job();
            if done.is_interrupted() {
                tracing::info!(%job, "run stopped before its end: {done}");
            } else if done.cause().is_some() {
                tracing::error!(%job, "run failed: {done}");
            } else if done.is_partial() {
                tracing::warn!(%job, "run partly done: {done}");
            } else if let Some(stuck) = stuck(done) {
                tracing::warn!(%job, "{stuck}");
            } else {
                tracing::info!(%job, "run done: {done}");
            }
        }
        Event::NotRun { job, cause, again_in } => {
            let wait = again_in.as_millis();
            if before == Some(cause.to_string().as_str()) {
                tracing::debug!(%job, again_in_ms = wait, "still can't run, trying again: {cause}");
            } else {
                tracing::warn!(%job, again_in_ms = wait, "couldn't run, trying again and again: {cause}");
            }
        }
        _ => {}
    }
}
