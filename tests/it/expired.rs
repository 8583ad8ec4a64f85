//! Stuck rows and the policies for them.

use std::time::Duration;

use idemctl::ops::actor::Actor;
use idemctl::ops::expired::{self, Outcome, Policy, Report, Request};
use idemctl::stop::Stop;
use serde_json::Value;

use crate::purge::{Fixture, fixture};

const RELEASE: Policy = Policy::Release {
    accept_double_charge: false,
};

fn request(policy: Policy) -> Request {
    let actor = Actor {
        os_user: Some("janitor".to_owned()),
        host: Some("h1".to_owned()),
        reason: Some("policy".to_owned()),
    };
    Request::new(policy, actor)
}

async fn run(f: &mut Fixture, request: &Request) -> Report {
    expired::run(&mut f.conn, &f.store, request, &Stop::never())
        .await
        .unwrap()
}

/// Rows in progress whose lease ended `ended` ago.
async fn stuck(f: &Fixture, key: &str, ended: &str, provider: Option<&str>) {
    let provider = provider.map_or("null".to_owned(), |p| format!("'{p}'"));
    f.execute(&format!(
        "insert into idempotency (client_id, key, fingerprint, created_at, locked_until, provider, lease_token, last_error)
         values ('shop', '{key}', 'f', now() - interval '1 day', now() - interval '{ended}', {provider},
                 gen_random_uuid(), case when '{key}' = 'told' then 'HTTP 503' end)"
    ))
    .await;
}

async fn event(f: &Fixture, key: &str) -> Vec<(String, Option<Value>, Option<Value>)> {
    let rows = f
        .db
        .client
        .query(
            "select action, before::text, after::text from idempotency_event where key = $1 and os_user = 'janitor'
                and host = 'h1' and reason = 'policy' order by id",
            &[&key],
        )
        .await
        .unwrap();
    let parse = |text: Option<String>| text.map(|text| serde_json::from_str(&text).unwrap());
    rows.iter()
        .map(|row| (row.get(0), parse(row.get(1)), parse(row.get(2))))
        .collect()
}

fn outcome<'a>(report: &'a Report, key: &str) -> &'a Outcome {
    &report
        .items
        .iter()
        .find(|item| item.id.key() == key)
        .unwrap()
        .outcome
}

#[tokio::test(flavor = "multi_thread")]
async fn report_counts_and_names_and_changes_nothing() {
    let mut f = fixture().await;
    stuck(&f, "new", "9 minutes", None).await;
    stuck(&f, "edge", "10 minutes 1 second", None).await;
    stuck(&f, "old", "3 hours", Some("acme")).await;
    stuck(&f, "alive", "-1 minute", None).await;
    f.execute("insert into idempotency (client_id, key, fingerprint, locked_until) values ('shop', 'lost', 'f', '-infinity'), ('shop', 'held', 'f', 'infinity')").await;
    let report = run(&mut f, &request(Policy::Report)).await;
    assert_eq!((report.stuck, report.capped, report.changed()), (3, false, 0));
    let first: Vec<&str> = report.first.iter().map(idemctl::key::KeyId::key).collect();
    assert_eq!(first, ["lost", "old", "edge"], "the oldest lease first");
    let oldest = report.oldest_seconds.unwrap();
    assert!((10_800.0..10_900.0).contains(&oldest), "{oldest}");
    assert_eq!(
        f.number("select count(*) from idempotency where status = 'in_progress'")
            .await,
        6
    );
    assert_eq!(f.number("select count(*) from idempotency_event").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn fail_stores_a_final_error_that_is_replayed_and_logged() {
    let mut f = fixture().await;
    stuck(&f, "silent", "1 hour", Some("acme")).await;
    stuck(&f, "told", "1 hour", None).await;
    stuck(&f, "fresh", "1 minute", None).await;
    let report = run(&mut f, &request(Policy::Fail)).await;
    assert_eq!((report.changed(), report.errors(), report.next), (2, 0, None));
    let row = f
        .db
        .client
        .query_one(
            "select status, status_code, response->>'title', response_headers::text, completed_at is not null, last_error
               from idempotency where key = 'silent'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(
        (row.get::<_, &str>(0), row.get::<_, i32>(1), row.get::<_, &str>(2)),
        ("failed", 500, "Outcome unknown")
    );
    assert!(row.get::<_, &str>(3).contains("application/problem+json"));
    assert!(row.get::<_, bool>(4) && row.get::<_, &str>(5).contains("no result"));
    let told: String =
        f.db.client
            .query_one("select last_error from idempotency where key = 'told'", &[])
            .await
            .unwrap()
            .get(0);
    assert_eq!(told, "HTTP 503", "what the last attempt said stays");
    assert_eq!(
        f.number("select count(*) from idempotency where key = 'fresh' and status = 'in_progress'")
            .await,
        1
    );
    let events = event(&f, "silent").await;
    let [(action, Some(before), Some(after))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(
        (action.as_str(), &before["status"], &after["status"]),
        ("fail", &"in_progress".into(), &"failed".into())
    );
    assert!(
        after.get("response").is_none() && after["response_bytes"].as_i64() > Some(100),
        "{after}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn release_leaves_rows_of_a_provider_unless_a_double_charge_is_accepted() {
    let mut f = fixture().await;
    stuck(&f, "plain", "1 hour", None).await;
    stuck(&f, "charged", "2 hours", Some("acme")).await;
    let mut wanted = request(RELEASE);
    wanted.dry_run = true;
    let tried = run(&mut f, &wanted).await;
    assert_eq!((tried.changed(), tried.left_for_provider()), (1, 1));
    assert_eq!(f.keys().await, ["charged", "plain"]);
    wanted.dry_run = false;
    let report = run(&mut f, &wanted).await;
    assert_eq!(outcome(&report, "plain"), &Outcome::Released);
    assert_eq!(
        outcome(&report, "charged"),
        &Outcome::LeftForProvider("acme".to_owned())
    );
    assert_eq!(f.keys().await, ["charged"]);
    let events = event(&f, "plain").await;
    assert!(
        matches!(&events[..], [(action, Some(_), None)] if action == "release"),
        "{events:?}"
    );
    let report = run(
        &mut f,
        &request(Policy::Release {
            accept_double_charge: true,
        }),
    )
    .await;
    assert_eq!(outcome(&report, "charged"), &Outcome::Released);
    let accepted = "select count(*) from idempotency_event where (details->>'accept_double_charge')::bool";
    assert_eq!(f.number(accepted).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_stay_do_not_keep_later_ones_from_their_turn() {
    let mut f = fixture().await;
    for i in 0..6 {
        stuck(
            &f,
            &format!("left{i}"),
            &format!("{} hours", 30 - i),
            Some("acme"),
        )
        .await;
    }
    stuck(&f, "last", "1 hour", None).await;
    let mut wanted = request(RELEASE);
    wanted.limit = 3;
    let mut ticks = 0;
    while f.keys().await.contains(&"last".to_owned()) {
        wanted.after = run(&mut f, &wanted).await.next;
        ticks += 1;
        assert!(ticks <= 3, "the last row starves");
    }
    assert_eq!(ticks, 3);
    assert_eq!(wanted.after, None, "then it starts with the oldest again");
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
async fn a_poison_row_a_locked_row_and_a_lost_race_do_not_stop_the_rest() {
    let _private = crate::support::not_on_citus("Citus has no triggers").await;
    let mut f = fixture().await;
    for (key, hours) in [
        ("poison", 9),
        ("locked", 8),
        ("retaken", 7),
        ("retaken-by-an-old-service", 6),
        ("good", 5),
    ] {
        stuck(&f, key, &format!("{hours} hours"), None).await;
    }
    // The poison row cannot be changed; while it is tried, a retry takes two others over.
    f.execute(
        "create function poison() returns trigger language plpgsql as $$ begin
            if new.key = 'poison' then
                perform pg_advisory_xact_lock(4711);
                raise exception 'no' using errcode = 'P0001';
            end if;
            return new;
         end $$;
         create trigger poison before update on idempotency for each row when (new.status = 'failed') execute function poison()",
    )
    .await;
    let gate = f.db.connect().await;
    gate.batch_execute("begin; select pg_advisory_xact_lock(4711)")
        .await
        .unwrap();
    let locker = f.db.connect().await;
    locker
        .batch_execute("begin; update idempotency set owner = owner where key = 'locked'")
        .await
        .unwrap();
    let other = f.db.connect().await;
    let wanted = request(Policy::Fail);
    let tick = run(&mut f, &wanted);
    let retry = async {
        let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted and database = (select oid from pg_database where datname = current_database())";
        while other.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        other
            .batch_execute(
                "update idempotency set lease_token = gen_random_uuid(), attempt = 2, locked_until = now() - interval '1 hour'
                  where key = 'retaken';
                 update idempotency set locked_until = now() + interval '30 s' where key = 'retaken-by-an-old-service'",
            )
            .await
            .unwrap();
        gate.batch_execute("rollback").await.unwrap();
    };
    let (report, ()) = tokio::join!(tick, retry);
    assert!(
        matches!(outcome(&report, "poison"), Outcome::Error(text) if text.contains("no")),
        "{report:?}"
    );
    assert!(
        matches!(outcome(&report, "locked"), Outcome::Error(text) if text.contains("55P03")),
        "{report:?}"
    );
    assert_eq!(outcome(&report, "retaken"), &Outcome::Changed);
    assert_eq!(outcome(&report, "retaken-by-an-old-service"), &Outcome::Changed);
    assert_eq!(outcome(&report, "good"), &Outcome::Failed);
    assert_eq!((report.changed(), report.errors()), (1, 2));
    assert_eq!(
        f.number("select count(*) from idempotency_event").await,
        1,
        "no event without a change"
    );
    assert_eq!(
        f.number("select count(*) from idempotency where status = 'in_progress'")
            .await,
        4
    );
}
