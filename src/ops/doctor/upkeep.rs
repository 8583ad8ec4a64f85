//! What has to go on by itself: vacuum, purge, janitor; and what piles up where it does not.

use std::time::Duration;

use super::{Check, Fix, Request, span};
use crate::connect::Connection;
use crate::error::{Error, Result};
use crate::janitor::Job;
use crate::store::doctor::{self, TableFacts};
use crate::store::purge::Ttl;
use crate::store::stats::StorageRow;
use crate::store::{JobRow, Store};
use crate::time::Timestamp;

/// Dead rows below this are no matter for anybody.
const MOST_DEAD: u64 = 10_000;

/// Changed rows below this are no matter for the planner.
const MOST_CHANGED: u64 = 10_000;

/// A transaction older than this keeps the vacuum from freeing what the purge deletes; the second is out of all bounds.
const OLD_TRANSACTION: (f64, f64) = (900.0, 4.0 * 3600.0);

/// A lease that is over for longer than this is not one that the client's own retry will find.
const STUCK: f64 = 600.0;

/// What is due for longer than this, no purge has come by for.
const OVERDUE: Duration = Duration::from_hours(2);

/// A daily purge and a little more.
const SILENCE: f64 = 26.0 * 3600.0;

/// Where counting ends.
const CAP: i64 = 10_001;

/// `facts`: of the table; `remembered`: the shortest time for which a provider remembers a key.
pub(super) async fn checks(
    conn: &Connection,
    store: Result<Store>,
    facts: Result<&Option<TableFacts>, &Error>,
    request: &Request<'_>,
    remembered: Option<Duration>,
) -> Vec<Check> {
    let autovacuum = Check::of("autovacuum", "autovacuum on, for this table too");
    let mut checks = vec![
        autovacuum
            .clone()
            .or_unknown(vacuums(autovacuum, conn, facts).await),
    ];
    let named = [
        Check::of("dead_rows", "fewer than 20 % dead rows"),
        Check::of("statistics", "planner's statistics that fit the table"),
        Check::of("expired", "no lease over for more than 10 minutes"),
        Check::of("backlog", "nothing past its retention for more than 2 hours"),
        Check::of("janitor", "a purge that succeeded within 26 hours"),
    ];
    let activity = Check::of(
        "oldest_transaction",
        "no transaction open for more than 15 minutes",
    );
    checks.push(
        activity
            .clone()
            .or_unknown(oldest_transaction(activity, conn).await),
    );
    let store = match store {
        Ok(store) => store,
        Err(error) => {
            let why = format!("not looked at: {error}");
            checks.extend(named.map(|check| check.unknown(why.clone())));
            return checks;
        }
    };
    let [dead, statistics, expired, backlog, janitor] = named;
    let storage = store
        .storage(conn, "idempotency")
        .await
        .and_then(|(row, gap)| match gap {
            None => Ok(row),
            Some(gap) => Err(Error::Inconsistent { what: gap }),
        });
    let of_storage = |check: Check, judge: &dyn Fn(Check, &StorageRow) -> Check| match &storage {
        Ok(row) => judge(check, row),
        Err(error) => check.unknown(error.to_string()),
    };
    let table = crate::store::Tables::new(store.schema()).fill("{keys}");
    checks.push(of_storage(dead, &|check, row| dead_rows(check, row, &table)));
    checks.push(of_storage(statistics, &|check, row| analyzed(check, row, &table)));
    checks.push(
        expired
            .clone()
            .or_unknown(stuck(expired, conn, &store, remembered).await),
    );
    checks.push(
        backlog
            .clone()
            .or_unknown(due(backlog, conn, &store, request).await),
    );
    checks.push(janitor.clone().or_unknown(last_run(janitor, conn, &store).await));
    checks
}

async fn vacuums(
    check: Check,
    conn: &Connection,
    facts: Result<&Option<TableFacts>, &Error>,
) -> Result<Check> {
    let server = doctor::server(conn).await?;
    for (name, on) in [
        ("autovacuum", server.autovacuum),
        ("track_counts", server.track_counts),
    ] {
        if !on {
            return Ok(check.error(
                format!("{name} is off on the server: what the purge deletes is never freed"),
                format!("alter system set {name} = on; select pg_reload_conf()"),
            ));
        }
    }
    Ok(match facts {
        Ok(Some(TableFacts { unvacuumed, .. })) => match unvacuumed.first() {
            None => check.ok("on"),
            Some(first) => check.error(
                format!("autovacuum_enabled is off for {}", unvacuumed.join(", ")),
                format!("alter table {first} reset (autovacuum_enabled)"),
            ),
        },
        Ok(None) => check.ok("on; there is no table yet"),
        Err(error) => check.unknown(error.to_string()),
    })
}

fn dead_rows(check: Check, row: &StorageRow, table: &str) -> Check {
    let found = format!(
        "about {} dead of {} rows",
        row.dead_rows,
        row.dead_rows + row.live_rows
    );
    let many = row.dead_rows > MOST_DEAD && row.dead_rows > (row.dead_rows + row.live_rows) / 5;
    if many {
        let what = "a vacuum has not come by, or an old transaction keeps it from freeing them";
        check.warning(format!("{found}: {what}"), format!("vacuum (analyze) {table}"))
    } else {
        check.ok(found)
    }
}

fn analyzed(check: Check, row: &StorageRow, table: &str) -> Check {
    let found = format!("about {} rows changed since they were gathered", row.changed_rows);
    if row.changed_rows > MOST_CHANGED && row.changed_rows > row.live_rows / 2 {
        check
            .warning(
                format!("{found}, of {}: plans rest on what the table was", row.live_rows),
                format!("analyze {table}"),
            )
            .fixable(Fix::Analyze)
    } else {
        check.ok(found)
    }
}

async fn oldest_transaction(check: Check, conn: &Connection) -> Result<Check> {
    let activity = doctor::activity(conn).await?;
    let (Some(what), Some(seconds)) = (activity.what, activity.seconds) else {
        return Ok(if activity.sees_all {
            check.ok("none but ours")
        } else {
            check.unknown(
                "this role does not see what others do; grant pg_read_all_stats (or pg_monitor) to it",
            )
        });
    };
    let found = format!("{what}, open for {}", span(seconds));
    let why = "nothing that was deleted since then can be freed";
    let mend = activity.mend.unwrap_or_default();
    Ok(if seconds > OLD_TRANSACTION.1 {
        check.error(format!("{found}: {why}"), mend)
    } else if seconds > OLD_TRANSACTION.0 {
        check.warning(format!("{found}: {why}"), mend)
    } else if activity.sees_all {
        check.ok(found)
    } else {
        check.unknown(format!("{found}; this role does not see what others do"))
    })
}

/// Stuck keys; worse where the provider has forgotten its key, so that a takeover would charge again.
async fn stuck(
    check: Check,
    conn: &Connection,
    store: &Store,
    remembered: Option<Duration>,
) -> Result<Check> {
    let count = store.stats_expired(conn, STUCK, CAP).await?;
    if count == 0 {
        return Ok(check.ok("none"));
    }
    let oldest = store.stats_oldest_expired(conn).await?;
    let over = oldest
        .as_ref()
        .and_then(|oldest| oldest.over_seconds)
        .unwrap_or(f64::INFINITY);
    let many = if i64::try_from(count).is_ok_and(|count| count >= CAP) {
        "more than "
    } else {
        ""
    };
    let found = format!(
        "{many}{} stuck, the oldest for {}",
        count.min(CAP.unsigned_abs() - 1),
        span(over)
    );
    Ok(match remembered {
        Some(remembered) if over > remembered.as_secs_f64() => check.error(
            format!(
                "{found}: a provider remembers its keys for {} only, so a client's repeat would be charged again",
                crate::duration::format(remembered)
            ),
            "idemctl reconcile --expired --plan FILE",
        ),
        _ => check.warning(found, "idemctl list --state expired; idemctl reconcile --expired --plan FILE"),
    })
}

async fn due(check: Check, conn: &Connection, store: &Store, request: &Request<'_>) -> Result<Check> {
    let kept = |retention: Duration| retention.saturating_add(OVERDUE);
    let ttl = Ttl::new(kept(request.retention.done), kept(request.retention.failed));
    let rows = store
        .purge_backlog(conn, ttl, CAP, Timestamp::NEG_INFINITY)
        .await?;
    Ok(if rows == 0 {
        check.ok("none")
    } else {
        let many = if i64::try_from(rows).is_ok_and(|rows| rows >= CAP) {
            "more than "
        } else {
            ""
        };
        check.warning(
            format!(
                "{many}{} rows: no purge comes by, or it does not keep up",
                rows.min(CAP.unsigned_abs() - 1)
            ),
            "idemctl purge; then enable idemctl-purge.timer or idemctl-janitor.service",
        )
    })
}

/// What the job's row tells of the last purge, by whomever.
async fn last_run(check: Check, conn: &Connection, store: &Store) -> Result<Check> {
    const MEND: &str =
        "systemctl enable --now idemctl-purge.timer (or idemctl-janitor.service); once: idemctl purge";
    let Some(job) = store.job_look(conn, Job::Purge.as_str()).await? else {
        return Ok(check.warning("no purge was ever seen", MEND));
    };
    let ago = |then: Option<Timestamp>| then.map(|then| since(then, job.now));
    let Some(success) = ago(job.last_success_at) else {
        return Ok(check.warning(format!("no purge has succeeded yet{}", outcome(&job)), MEND));
    };
    let found = format!("the last one that succeeded ended {} ago", span(success));
    if job.held_until.is_some_and(|until| until < job.now) {
        let holder = job.holder.as_deref().unwrap_or("somebody").escape_debug();
        return Ok(check.warning(
            format!("{found}; {holder} began one and did not finish"),
            "idemctl purge; the log of that process says why it ended",
        ));
    }
    Ok(if success > SILENCE {
        check.warning(format!("{found}{}", outcome(&job)), MEND)
    } else if job.last_outcome.as_deref() == Some("failed") {
        check.warning(
            format!("{found}{}", outcome(&job)),
            "idemctl purge -v; the janitor's log",
        )
    } else {
        check.ok(found)
    })
}

/// How the last one ended, in the words of the one who ran it.
fn outcome(job: &JobRow) -> String {
    match (&job.last_outcome, &job.last_summary) {
        (Some(outcome), Some(summary)) => {
            format!("; the last one: {outcome}, {}", crate::mask::text(summary))
        }
        (Some(outcome), None) => format!("; the last one: {outcome}"),
        (None, _) => String::new(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn since(then: Timestamp, now: Timestamp) -> f64 {
    now.to_micros().saturating_sub(then.to_micros()) as f64 / 1e6
}
