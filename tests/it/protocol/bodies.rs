//! Replays are the same bytes, whatever they are and whatever the table is like.

use idemctl::error::Error;
use idemctl::protocol::Options;
use idemctl::response::{DEFAULT_MAX_BODY_BYTES, Response};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::{OLD_TABLE, Table, acquire, replay, request, response};
use crate::support::{connect, database};

/// Bodies that some column would refuse or rewrite.
fn odd_bodies() -> Vec<Vec<u8>> {
    let mut bodies: Vec<Vec<u8>> = [
        "",
        " ",
        "{}",
        " {\"b\" :1,\r\n\t\"a\":  [ ] }\n",
        "{\"a\":1,\"a\":2,\"a\":1}",
        "[1.0, 1e5, 1E400, -0, 0.10, 100000000000000000000000000000001]",
        "{\"a\": 1e999999999}",
        "{\"a\":\"\\u0000\"}",
        "\"\\uD800\"",
        "\"\\udc00 \\ud83d\\ude00\"",
        "\"\\u4e2d \\u00e9\"",
        "\"\\u20ac\"",
        "\"\u{e9} \u{4e2d} \u{1f600}\"",
        "\"\\u007f \u{7f}\"",
        "null",
        "true",
        "\"text\"",
        "not json",
        "{\"a\":1} trailing",
        "{'a':1}",
        "[1,]",
        "NaN",
        "\u{feff}{}",
        "<html>\0</html>",
        "\\x6162",
        "\\",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .collect();
    bodies.push(b"\xff\xfe\x00\x80".to_vec());
    bodies.push(b"\"\xed\xa0\x80\"".to_vec());
    bodies.push((0..=255).collect());
    for depth in [100, 127, 128, 199, 201, 20_000] {
        bodies.push(format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into_bytes());
    }
    bodies.push(format!("[{}]", "9".repeat(1_000)).into_bytes());
    bodies.push(format!("[{}]", "9".repeat(200_000)).into_bytes());
    bodies.push(format!("[0.{}]", "1".repeat(20_000)).into_bytes());
    bodies.push(format!("[{}1]", "1,".repeat(100_000)).into_bytes());
    bodies.push(vec![0; DEFAULT_MAX_BODY_BYTES]);
    bodies.push(format!("\"{}\"", "x".repeat(DEFAULT_MAX_BODY_BYTES - 2)).into_bytes());
    bodies
}

async fn survives(table: &Table, key: &str, body: &[u8]) {
    let stored = response(body)
        .with_header("content-type", "application/json; charset=utf-8")
        .unwrap();
    let (keys, client) = (&table.keys, &table.db.client);
    let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
    let mut lease = acquire(keys, client, &request(key)).await;
    lease
        .complete(client, &stored)
        .await
        .unwrap_or_else(|error| panic!("{shown}: {error:?}"));
    let again = replay(keys, client, &request(key)).await;
    assert!(again == stored, "{shown} became {again:?}");
    let read = keys
        .store()
        .get_response(client, lease.id())
        .await
        .unwrap()
        .unwrap();
    assert!(read == stored, "{shown} reads as {read:?}");
}

/// A table in a database of another encoding.
async fn encoded(encoding: &str, old: &str) -> Table {
    let mut db = database().await;
    let name = format!("{}_{}", db.name, encoding.to_lowercase());
    db.client
        .batch_execute(&format!(
            "create database {name} template template0 encoding '{encoding}' locale 'C'"
        ))
        .await
        .unwrap();
    db.url = db.url.replace(&format!("/{}", db.name), &format!("/{name}"));
    db.name = name;
    db.client = connect(&db.url).await;
    let found: String = db
        .client
        .query_one("show server_encoding", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(found, encoding);
    Table::in_database(db, old).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_odd_body_on_every_kind_of_table() {
    for table in [
        Table::new().await,
        Table::jsonb().await,
        Table::partitioned().await,
        encoded("LATIN1", "").await,
        encoded("LATIN1", OLD_TABLE).await,
        encoded("SQL_ASCII", "").await,
        encoded("SQL_ASCII", OLD_TABLE).await,
    ] {
        for (number, body) in odd_bodies().iter().enumerate() {
            survives(&table, &format!("k{number}"), body).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_services_read_json_bodies_in_their_column() {
    for (table, expected) in [
        (Table::new().await, "{\"b\":  1, \"a\": 2}"),
        (Table::jsonb().await, "{\"a\": 2, \"b\": 1}"),
    ] {
        survives(&table, "k", b"{\"b\":  1, \"a\": 2}").await;
        let row = table
            .db
            .client
            .query_one(
                "select response::text, response_body is null from idempotency",
                &[],
            )
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), expected);
        assert_eq!(
            row.get::<_, bool>(1),
            expected.starts_with("{\"b"),
            "no second copy without need"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_bytes_and_random_json() {
    let tables = [Table::new().await, Table::jsonb().await];
    let bytes = proptest::collection::vec(any::<u8>(), 0..300);
    // Pieces of JSON in any order: often valid, often nearly.
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"",
        "\\u0000",
        "\\ud800",
        "\\",
        "1",
        "-",
        "e9",
        ".5",
        " ",
        "\n",
        "null",
        "\u{e9}",
        "\u{0}",
        "\"\\u00e9\"",
        "[1]",
        "{\"k\":1.50}",
    ]);
    let pieces = proptest::collection::vec(piece, 0..8).prop_map(|parts| parts.concat().into_bytes());
    let strategy = prop_oneof![bytes, pieces];
    let mut runner = TestRunner::deterministic();
    for round in 0..300 {
        let body = strategy.new_tree(&mut runner).unwrap().current();
        survives(&tables[round % 2], &format!("k{round}"), &body).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_too_many_is_said_before_anything_is_lost() {
    let table = Table::new().await;
    let (keys, client) = (&table.keys, &table.db.client);
    let mut lease = acquire(keys, client, &request("k")).await;
    let before = table.row("k").await;
    let large = response(vec![b'x'; DEFAULT_MAX_BODY_BYTES + 1]);
    let error = lease.complete(client, &large).await.unwrap_err();
    assert!(
        matches!(error, Error::ResponseTooLarge { size, limit } if size == limit + 1),
        "{error:?}"
    );
    assert_eq!(table.row("k").await, before);
    lease
        .complete(client, &response("see /payments/1"))
        .await
        .unwrap();
    assert_eq!(
        replay(keys, client, &request("k")).await.body(),
        b"see /payments/1"
    );
    // The limit is the service's own.
    let options = Options {
        max_body_bytes: DEFAULT_MAX_BODY_BYTES + 1,
        ..Options::default()
    };
    let keys = idemctl::protocol::Idempotency::open(client, None, options)
        .await
        .unwrap();
    let mut lease = acquire(&keys, client, &request("large")).await;
    lease.complete(client, &large).await.unwrap();
    assert!(replay(&keys, client, &request("large")).await == large);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_keep_order_repetitions_and_case() {
    let visible: String = (' '..='~').chain(['\t']).collect();
    let mut stored = Response::new(402, "declined").unwrap();
    for (name, value) in [
        ("Set-Cookie", "b=2"),
        ("content-type", "text/plain;  charset=\"utf-8\""),
        ("Set-Cookie", "a=1"),
        ("set-cookie", "a=1"),
        ("X-Empty", ""),
        ("X-All", visible.as_str()),
        ("X-Escape", "\\u0000 \\ud800 \"quoted\""),
    ] {
        stored = stored.with_header(name, value).unwrap();
    }
    for table in [
        Table::new().await,
        Table::jsonb().await,
        encoded("SQL_ASCII", "").await,
        encoded("LATIN1", "").await,
    ] {
        let (keys, client) = (&table.keys, &table.db.client);
        let mut lease = acquire(keys, client, &request("k")).await;
        lease.complete(client, &stored).await.unwrap();
        assert_eq!(
            replay(keys, client, &request("k")).await,
            stored,
            "a refusal is final, too"
        );
    }
}
