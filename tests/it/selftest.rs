//! `idemctl selftest`: it passes where the guarantees hold, fails where one is broken, and leaves nothing behind.

mod broken;
mod scratch;

use crate::support::{Database, Output, PgbouncerOptions, Redactor, Run, database, idemctl, pgbouncer};

/// As little as shows something.
const SHORT: [&str; 5] = ["selftest", "--clients", "4", "--rounds", "3"];

fn short(more: &[&str]) -> Run {
    let args: Vec<&str> = SHORT.iter().chain(more).copied().collect();
    idemctl(&args)
}

/// Schemas that are not the server's own.
async fn schemas(db: &Database) -> Vec<String> {
    let rows = db
        .client
        .query(
            "select nspname::text from pg_namespace
              where nspname !~ '^pg_' and nspname not in ('information_schema', 'public') order by 1",
            &[],
        )
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", output.transcript()))
}

/// Names of the checks that ended so.
fn named(report: &serde_json::Value, verdict: &str) -> Vec<String> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks
        .filter(|check| check["verdict"] == verdict)
        .map(|check| check["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_is_well_it_passes() {
    let _private = crate::support::privately("it shows the way to the server, and its settings");
    let db = database().await;
    let output = short(&["--scratch", "scratch", "-o", "json"])
        .on(&db.url)
        .run()
        .await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    assert!(
        output.stderr.contains("dropped at the end"),
        "{}",
        output.transcript()
    );
    let text = serde_json::to_string_pretty(&json(&output)).unwrap();
    let redactor = Redactor::new()
        .pattern(r#"("elapsed_seconds": )[0-9.]+"#, "${1}[seconds]")
        .pattern(r#"("server_version": )"[^"]*""#, "${1}\"[version]\"")
        .pattern(r#"("database": )"[^"]*""#, "${1}\"[database]\"")
        .pattern(r#"("found": "PostgreSQL )[^"]*""#, "${1}[version]\"")
        .pattern(
            r#"("found": )"[^"]* as idemctl, "#,
            "${1}\"[address] as idemctl, ",
        )
        .pattern(
            r"[0-9.]+ s (behind|ahead of) the server's \(± [0-9.]+ s\)",
            "[skew]",
        )
        .pattern(r"[0-9]+ requests were first told", "[n] requests were first told")
        .pattern(r"wrote -?[0-9]+ bytes", "wrote [n] bytes")
        .pattern(r"owner selftest-[0-9]+", "owner [client]");
    insta::assert_snapshot!(redactor.redact(&text));
    assert!(schemas(&db).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn people_read_a_verdict_and_programs_csv() {
    let db = database().await;
    let text = short(&[]).on(&db.url).run().await.ok();
    for part in [
        "PASSED 21 of 21 checks\n",
        "reached directly:\n",
        "- 4 simultaneous requests for one payment led to one payment, 3 times out of 3.\n",
        "- A late process can change nothing any more.\n",
        "- A repeated request gets the first answer back, byte for byte.\n",
    ] {
        assert_eq!(text.matches(part).count(), 1, "{part}: {text}");
    }
    let csv = short(&["-o", "csv"]).on(&db.url).run().await.ok();
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 21, "{csv}");
    assert!(rows.iter().all(|row| &row[1] == "passed"), "{csv}");
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_in_transaction_mode_it_passes_and_says_what_lies_between() {
    let _private = crate::support::privately("a pooler stands before its server");
    let db = database().await;
    let pooler = pgbouncer(&db, PgbouncerOptions::default()).await;
    let output = short(&["-o", "json"]).on(&pooler.url).run().await;
    assert_eq!(output.code, 0, "{}", output.transcript());
    let report = json(&output);
    assert_eq!(report["pooled"], true);
    let fact = |name: &str| {
        let facts = report["facts"].as_array().unwrap().iter();
        let found = facts.clone().find(|fact| fact["name"] == name);
        found.unwrap()["found"].as_str().unwrap().to_owned()
    };
    assert!(fact("pooler").contains("transaction mode"), "{report:#}");
    assert!(fact("prepared").starts_with("not used"), "{report:#}");
    assert!(schemas(&db).await.is_empty());
}

/// As soon as all clients are connected there is room for nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_checked_has_not_passed() {
    let _private = crate::support::privately("it makes roles");
    let db = broken::trigger(
        "idempotency",
        "insert",
        "if new.key = 'identity' then perform tools.full(); end if; return new;",
    )
    .await;
    let role = format!("few_{}", db.name);
    db.client
        .batch_execute(&format!(
            "create role {role} login; grant create on database {} to {role}; grant usage on schema tools to {role};
             create function tools.full() returns void language plpgsql security definer as $full$
               begin alter role {role} connection limit 0; end $full$",
            db.name
        ))
        .await
        .unwrap();
    let url = db.url.replace("idemctl@", &format!("{role}@"));
    let args = ["selftest", "--clients", "2", "--rounds", "3"];
    let output = idemctl(&args).on(&url).run().await;
    assert_eq!(output.code, 6, "{}", output.transcript());
    let names = "kill.blocked, kill.takeover, kill.provider_key";
    for (text, part) in [
        (
            &output.stdout,
            format!("PASSED 18 of 21 checks, 3 not checked: {names}"),
        ),
        (&output.stdout, "too many connections for role".to_owned()),
        (
            &output.stdout,
            "What was not checked is not known to hold.".to_owned(),
        ),
        (
            &output.stderr,
            format!("error: not everything was checked: {names}"),
        ),
    ] {
        assert!(text.contains(&part), "{part}: {}", output.transcript());
    }
    assert!(
        !output.stdout.contains("When a process dies"),
        "{}",
        output.transcript()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_refused_before_anything_is_done() {
    let db = database().await;
    for (args, part) in [
        (&["--clients", "1"][..], "clients is 1; 2 to 500"),
        (&["--clients", "399"], "max_connections is 400"),
        (&["--rounds", "0"], "rounds is 0; 1 to 10000"),
        (&["--scratch", ""], "scratch schema has 0 bytes"),
        (&["--race-time", "soon"], "soon"),
        (&["-o", "ids"], "-o ids"),
    ] {
        let mut all = vec!["selftest"];
        all.extend(args);
        let output = idemctl(&all).on(&db.url).run().await;
        assert_eq!(output.code, 2, "{}", output.transcript());
        assert!(output.stderr.contains(part), "{}", output.transcript());
    }
    assert!(schemas(&db).await.is_empty());
}
