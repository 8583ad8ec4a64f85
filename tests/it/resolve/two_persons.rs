//! `[audit] approval = "two-person"`: one asks, another one does it.

mod pending;

use idemctl::connect::Connection;
use idemctl::key::KeyId;
use idemctl::ops::actor::Actor;
use idemctl::ops::ask::Providers;
use idemctl::ops::resolve::{self, Approval, Decision, Intent, Next, Outcome, not_made};
use idemctl::store::Store;
use serde_json::Value;

use super::{BODY, actions, details, file, resolve_at, row};
use crate::cli::fixture::{Cli, filled};
use crate::reconcile::provider::{Fault, Provider, section};
use crate::support::{Output, Redactor};

const TWO: &str = "[audit]\napproval = \"two-person\"\n";

/// Who may not write the columns that the database fills in cannot ask in somebody else's name.
const GRANTS: &str = "grant usage on schema public to {role};
                      grant select, update on idempotency to {role};
                      grant select on idempotency_event to {role};
                      grant insert (client_id, key, action, os_user, host, reason, before, after, details)
                            on idempotency_event to {role};
                      grant select on idempotency_migration to {role};";

struct Two {
    cli: Cli,
    config: String,
    body: String,
    /// URLs of two database users.
    alice: String,
    bob: String,
    _private: crate::support::Privately,
}

async fn two() -> Two {
    let private = crate::support::privately("it makes roles");
    let cli = filled().await;
    let mut urls = Vec::new();
    for name in ["alice", "bob"] {
        let role = format!("{name}_{}", cli.db.name);
        let grants = GRANTS.replace("{role}", &role);
        cli.execute(&format!("create role {role} login; {grants}")).await;
        urls.push(cli.db.url.replacen("idemctl@", &format!("{role}@"), 1));
    }
    let bob = urls.pop().unwrap();
    let alice = urls.pop().unwrap();
    assert_ne!(alice, cli.db.url, "the URL names the user");
    Two {
        config: cli.config(TWO),
        body: file(&cli, "body", BODY),
        cli,
        alice,
        bob,
        _private: private,
    }
}

impl Two {
    async fn run(&self, url: &str, args: &[&str]) -> (i32, String, Output) {
        let args = [&["shop-9", "order-1", "-c", &self.config], args].concat();
        let (code, json, output) = resolve_at(url, &args).await;
        let result = json["result"].as_str().unwrap_or_default().to_owned();
        (code, result, output)
    }

    async fn done(&self, url: &str) -> (i32, String, Output) {
        self.done_with(url, &[]).await
    }

    async fn done_with(&self, url: &str, more: &[&str]) -> (i32, String, Output) {
        let args = ["--done", "--status-code", "201", "--response", &self.body];
        self.run(url, &[&args[..], more].concat()).await
    }

    /// Runs it and expects this.
    #[track_caller]
    fn check(ran: (i32, String, Output), code: i32, result: &str) -> Output {
        let (got, got_result, output) = ran;
        assert_eq!(
            (got, got_result.as_str()),
            (code, result),
            "{}",
            output.transcript()
        );
        output
    }

    async fn state(&self) -> String {
        row(&self.cli, "shop-9", "order-1").await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_asks_and_another_one_does_it() {
    let two = two().await;
    let before = two.cli.everything().await;
    Two::check(two.done_with(&two.alice, &["--dry-run"]).await, 0, "requested");
    assert_eq!(two.cli.everything().await, before);
    let output = Two::check(two.done(&two.alice).await, 0, "requested");
    assert_eq!(two.state().await, "in_progress");
    // The same person again, from another host or not.
    let again = Two::check(two.done(&two.alice).await, 4, "refused");
    assert!(again.stderr.contains("another person"), "{}", again.stderr);
    Two::check(two.done_with(&two.bob, &["--dry-run"]).await, 0, "done");
    assert_eq!(two.state().await, "in_progress");
    let confirmed = Two::check(two.done(&two.bob).await, 0, "done");
    assert_eq!(two.state().await, format!("done 201 {BODY}"));
    assert_eq!(actions(&two.cli).await, "resolve_requested resolve");
    let event = details(&two.cli, "resolve").await;
    assert_eq!(
        event["requested_by"]["db_user"],
        format!("alice_{}", two.cli.db.name)
    );
    assert_eq!(event["requested_by"]["reason"], "ticket 7");
    assert_eq!(event["approval"], "two-person");
    let users = two.cli.text(
        "select string_agg(db_user, ' ' order by id) from idempotency_event
          where client_id = 'shop-9' and key = 'order-1'",
    );
    let name = &two.cli.db.name;
    assert_eq!(users.await, format!("alice_{name} bob_{name}"));
    let request = details(&two.cli, "resolve_requested").await;
    for field in [
        "lease_token",
        "attempt",
        "locked_until",
        "response_sha256",
        "body_sha256",
        "evidence",
    ] {
        assert_ne!(request[field], Value::Null, "{field}: {request}");
    }
    let shown = Redactor::new().literal(two.cli.db.name.clone(), "[db]");
    let transcripts = [output, again, confirmed]
        .map(|output| output.transcript())
        .join("\n");
    assert!(
        shown.redact(&transcripts).contains("alice_[db]"),
        "who asked is shown: {transcripts}"
    );
    // It cannot be used a second time.
    Two::check(two.done(&two.bob).await, 4, "refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_response_or_decision_replaces_the_request() {
    let two = two().await;
    Two::check(two.done(&two.alice).await, 0, "requested");
    let other = file(&two.cli, "other", "{}");
    for args in [
        &["--failed"][..],
        &["--done", "--status-code", "201", "--response", &other],
        &["--done", "--status-code", "202", "--response", &two.body],
        &[
            "--done",
            "--status-code",
            "201",
            "--response",
            &two.body,
            "--header",
            "a: b",
        ],
    ] {
        let output = Two::check(two.run(&two.bob, args).await, 0, "requested");
        assert!(output.stderr.contains("void"), "says so: {}", output.stderr);
        assert_eq!(two.state().await, "in_progress");
    }
    // Alice's first request is not the newest any more: it does not count, not even for Bob.
    Two::check(two.done(&two.bob).await, 0, "requested");
    // Now Bob's counts, for Alice.
    Two::check(two.done(&two.bob).await, 4, "refused");
    Two::check(two.done(&two.alice).await, 0, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_void_once_the_row_has_moved_or_a_day_is_over() {
    for (change, why) in [
        ("update idempotency set lease_token = gen_random_uuid()", "moved"),
        ("update idempotency set lease_token = null", "moved"),
        ("update idempotency set attempt = attempt + 1", "moved"),
        (
            "update idempotency set locked_until = locked_until + interval '1 us'",
            "moved",
        ),
        (
            "update idempotency_event set at = at - interval '24 h'",
            "24 hours",
        ),
        ("update idempotency_event set at = 'infinity'", "24 hours"),
        ("update idempotency_event set details = '[]'", "moved"),
        (
            "update idempotency_event set details = '{\"attempt\":{}}'",
            "moved",
        ),
    ] {
        let two = two().await;
        Two::check(two.done(&two.alice).await, 0, "requested");
        two.cli
            .execute(&format!(
                "{change} where (client_id, key) = ('shop-9', 'order-1')"
            ))
            .await;
        let output = Two::check(two.done(&two.bob).await, 0, "requested");
        assert!(output.stderr.contains(why), "{change}: {}", output.stderr);
        assert!(output.stdout.contains("is void"), "{change}: {}", output.stdout);
        assert_eq!(two.state().await, "in_progress", "{change}");
        Two::check(two.done(&two.alice).await, 0, "done");
    }
    // Just within the day it holds; so it does for a row of an older service, which has no token.
    let two = two().await;
    two.cli
        .execute("update idempotency set lease_token = null where key = 'order-1'")
        .await;
    Two::check(two.done(&two.alice).await, 0, "requested");
    two.cli
        .execute("update idempotency_event set at = at - interval '23 h 59 min'")
        .await;
    Two::check(two.done(&two.bob).await, 0, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_request_does_not_end_a_later_life_of_the_key() {
    let two = two().await;
    Two::check(two.done(&two.alice).await, 0, "requested");
    // Released, claimed by a retry, and stuck again.
    two.cli
        .execute(
            "delete from idempotency where (client_id, key) = ('shop-9', 'order-1');
             insert into idempotency (client_id, key, fingerprint, locked_until, lease_token)
             values ('shop-9', 'order-1', '', now() - interval '1 s', gen_random_uuid())",
        )
        .await;
    Two::check(two.done(&two.bob).await, 0, "requested");
    assert_eq!(two.state().await, "in_progress");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_another_person() {
    let two = two().await;
    let os_user = "update idempotency_event set os_user = $ where action = 'resolve_requested'";
    for (os, second, code, result) in [
        // One database user, two users of the operating system.
        ("'somebody-else'", &two.alice, 0, "done"),
        // Unknown is nobody else.
        ("null", &two.alice, 4, "refused"),
        ("null", &two.bob, 0, "done"),
    ] {
        two.cli
            .execute("update idempotency set status = 'in_progress' where (client_id, key) = ('shop-9', 'order-1');
                      delete from idempotency_event where key = 'order-1'")
            .await;
        Two::check(two.done(&two.alice).await, 0, "requested");
        two.cli.execute(&os_user.replace('$', os)).await;
        Two::check(two.done(second).await, code, result);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_only_database_users_count_a_claim_is_not_enough() {
    let two = two().await;
    two.cli.config(&TWO.replace("two-person", "two-database-users"));
    Two::check(two.done(&two.alice).await, 0, "requested");
    two.cli
        .execute("update idempotency_event set os_user = 'somebody-else' where action = 'resolve_requested'")
        .await;
    for dry in [&["--dry-run"][..], &[]] {
        let refused = Two::check(two.done_with(&two.alice, dry).await, 4, "refused");
        assert!(refused.stderr.contains("database user"), "{}", refused.stderr);
    }
    assert_eq!(two.state().await, "in_progress");
    Two::check(two.done(&two.bob).await, 0, "done");
    let event = details(&two.cli, "resolve").await;
    assert_eq!(event["approval"], "two-database-users");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_replaced_meanwhile_is_not_used() {
    let two = two().await;
    Two::check(two.done(&two.alice).await, 0, "requested");
    let other = two.cli.db.connect().await;
    other
        .batch_execute(
            "begin; select from idempotency where (client_id, key) = ('shop-9', 'order-1') for update",
        )
        .await
        .unwrap();
    let replacing = async {
        super::races::somebody_waits(&two.cli).await;
        other
            .batch_execute(
                "insert into idempotency_event (client_id, key, action, details)
                 values ('shop-9', 'order-1', 'resolve_requested', '{\"decision\":\"failed\"}'); commit",
            )
            .await
            .unwrap();
    };
    let (ran, ()) = tokio::join!(two.done(&two.bob), replacing);
    Two::check(ran, 5, "changed");
    assert_eq!(two.state().await, "in_progress");
    assert_eq!(actions(&two.cli).await, "resolve_requested resolve_requested");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_confirm_at_once_and_it_happens_once() {
    let two = two().await;
    Two::check(two.done(&two.alice).await, 0, "requested");
    let runs = futures_util::future::join_all((0..6).map(|_| two.done(&two.bob))).await;
    let mut codes: Vec<i32> = runs.iter().map(|(code, ..)| *code).collect();
    codes.sort_unstable();
    assert_eq!(codes[0], 0, "{codes:?}");
    assert!(codes[1..].iter().all(|code| [4, 5].contains(code)), "{codes:?}");
    assert_eq!(actions(&two.cli).await, "resolve_requested resolve");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_asks_in_somebody_elses_name() {
    let two = two().await;
    Two::check(two.done(&two.alice).await, 0, "requested");
    let alice = crate::support::connect(&two.alice).await;
    for forged in [
        "insert into idempotency_event (client_id, key, action, db_user, details)
         select client_id, key, action, 'bob', details from idempotency_event where action = 'resolve_requested'",
        "update idempotency_event set db_user = 'bob'",
        "delete from idempotency_event",
    ] {
        let error = alice.batch_execute(forged).await.unwrap_err();
        assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{forged}");
    }
    // Another role does not make another person.
    two.cli
        .execute(&format!("grant bob_{0} to alice_{0}", two.cli.db.name))
        .await;
    let url = format!(
        "{}{}options=-crole%3Dbob_{}",
        two.alice,
        if two.alice.contains('?') { "&" } else { "?" },
        two.cli.db.name
    );
    Two::check(two.done(&url).await, 4, "refused");
}

/// The gate is in the library: a proposal that was made for one person does not pass it.
#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_for_one_person_is_not_enough_for_two() {
    let two = two().await;
    let settings = two.cli.db.settings();
    let mut conn = Connection::open(&settings).await.unwrap();
    let store = Store::open(&conn, None).await.unwrap();
    let mut intent = Intent {
        decision: Decision::Failed,
        response: not_made().unwrap(),
        evidence: "e\0".to_owned(),
        provider: None,
        against_provider: false,
        approval: Approval::None,
        actor: Actor::default().with_reason("r"),
    };
    let id = KeyId::new("shop-9", "order-1").unwrap();
    let providers = Providers::none();
    let refused = resolve::propose(&conn, &store, &providers, &id, &intent).await;
    assert!(refused.unwrap_err().to_string().contains("U+0000"));
    intent.evidence = "e".to_owned();
    let proposal = resolve::propose(&conn, &store, &providers, &id, &intent)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(proposal.next, Next::End);
    intent.approval = Approval::TwoPerson;
    let outcome = resolve::run(&mut conn, &store, &intent, &proposal, false)
        .await
        .unwrap();
    assert!(matches!(outcome, Outcome::Changed(_)), "{outcome:?}");
    assert_eq!(two.state().await, "in_progress");
    assert_eq!(actions(&two.cli).await, "");
}
