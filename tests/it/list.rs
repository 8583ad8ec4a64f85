//! Paging: through expired keys and clients, which have statements of their own, and through what no index finds.

use std::time::Duration;

use idemctl::ops::list::{Cursor, Filter, List, Order, Rest};
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
    for order in [Order::Newest, Order::Oldest] {
        let expected = expected(&fixture, "client_id like 'stuck-%'", order).await;
        assert_eq!(expected.len(), 11);
        for size in [1, 2, 10, 11, 100] {
            let (seen, unseen) = read(&fixture, &filter, order, size, Some(1)).await;
            assert_eq!(
                (seen, unseen),
                (expected.clone(), 0),
                "pages of {size}, {order:?}"
            );
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
    let page = List::new(&filter, Order::Oldest, None, None)
        .page(&fixture.conn, &fixture.store, 10)
        .await
        .unwrap();
    let keys: Vec<&str> = page.records.iter().map(|record| record.id.key()).collect();
    assert_eq!(keys, ["k11", "k1"]);
}

/// The planner would walk by age: the statistics say that nearly every row in progress is expired, and that a client's
/// rows are spread evenly over time.
#[tokio::test]
async fn what_an_index_finds_is_not_looked_for_by_age() {
    let _private = crate::support::not_on_citus("the plan is one of shards").await;
    let (many_in_progress, few) = (filled().await, scattered().await);
    for (fixture, name, arguments, index) in [
        (
            &many_in_progress,
            "list_expired",
            "null, null, '{expired}'",
            "expired_idx",
        ),
        (
            &few,
            "list_unfinished",
            "null, null, '{expired,in_progress}'",
            "expired_idx",
        ),
        (&few, "list_client", "'ends', null, null", "pkey"),
    ] {
        for name in [format!("{name}_newest"), format!("{name}_oldest")] {
            let plan = plan(fixture, &name, arguments).await;
            assert!(plan.contains(&format!("idempotency_{index}")), "{plan}");
            assert!(!plan.contains("created_at_idx"), "{plan}");
        }
    }
}

async fn plan(fixture: &Fixture, name: &str, arguments: &str) -> String {
    let mut statements = fixture.store.statements();
    let statement = statements.find(|statement| statement.name == name).unwrap();
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
        "explain (costs off) execute {name} ({arguments}, null, null, null, null, null, null, null, 5)"
    );
    let plan = fixture.db.client.query(&explain, &[]).await.unwrap();
    let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    plan.join("\n")
}

/// Rows that no index finds: rare ones, in a pile of one creation time that is larger than the first window, at the
/// ends of time, and one that is in the table's very last window.
async fn scattered() -> Fixture {
    let fixture = fixture().await;
    fixture
        .execute(
            "insert into idempotency (client_id, key, fingerprint, status, created_at, provider)
             select 'c' || i % 3, 'k' || i, '', 'done', now() - interval '1 second' * i,
                    case when i % 1900 = 1 then 'rare' else 'acme' end
               from generate_series(1, 14000) i
              union all
             select 'pile', 'k' || i, '', 'done', now() - interval '3 hours',
                    case when i % 700 = 3 then 'rare' end
               from generate_series(1, 2500) i
              union all
             values ('ends', 'first', '', 'done', '-infinity'::timestamptz, 'rare'),
                    ('ends', 'old', '', 'done', now() - interval '9 days', 'rare'),
                    ('ends', 'last', '', 'done', 'infinity'::timestamptz, 'rare');
             analyze idempotency",
        )
        .await;
    fixture
}

async fn expected(fixture: &Fixture, condition: &str, order: Order) -> Vec<String> {
    let direction = match order {
        Order::Newest => "desc",
        Order::Oldest => "asc",
    };
    let select = format!(
        "select client_id || ' ' || key from idempotency where {condition}
          order by created_at {direction}, client_id {direction}, key {direction}"
    );
    let rows = fixture.db.client.query(&select, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Page by page, each by a list that begins at the last one's cursor as a command line has it; and how often
/// looking ended before the list did.
async fn read(
    fixture: &Fixture,
    filter: &Filter,
    order: Order,
    size: u32,
    most: Option<u64>,
) -> (Vec<String>, usize) {
    let (mut seen, mut cursor, mut unseen) = (Vec::new(), None::<String>, 0);
    loop {
        let place = cursor.map(|text| Cursor::parse(&text).unwrap());
        let mut list = List::new(filter, order, place, most);
        let page = list.page(&fixture.conn, &fixture.store, size).await.unwrap();
        assert!(page.records.len() <= size as usize);
        seen.extend(page.records.iter().map(|record| record.id.to_string()));
        match &page.rest {
            Rest::End => return (seen, unseen),
            Rest::More(_) => assert_eq!(page.records.len(), size as usize),
            Rest::Unseen(_) => {
                unseen += 1;
                assert!(list.looked() >= most.unwrap());
            }
        }
        assert!(seen.len() < 100 && unseen < 100, "{:?}", page.rest);
        cursor = page.rest.cursor().map(Cursor::to_text);
    }
}

#[tokio::test]
async fn what_no_index_finds_comes_in_order_each_once_however_far_one_looks() {
    let fixture = scattered().await;
    let rare = Filter {
        provider: Some("rare".to_owned()),
        ..Filter::default()
    };
    for order in [Order::Newest, Order::Oldest] {
        let expected = expected(&fixture, "provider = 'rare'", order).await;
        assert_eq!(expected.len(), 15);
        for size in [1, 4, 15, 50] {
            for most in [None, Some(1), Some(5_000)] {
                let (seen, unseen) = read(&fixture, &rare, order, size, most).await;
                assert_eq!(seen, expected, "{order:?}, pages of {size}, at most {most:?}");
                // A page that is full ends before the looking does.
                assert!(most.is_some() || unseen == 0, "{unseen}");
                assert!(most.is_none() || size < 50 || unseen > 0, "{most:?}");
            }
        }
    }
}

#[tokio::test]
async fn ages_bound_what_is_looked_through() {
    let fixture = scattered().await;
    let minutes = |n: u64| Some(Duration::from_secs(60 * n));
    let filter = Filter {
        key_prefix: Some("nowhere".to_owned()),
        newer_than: minutes(40),
        older_than: minutes(10),
        ..Filter::default()
    };
    let mut list = List::new(&filter, Order::Newest, None, None);
    let page = list.page(&fixture.conn, &fixture.store, 10).await.unwrap();
    assert_eq!((page.records.len(), page.rest), (0, Rest::End));
    // 1,800 rows: the first window, and the end of the second.
    assert_eq!(list.looked(), 1_000);
}

#[tokio::test]
async fn a_client_of_few_rows_is_found_behind_the_first_window_and_one_of_many_in_more() {
    let fixture = scattered().await;
    fixture
        .execute(
            "insert into idempotency (client_id, key, fingerprint, status, created_at)
             select 'many', 'k' || i, '', 'done', now() - interval '1 day' - interval '1 second' * i
               from generate_series(1, 2001) i",
        )
        .await;
    for client in ["ends", "nobody", "many"] {
        let filter = Filter {
            client_id: Some(client.to_owned()),
            ..Filter::default()
        };
        let mut list = List::new(&filter, Order::Newest, None, Some(1));
        let page = list.page(&fixture.conn, &fixture.store, 3).await.unwrap();
        assert_eq!(list.looked(), 1_000, "{client}");
        let unseen = matches!(page.rest, Rest::Unseen(_));
        assert_eq!(unseen, client == "many", "{client}: {:?}", page.rest);
        let expected = expected(&fixture, &format!("client_id = '{client}'"), Order::Newest).await;
        let filter = Filter {
            newer_than: (client == "many").then(|| Duration::from_mins(24 * 60 + 1)),
            ..filter
        };
        let (seen, _) = read(&fixture, &filter, Order::Newest, 50, Some(1)).await;
        assert_eq!(seen, expected[..expected.len().min(seen.len())], "{client}");
        assert_eq!(seen.is_empty(), client == "nobody");
    }
}
