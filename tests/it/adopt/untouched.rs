//! Nothing is written, and no value of a payment is shown.

use super::{adopt, shapes};
use crate::support::{Database, database};

/// Every table, and every row of theirs with its version.
async fn all(db: &Database) -> String {
    db.client
        .query_one(
            "select (select string_agg(c.oid::regclass::text, ' ' order by c.oid) from pg_class c
                       join pg_namespace n on n.oid = c.relnamespace where n.nspname !~ '^(pg_|information_schema)')
                 || (select md5(string_agg(format('%s %s %s', k.xmin, k.ctid, k), ',' order by id))
                       from idempotency_keys k)
                 || (select string_agg(nspname, ' ' order by nspname) from pg_namespace where nspname !~ '^pg_')",
            &[],
        )
        .await
        .unwrap()
        .get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_can_only_read_is_enough() {
    let _private = crate::support::privately("it makes roles");
    let db = database().await;
    db.client.batch_execute(shapes::RAILS).await.unwrap();
    let role = format!("reader_{}", db.name);
    db.client
        .batch_execute(&format!(
            "create role {role} login; alter role {role} set default_transaction_read_only = on;
             grant select on idempotency_keys to {role}"
        ))
        .await
        .unwrap();
    let before = all(&db).await;
    let url = db.url.replace("idemctl@", &format!("{role}@"));
    let mut said = String::new();
    for more in [
        &["-o", "table"][..],
        &["-o", "json"],
        &["-o", "csv"],
        &["--show-sql"],
        &["--view"],
    ] {
        let args: Vec<&str> = shapes::RAILS_ARGS.iter().chain(more).copied().collect();
        said.push_str(&adopt(&db, &args).on(&url).run().await.ok());
    }
    assert_eq!(all(&db).await, before);
    for part in [
        "It can be done",
        "\"adoptable\": true",
        "create view \"public\".idempotency_read",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    for value in ["ride-1", "\"amount\"", "\"id\":"] {
        assert!(!said.contains(value), "{value}: {said}");
    }
}

/// The superuser, who could write; and a rehearsal, which does so elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_by_whoever_could() {
    let db = database().await;
    db.client.batch_execute(shapes::RAILS).await.unwrap();
    let before = all(&db).await;
    adopt(&db, &shapes::RAILS_ARGS).run().await.ok();
    assert_eq!(all(&db).await, before);
    let args: Vec<&str> = shapes::RAILS_ARGS
        .iter()
        .chain(&["--rehearse"])
        .copied()
        .collect();
    adopt(&db, &args).run().await.ok();
    assert_eq!(all(&db).await, before, "the rehearsal leaves nothing behind");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_read() {
    let db = database().await;
    db.client.batch_execute(shapes::RAILS).await.unwrap();
    let output = adopt(&db, &["idempotency_keys"]).run().await;
    insta::assert_snapshot!("without_the_words", output.transcript());
    let text = adopt(&db, &shapes::RAILS_ARGS).run().await.ok();
    insta::assert_snapshot!("that_can_be_done", text);
    let args: Vec<&str> = shapes::RAILS_ARGS
        .iter()
        .chain(&["--show-sql"])
        .copied()
        .collect();
    let script = adopt(&db, &args).run().await.ok();
    insta::assert_snapshot!("the_script", script);
}

/// A look that is bounded says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_bounded_look_says_so() {
    let db = database().await;
    db.client.batch_execute(shapes::RAILS).await.unwrap();
    let args: Vec<&str> = shapes::RAILS_ARGS
        .iter()
        .chain(&["--rows", "100"])
        .copied()
        .collect();
    let text = adopt(&db, &args).run().await.ok();
    for part in [
        "100 rows looked at, not all of them",
        "only 100 rows were looked at;",
        "--rows N looks at more",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// What lets a repeat be charged again, or answered otherwise, is said before.
#[tokio::test(flavor = "multi_thread")]
async fn what_could_go_wrong_is_said() {
    let db = database().await;
    db.client
        .batch_execute(
            "create table keys (tenant_id text, request_id uuid, status text, status_code int,
                                created_at timestamptz default now(), primary key (tenant_id, request_id));
             insert into keys values ('t', '0a000000-0000-4000-8000-000000000001', 'done', null),
                                     ('t', '0a000000-0000-4000-8000-000000000002', 'done', 201)",
        )
        .await
        .unwrap();
    let text = adopt(&db, &["keys"]).run().await.ok();
    for part in [
        "must spell request_id (uuid) as PostgreSQL prints it (a uuid in lower case",
        "1 of the rows are done and have no status code",
        "a row that is `failed` by the time of the copy is final here",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let said = adopt(&db, &["keys", "--status", "failed=in_progress"])
        .run()
        .await
        .ok();
    assert!(!said.contains("by the time of the copy"), "{said}");
}
