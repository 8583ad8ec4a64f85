//! The table's gauges: bounded, honest about it, and each by itself.

use std::time::Duration;

use idemctl::ops::gauges::{CAP, Count, Gauges, Question, Request, read};
use idemctl::ops::purge::{self, Retention};
use tokio::time::Instant;

use crate::purge::{Fixture, fixture};

fn request() -> Request {
    Request {
        older_than: Duration::from_mins(10),
        retention: Retention::default(),
        jobs: vec!["purge", "expired"],
        cleared_before: None,
    }
}

async fn gauges(f: &mut Fixture, request: &Request) -> Gauges {
    let deadline = Instant::now() + Duration::from_mins(1);
    read(&mut f.conn, &f.store, request, deadline).await
}

/// In progress, expired, stuck, due.
fn counts(gauges: &Gauges) -> [Count; 4] {
    assert_eq!(gauges.failed, []);
    let expired = gauges.expired.unwrap();
    [
        gauges.in_progress.unwrap(),
        expired.all,
        expired.stuck,
        gauges.backlog.unwrap().due,
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_ends_at_the_cap_and_says_so() {
    let mut f = fixture().await;
    let empty = gauges(&mut f, &request()).await;
    assert_eq!(counts(&empty).map(|count| count.rows), [0; 4]);
    assert_eq!(empty.expired.unwrap().oldest_seconds, None);
    assert_eq!(empty.backlog.unwrap().oldest_seconds, None);
    assert_eq!(
        (empty.estimate, empty.jobs.map(|jobs| jobs.len())),
        (None, Some(0)),
        "neither analyzed nor ever run"
    );
    fill(&f, u32::try_from(CAP).unwrap()).await;
    let full = gauges(&mut f, &request()).await;
    for count in counts(&full) {
        assert_eq!(
            (count.rows, count.capped),
            (CAP, false),
            "exactly the cap: {full:#?}"
        );
    }
    f.execute("update idempotency set key = key || '-old'").await;
    fill(&f, 1).await;
    let over = gauges(&mut f, &request()).await;
    for count in counts(&over) {
        assert_eq!((count.rows, count.capped), (CAP, true), "{over:#?}");
    }
    // Rows that are old and not due are looked at and not counted: the number may be too low, and says so.
    f.execute("update idempotency set completed_at = now() where status = 'done'")
        .await;
    let late = gauges(&mut f, &request()).await.backlog.unwrap().due;
    assert_eq!((late.rows, late.capped), (0, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_an_answer_blinds_no_other() {
    let mut f = fixture().await;
    fill(&f, 3).await;
    f.execute("alter table idempotency_job rename to elsewhere").await;
    let found = gauges(&mut f, &request()).await;
    assert_eq!(found.failed.len(), 1, "{found:#?}");
    assert_eq!(found.failed[0].question, Question::Jobs);
    assert!(found.failed[0].why.contains("idempotency_job"), "{found:#?}");
    assert_eq!(found.jobs, None);
    assert_eq!(found.expired.unwrap().stuck.rows, 3);
    assert_eq!(found.backlog.unwrap().due.rows, 3);
    assert!(found.recent.is_some() && found.in_progress.is_some());
    // Where there is no time nothing is asked, and nothing taken for an answer.
    let none = read(&mut f.conn, &f.store, &request(), Instant::now()).await;
    let failed: Vec<_> = none.failed.iter().map(|failed| failed.question).collect();
    assert_eq!(failed, Question::ALL, "{none:#?}");
    assert_eq!(none.expired, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_backlog_begins_where_the_last_purge_ended() {
    let mut f = fixture().await;
    f.done(5, 24 * 40).await;
    // Kept for longer than the others, so that the purge passes it by.
    f.execute(
        "insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at, completed_at)
         values ('c', 'failed', '', 'failed', now(), now() - interval '20 days', now() - interval '20 days')",
    )
    .await;
    let mut wanted = crate::purge::request();
    wanted.retention.failed = Duration::from_hours(24 * 30);
    let report = f.purge(&wanted).await;
    assert_eq!(report.deleted, 5);
    assert_eq!(
        report.cleared_before.map(|at| at < report.oldest_kept.unwrap()),
        Some(true)
    );
    let after = Request {
        cleared_before: report.cleared_before,
        ..request()
    };
    // With a shorter retention it is due, and seen.
    assert_eq!(gauges(&mut f, &after).await.backlog.unwrap().due.rows, 1);
    // What lies before is not looked at: there should be nothing but index entries of rows that are gone.
    f.done(7, 24 * 40).await;
    assert_eq!(gauges(&mut f, &after).await.backlog.unwrap().due.rows, 1);
    assert_eq!(gauges(&mut f, &request()).await.backlog.unwrap().due.rows, 8);
    wanted.dry_run = true;
    let dry: purge::Report = f.purge(&wanted).await;
    assert_eq!(dry.cleared_before, None, "it cleared nothing");
}

/// As many keys that are at work, stuck, and due.
async fn fill(f: &Fixture, rows: u32) {
    f.execute(&format!(
        "insert into idempotency (client_id, key, fingerprint, status, locked_until, created_at, completed_at)
         select 'c', kind || i, '', status, now() + leased, now() + created, now() + completed
           from generate_series(1, {rows}) i,
                (values ('live', 'in_progress', interval '1 h', interval '-1 min', null),
                        ('stuck', 'in_progress', interval '-1 h', interval '-2 h', null),
                        ('due', 'done', interval '-2 days', interval '-3 days', interval '-2 days'))
                    as t (kind, status, leased, created, completed)"
    ))
    .await;
}
