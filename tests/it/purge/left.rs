//! What a purge leaves, and what it says of it.

use serde_json::Value;

use super::{Fixture, fixture};
use crate::support::{Output, idemctl};

fn view(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.transcript()))
}

/// How the last purge went, by the job's row.
async fn outcome(f: &Fixture) -> String {
    let query = "select last_outcome from idempotency_job where job = 'purge'";
    f.db.client.query_one(query, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_rows_are_no_fault_and_rows_that_refuse_are_one() {
    let _private = crate::support::not_on_citus("no foreign key to a distributed table holds there").await;
    let f = fixture().await;
    f.done(40, 48).await;
    let purge = || idemctl(&["purge", "-o", "json"]).on(&f.db.url);
    let locker = f.db.connect().await;
    locker
        .batch_execute(
            "begin; update idempotency set owner = owner where client_id = 'shop-0' and key = 'k7'",
        )
        .await
        .unwrap();
    let output = purge().run().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    let left = view(&output);
    let skipped = left["skipped"].as_u64().unwrap();
    assert!((1..=16).contains(&skipped), "{left}");
    assert_eq!(left["refused"], 0, "{left}");
    let note = format!("note: {skipped} rows stayed locked");
    assert!(output.stderr.contains(&note), "{}", output.transcript());
    assert_eq!(outcome(&f).await, "ok");
    let once = idemctl(&["janitor", "--once"]).on(&f.db.url).run().await;
    assert_eq!(once.code, 0, "{}", once.transcript());
    assert_eq!(outcome(&f).await, "ok");
    locker.batch_execute("rollback").await.unwrap();

    // The next purge takes them, but for one that something refers to: the unit has to fail.
    f.execute(
        "create table pay (c text, k text, foreign key (c, k) references idempotency);
         insert into pay select client_id, key from idempotency where key = 'k7'",
    )
    .await;
    let output = purge().run().await;
    assert_eq!(output.code, 6, "{}", output.transcript());
    let left = view(&output);
    assert_eq!(
        (&left["deleted"], &left["skipped"], &left["refused"]),
        (&(skipped - 1).into(), &1.into(), &1.into()),
        "{left}"
    );
    assert!(output.stderr.contains("foreign key"), "{}", output.transcript());
    assert!(
        !output.stderr.contains("stayed locked"),
        "{}",
        output.transcript()
    );
    assert_eq!(outcome(&f).await, "partial");
    let once = idemctl(&["janitor", "--once"]).on(&f.db.url).run().await;
    assert_eq!(once.code, 6, "{}", once.transcript());
    assert_eq!(outcome(&f).await, "partial");
}
