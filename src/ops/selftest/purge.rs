//! The purge takes what is old and final, and nothing else; who changes a row is written down.

use serde_json::json;

use super::check::Check;
use super::env::{Env, id, request};
use crate::error::{Error, Result};
use crate::key::KeyId;
use crate::ops::actor::Actor;
use crate::ops::end::End;
use crate::ops::history::Filter;
use crate::ops::list::Order;
use crate::ops::purge::{self, Retention};
use crate::ops::release;
use crate::response::Response;
use crate::stop::Stop;
use crate::store::Store;
use crate::store::selftest as sql;

/// What a row is before the purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    InProgress,
    Done,
    Failed,
}

/// Name, state, hours since creation, hours since its end, whether it is to go.
const ROWS: [(&str, Is, i32, i32, bool); 7] = [
    ("purge-done-old", Is::Done, 49, 25, true),
    ("purge-failed-old", Is::Failed, 49, 25, true),
    ("purge-done-young", Is::Done, 0, 0, false),
    ("purge-done-lately", Is::Done, 49, 23, false),
    ("purge-failed-young", Is::Failed, 0, 0, false),
    ("purge-busy", Is::InProgress, 49, 0, false),
    ("purge-stuck", Is::InProgress, 49, 49, false),
];

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::of(
            "purge.old",
            "keys that ended 25 hours ago meet a purge with a retention of 24 hours",
            "they are deleted",
        ),
        Check::of(
            "purge.kept",
            "the same purge meets keys in progress, stuck, young, and old but ended lately",
            "all of them are kept",
        ),
        Check::of(
            "events",
            "the purge, and an operator's release of the stuck key",
            "an event for each, with the reason, and with the row as it was",
        ),
    ]
}

pub(super) async fn run(env: &mut Env, checks: &mut [Check]) -> Result<()> {
    for (name, is, created, ended, _) in ROWS {
        make(env, &id(name)?, is, (created, ended)).await?;
    }
    let store = Store::open(&env.admin, Some(&env.tables.schema)).await?;
    let actor = Actor::default().with_reason("self test");
    let retention = Retention {
        events: None,
        ..Retention::default()
    };
    let request = purge::Request::new(retention, actor.clone());
    let report = purge::run(&mut env.admin, &store, &request, &mut |_| {}, &Stop::never()).await?;
    let (mut left, mut lost) = (Vec::new(), Vec::new());
    for (name, .., goes) in ROWS {
        match (store.get(&env.admin, &id(name)?).await?.is_some(), goes) {
            (true, true) => left.push(name),
            (false, false) => lost.push(name),
            _ => {}
        }
    }
    checks[0].judge(
        left.is_empty(),
        format!("{} deleted; not deleted: {}", report.deleted, names(&left)),
        (
            "Payments are forgotten when their time is over.",
            "Payments are NOT forgotten when their time is over, and the table grows without end.",
        ),
    );
    checks[1].judge(
        lost.is_empty(),
        format!(
            "of {} that were to stay, these were deleted: {}",
            ROWS.len() - 2,
            names(&lost)
        ),
        (
            "A payment that is not finished is never forgotten.",
            "Payments are forgotten that must be remembered: their repeats would be charged AGAIN.",
        ),
    );
    events(env, &store, &actor, &mut checks[2]).await
}

fn names(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    names.join(", ")
}

async fn make(env: &Env, id: &KeyId, is: Is, hours: (i32, i32)) -> Result<()> {
    let client = env.first();
    let mut lease = client.acquire(&request(id.clone())?).await?;
    match is {
        Is::Done => {
            lease.complete(&client.conn, &Response::new(201, "{}")?).await?;
        }
        Is::Failed => {
            sql::fail(&env.admin, &env.tables, id).await?;
            lease.forget();
        }
        Is::InProgress => lease.forget(),
    }
    sql::age(&env.admin, &env.tables, id, hours).await
}

async fn events(env: &mut Env, store: &Store, actor: &Actor, check: &mut Check) -> Result<()> {
    let stuck = id("purge-stuck")?;
    let Some(seen) = store.get(&env.admin, &stuck).await? else {
        check.or_not_checked("the stuck key is gone");
        return Ok(());
    };
    let request = release::Request {
        seen: &seen,
        end: &End::Release,
        steal: false,
        evidence: json!("self test"),
        dry_run: false,
        actor: actor.clone(),
    };
    let outcome = release::run(&mut env.admin, store, &request).await?;
    if outcome != release::Outcome::Released {
        return Err(Error::Inconsistent {
            what: format!("the stuck key was not released: {outcome:?}"),
        });
    }
    let all = store
        .history(&env.admin, &Filter::default(), Order::Newest, None, 10)
        .await?;
    let told = |event: &&crate::store::Event| event.reason == actor.reason;
    let purged = all.iter().filter(told).any(|event| event.action == "purge");
    let released = all.iter().filter(told).any(|event| {
        event.action == End::Release.action()
            && event.key.as_deref() == Some(stuck.key())
            && event.before.is_some()
    });
    let word = |there: bool| if there { "there" } else { "MISSING" };
    check.judge(
        purged && released,
        format!(
            "the purge's event is {}, the release's is {}",
            word(purged),
            word(released)
        ),
        (
            "Who changed a payment's row, and why, is written down.",
            "Who changed a payment's row is NOT written down.",
        ),
    );
    Ok(())
}
