//! Paging through expired keys, which has statements of its own.

use idemctl::ops::list::{self, Filter, Order};
use idemctl::record::State;

use crate::purge::{Fixture, fixture};

/// Many in progress and alive, few expired (some of one creation time), and others that only look alike.
async fn filled() -> Fixture {
    let fixture = fixture().await;
    fixture
        .execute(
            "insert into idempotency (client_id, key, fingerprint, status, created_at, locked_until)
             select 'alive', 'k' || i, '', 'in_progress', now() - interval '1 second' * i, now() + interval '1 hour'
               from generate_series(1, 5000) i
              union all
             select 'stuck-' || i % 2, 'k' || i, '', 'in_progress', now() - interval '1 hour' * (i / 3),
                    now() - interval '1 minute' * i
               from generate_series(1, 11) i
              union all
             select 'done', 'k' || i, '', 'done', now() - interval '2 hours', now() - interval '1 hour'
               from generate_series(1, 50) i;
             analyze idempotency",
        )
        .await;
    fixture
}

#[tokio::test]
async fn expired_keys_come_in_order_each_once_whatever_the_page() {
    let fixture = filled().await;
    let filter = Filter {
        states: vec![State::Expired],
        ..Filter::default()
    };
    for (order, direction) in [(Order::Newest, "desc"), (Order::Oldest, "asc")] {
        let expected: Vec<String> = fixture
            .db
            .client
            .query(
                &format!(
                    "select client_id || ' ' || key from idempotency where client_id like 'stuck-%'
                      order by created_at {direction}, client_id {direction}, key {direction}"
                ),
                &[],
            )
            .await
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(expected.len(), 11);
        for size in [1, 2, 10, 11, 100] {
            let (mut seen, mut cursor) = (Vec::new(), None);
            loop {
                let page = list::page(
                    &fixture.conn,
                    &fixture.store,
                    &filter,
                    order,
                    cursor.as_ref(),
                    size,
                )
                .await
                .unwrap();
                seen.extend(page.records.iter().map(|record| record.id.to_string()));
                assert!(
                    page.records
                        .iter()
                        .all(|record| record.state == Some(State::Expired))
                );
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected, "pages of {size}, {direction}");
        }
    }
}

#[tokio::test]
async fn the_other_conditions_hold_for_expired_keys_too() {
    let fixture = filled().await;
    let filter = Filter {
        client_id: Some("stuck-1".to_owned()),
        key_prefix: Some("k1".to_owned()),
        states: vec![State::Expired],
        ..Filter::default()
    };
    let page = list::page(&fixture.conn, &fixture.store, &filter, Order::Oldest, None, 10)
        .await
        .unwrap();
    let keys: Vec<&str> = page.records.iter().map(|record| record.id.key()).collect();
    assert_eq!(keys, ["k11", "k1"]);
}

/// The statistics say that nearly every row in progress is expired, and the planner would walk by age.
#[tokio::test]
async fn expired_keys_are_found_through_the_index_over_leases() {
    let fixture = filled().await;
    for name in ["list_expired_newest", "list_expired_oldest"] {
        let statement = fixture
            .store
            .statements()
            .find(|statement| statement.name == name)
            .unwrap();
        let types: Vec<&str> = statement
            .types
            .iter()
            .map(tokio_postgres::types::Type::name)
            .collect();
        fixture
            .execute(&format!(
                "prepare {name} ({}) as {}; set plan_cache_mode = force_custom_plan",
                types.join(", "),
                statement.text
            ))
            .await;
        let explain = format!(
            "explain (costs off)
             execute {name} (null, null, '{{expired}}', null, null, null, null, null, null, 5)"
        );
        let plan = fixture.db.client.query(&explain, &[]).await.unwrap();
        let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(plan.contains("idempotency_expired_idx"), "{plan}");
        assert!(!plan.contains("created_at_idx"), "{plan}");
    }
}
