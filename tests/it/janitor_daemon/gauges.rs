//! The table's gauges: bounded, and honest about it.

use std::time::Duration;

use idemctl::ops::gauges::{CAP, Request, read};
use idemctl::ops::purge::Retention;

use crate::purge::{Fixture, fixture};

fn request() -> Request {
    Request {
        older_than: Duration::from_mins(10),
        retention: Retention::default(),
        jobs: vec!["purge", "expired"],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_ends_at_the_cap_and_says_so() {
    let f = fixture().await;
    let empty = read(&f.conn, &f.store, &request()).await.unwrap();
    assert_eq!((empty.expired.rows, empty.oldest_expired_seconds), (0, None));
    assert_eq!((empty.backlog.rows, empty.backlog_oldest_seconds), (0, None));
    assert_eq!(
        (empty.estimate, empty.jobs.len()),
        (None, 0),
        "neither analyzed nor ever run"
    );
    fill(&f, u32::try_from(CAP).unwrap()).await;
    let full = read(&f.conn, &f.store, &request()).await.unwrap();
    for count in [full.in_progress, full.expired, full.stuck, full.backlog] {
        assert_eq!(
            (count.rows, count.capped),
            (CAP, false),
            "exactly the cap: {full:#?}"
        );
    }
    f.execute("update idempotency set key = key || '-old'").await;
    fill(&f, 1).await;
    let over = read(&f.conn, &f.store, &request()).await.unwrap();
    for count in [over.in_progress, over.expired, over.stuck, over.backlog] {
        assert_eq!((count.rows, count.capped), (CAP, true), "{over:#?}");
    }
    // Rows that are old and not due are looked at and not counted: the number may be too low, and says so.
    f.execute("update idempotency set completed_at = now() where status = 'done'")
        .await;
    let late = read(&f.conn, &f.store, &request()).await.unwrap();
    assert_eq!((late.backlog.rows, late.backlog.capped), (0, true), "{late:#?}");
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
