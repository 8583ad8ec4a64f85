//! `idemctl adopt`: tables of other shapes, looked at without a write, and really copied by the SQL that it prints.

mod cut_over;
mod refused;
mod shapes;
mod untouched;

use idemctl::fingerprint::Fingerprint;
use idemctl::key::KeyId;
use idemctl::protocol::{Idempotency, OnExpired, Options, Request, Reservation};
use idemctl::response::Response;

use crate::support::{Database, Output, Run, idemctl, require_program};

fn adopt(db: &Database, args: &[&str]) -> Run {
    let args: Vec<&str> = ["adopt"].iter().chain(args).copied().collect();
    idemctl(&args).on(&db.url)
}

/// Runs a script as the README says.
async fn psql(db: &Database, script: &str) -> Output {
    let program = require_program("psql", "postgresql-client");
    let args = [
        "--no-psqlrc",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-f",
        "-",
        db.url.as_str(),
    ];
    Run::new(&program.to_string_lossy(), &args)
        .stdin(script)
        .run()
        .await
}

/// The copy in batches, and the transaction after it.
fn halves(script: &str) -> (&str, &str) {
    script.split_at(script.find("\nbegin isolation level read committed;\n").unwrap())
}

/// Prints the migration and runs it, and `idemctl migrate` after it; gives a service's entry to the table.
async fn migrated(db: &Database, args: &[&str], schema: &str) -> Idempotency {
    let args: Vec<&str> = args.iter().chain(&["--show-sql"]).copied().collect();
    let script = adopt(db, &args).run().await.ok();
    psql(db, &script).await.ok();
    idemctl(&["migrate", "--schema", schema])
        .on(&db.url)
        .run()
        .await
        .ok();
    Idempotency::open(&db.client, Some(schema), Options::default())
        .await
        .unwrap()
}

/// The trial passes in every step; gives the names of those that there was nothing for.
async fn rehearsed(db: &Database, args: &[&str]) -> Vec<String> {
    let args: Vec<&str> = args
        .iter()
        .chain(&["--rehearse", "-o", "json"])
        .copied()
        .collect();
    let output = adopt(db, &args).run().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let steps = report["rehearsal"].as_array().unwrap();
    assert_eq!(steps.len(), 8, "{report:#}");
    let view = steps.iter().find(|step| step["name"] == "view").unwrap();
    assert!(
        view["found"]
            .as_str()
            .unwrap()
            .contains("a claim through it is refused"),
        "{report:#}"
    );
    let schemas: i64 = db
        .client
        .query_one(
            "select count(*) from pg_namespace where nspname like 'idemctl%'",
            &[],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(schemas, 0, "the scratch schema is gone");
    steps
        .iter()
        .filter(|step| step["ok"].is_null())
        .map(|step| step["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn fingerprint(db: &Database, schema: &str, id: &KeyId) -> Fingerprint {
    let query = format!("select fingerprint from \"{schema}\".idempotency where client_id = $1 and key = $2");
    let row = db
        .client
        .query_one(&query, &[&id.client_id(), &id.key()])
        .await
        .unwrap();
    Fingerprint::from_hex(row.get::<_, String>(0)).unwrap()
}

async fn ask(db: &Database, keys: &Idempotency, schema: &str, id: &KeyId) -> Reservation {
    let request = Request::new(id.clone(), fingerprint(db, schema, id).await).on_expired(OnExpired::Return);
    keys.reserve(&db.client, &request).await.unwrap()
}

/// An old finished key answers with this, and can be inspected.
async fn replays(
    db: &Database,
    keys: &Idempotency,
    schema: &str,
    (client, key): (&str, &str),
    status: u16,
    body: &[u8],
) {
    let id = KeyId::new(client, key).unwrap();
    match ask(db, keys, schema, &id).await {
        Reservation::Replay(replay) => {
            assert_eq!(replay.response.status_code(), status);
            assert_eq!(replay.response.body(), body);
        }
        other => panic!("{id}: {other:?}"),
    }
    let other = Request::new(id.clone(), Fingerprint::of_bytes(b"another"));
    let answer = keys.reserve(&db.client, &other).await.unwrap();
    assert!(matches!(answer, Reservation::Mismatch(_)), "{id}: {answer:?}");
    let text = idemctl(&["inspect", client, key, "--schema", schema])
        .on(&db.url)
        .run()
        .await
        .ok();
    assert!(text.contains("nothing to do: every repeat gets"), "{text}");
}

/// A key that nobody has used can be claimed, and its answer is replayed.
async fn claims(db: &Database, keys: &Idempotency) {
    let id = KeyId::new("new client", "new key").unwrap();
    let request = Request::new(id, Fingerprint::of_bytes(b"new"));
    let Reservation::Acquired(mut lease) = keys.reserve(&db.client, &request).await.unwrap() else {
        panic!("not acquired");
    };
    let stored = Response::new(201, "{}").unwrap();
    lease.complete(&db.client, &stored).await.unwrap();
    match keys.reserve(&db.client, &request).await.unwrap() {
        Reservation::Replay(replay) => assert_eq!(replay.response, stored),
        other => panic!("{other:?}"),
    }
}
