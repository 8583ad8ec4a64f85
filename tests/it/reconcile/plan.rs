//! Plans: written, looked at, and done later, when the world has moved on.

use serde_json::Value;

use super::provider::{Provider, section};
use super::{Fixture, fixture, results};
use crate::protocol::{acquire, open, print};

fn request(key: &str) -> idemctl::protocol::Request {
    idemctl::protocol::Request::new(idemctl::key::KeyId::new("shop-1", key).unwrap(), print("pay 1"))
        .provider("acme")
        .unwrap()
}

async fn planned(f: &Fixture, name: &str) -> String {
    planned_of(f, 0, name).await
}

async fn planned_of(f: &Fixture, expected: i32, name: &str) -> String {
    let path = f.cli.dir.path().join(name).to_string_lossy().into_owned();
    let before = f.cli.everything().await;
    let (code, _, output) = f.reconcile(&["--expired", "--plan", &path]).await;
    assert_eq!(code, expected, "{}", output.transcript());
    assert_eq!(f.cli.everything().await, before, "a plan changes nothing");
    path
}

fn read(path: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(key, result)| ((*key).to_owned(), (*result).to_owned()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_moved_while_the_plan_waited_are_left_alone() {
    let f = fixture().await;
    let client = &f.cli.db.client;
    let keys = open(client).await;
    // The holder of this one is only slow.
    let mut owner = acquire(&keys, client, &request("a-completed")).await;
    f.cli
        .execute("update idempotency set locked_until = now() - interval '14 min', created_at = now() - interval '15 min'")
        .await;
    for key in ["b-retaken", "c-resolved", "d-released", "e-renewed", "f-still"] {
        f.stuck(key).await;
    }
    f.cli
        .execute("update idempotency set fingerprint = (select fingerprint from idempotency where key = 'a-completed')")
        .await;
    for key in ["a-completed", "b-retaken", "c-resolved", "e-renewed", "f-still"] {
        f.provider.book(key, "succeeded");
    }
    let path = planned(&f, "plan.json").await;
    let plan = read(&path);
    assert_eq!(plan["database"], f.cli.db.name.as_str());
    assert_eq!(plan["schema"], "public");
    assert_eq!(plan["rows"].as_array().unwrap().len(), 6);
    assert!(plan["rows"][0]["lease_token"].is_string() && plan["created_at"].is_string());
    let mode = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);

    let fresh = idemctl::response::Response::new(201, "the owner's own answer").unwrap();
    // Its lease ended, and nobody took it: the late holder may still complete.
    owner
        .complete(client, &fresh)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    let _retry = acquire(&keys, client, &request("b-retaken")).await;
    let (code, _, output) = f.reconcile(&["shop-1", "c-resolved", "--yes"]).await;
    assert_eq!(code, 0, "{}", output.transcript());
    let (code, _, output) = f.reconcile(&["shop-1", "d-released", "--yes"]).await;
    assert_eq!(code, 0, "{}", output.transcript());
    f.cli
        .execute("update idempotency set locked_until = now() + interval '1 min' where key = 'e-renewed'")
        .await;
    let others = "select string_agg(k::text, E'\\n' order by key) from idempotency k where key <> 'f-still'";
    let before = f.cli.text(others).await;

    let (code, json, output) = f.reconcile(&["--apply", &path, "--yes"]).await;
    assert_eq!(code, 6, "{}", output.transcript());
    let expected = [
        ("a-completed", "changed"),
        ("b-retaken", "changed"),
        ("c-resolved", "changed"),
        ("d-released", "changed"),
        ("e-renewed", "changed"),
        ("f-still", "completed"),
    ];
    assert_eq!(results(&json), pairs(&expected));
    assert_eq!(f.cli.text(others).await, before, "none of them was touched");
    assert_eq!(f.events("c-resolved").await, 1);
    let (code, json, output) = f.reconcile(&["--apply", &path, "--yes"]).await;
    assert_eq!(code, 5, "now all of them have moved: {}", output.transcript());
    assert!(results(&json).iter().all(|(_, result)| result == "changed"));
    assert_eq!(f.events("f-still").await, 1, "nothing is done twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_says_otherwise_by_now_stops_the_plan() {
    let f = fixture().await;
    for key in ["a", "b", "c"] {
        f.stuck(key).await;
    }
    f.provider.book("b", "succeeded");
    f.provider.book("c", "succeeded");
    let path = planned(&f, "plan.json").await;
    // Not charged when it was planned; charged when it is applied.
    f.provider.book("a", "succeeded");
    // One payment then, two now.
    f.provider.book("b", "succeeded");
    let (code, json, output) = f.reconcile(&["--apply", &path, "--yes"]).await;
    assert_eq!(code, 6, "{}", output.transcript());
    assert_eq!(
        results(&json),
        pairs(&[("a", "changed"), ("b", "waiting"), ("c", "completed")])
    );
    assert_eq!(f.events("a").await + f.events("b").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_can_only_narrow_what_is_done() {
    let f = fixture().await;
    for (key, status) in [
        ("a", "succeeded"),
        ("b", "held"),
        ("c", "succeeded"),
        ("d", "succeeded"),
    ] {
        f.stuck(key).await;
        f.provider.book(key, status);
    }
    let path = planned(&f, "plan.json").await;
    let mut plan = read(&path);
    for row in plan["rows"].as_array_mut().unwrap() {
        match row["key"].as_str().unwrap() {
            "a" => row["action"] = "release".into(),
            "b" => row["action"] = "complete".into(),
            "c" => row["response"]["body_sha256"] = "00".repeat(32).into(),
            _ => row["action"] = "leave".into(),
        }
    }
    std::fs::write(&path, plan.to_string()).unwrap();
    let before = f.cli.everything().await;
    let (code, json, output) = f.reconcile(&["--apply", &path, "--yes"]).await;
    assert_eq!(code, 6, "{}", output.transcript());
    assert_eq!(
        results(&json),
        pairs(&[("a", "changed"), ("b", "left"), ("c", "changed")])
    );
    assert!(output.stderr.contains("leaves 1 of its 4"), "{}", output.stderr);
    assert_eq!(f.cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_cannot_be_used_are_refused() {
    let mut f = fixture().await;
    f.stuck("a").await;
    f.provider.book("a", "succeeded");
    let path = planned(&f, "plan.json").await;
    let before = f.cli.everything().await;
    let (code, _, output) = f.reconcile(&["--expired", "--plan", &path]).await;
    assert_eq!(code, 2, "it is there already: {}", output.transcript());
    let good = read(&path);
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.to_string()
    };
    let cases = [
        ("not JSON".to_owned(), "cannot be read"),
        ("{}".to_owned(), "missing field"),
        (
            broken(&|plan| plan["format"] = "idemctl reconcile plan 9".into()),
            "format",
        ),
        (broken(&|plan| plan["database"] = "prod".into()), "prod"),
        (broken(&|plan| plan["schema"] = "other".into()), "other"),
        (broken(&|plan| plan["extra"] = 1.into()), "extra"),
        (
            broken(&|plan| plan["rows"][0]["action"] = "explode".into()),
            "explode",
        ),
        (
            broken(&|plan| {
                let row = plan["rows"][0].clone();
                plan["rows"].as_array_mut().unwrap().push(row);
            }),
            "second time",
        ),
        ("[".repeat(100_000), "cannot be read"),
    ];
    for (text, word) in cases {
        std::fs::write(&path, &text).unwrap();
        let (code, _, output) = f.reconcile(&["--apply", &path, "--yes"]).await;
        assert_eq!(code, 2, "{word}: {}", output.transcript());
        assert!(output.stderr.contains(word), "{word}: {}", output.transcript());
        assert_eq!(f.cli.everything().await, before);
    }
    std::fs::write(&path, good.to_string()).unwrap();
    let (code, _, output) = f.reconcile(&["--apply", &path]).await;
    assert_eq!(code, 2, "nobody agreed: {}", output.transcript());
    let (code, _, output) = f.reconcile(&["--apply", &path, "--dry-run"]).await;
    assert_eq!(code, 0, "{}", output.transcript());
    assert_eq!(f.cli.everything().await, before);
    // Nobody is configured any more.
    f.config = f.cli.config("");
    let (code, _, output) = f.reconcile(&["--apply", &path, "--yes"]).await;
    assert_eq!(code, 2, "{}", output.transcript());
    assert_eq!(f.cli.everything().await, before);
    let into_nothing = f
        .cli
        .dir
        .path()
        .join("no/such/dir/plan")
        .to_string_lossy()
        .into_owned();
    let (code, _, output) = f.reconcile(&["--expired", "--plan", &into_nothing]).await;
    assert_eq!(code, 2, "{}", output.transcript());
    let left = std::fs::read_dir(f.cli.dir.path()).unwrap().count();
    assert_eq!(left, 2, "the configuration and the plan, and no part of another");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_goes_through_a_pipe() {
    let mut f = fixture().await;
    f.config = f.cli.config(&section("acme", f.provider.address));
    f.stuck("a").await;
    f.provider.book("a", "succeeded");
    let (code, _, plan) = f.reconcile(&["--expired", "--plan", "-"]).await;
    assert_eq!(code, 0, "{}", plan.transcript());
    let args = ["reconcile", "--apply", "-", "--yes", "-c", &f.config, "-o", "ids"];
    let output = f.cli.command(&args).stdin(plan.stdout).run().await;
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (0, "shop-1\ta\n"),
        "{}",
        output.transcript()
    );
}

/// A plan is about what that provider said: nobody else is asked when it is applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_keeps_to_the_provider_that_was_asked() {
    let mut f = fixture().await;
    let backup = Provider::start().await;
    let text = format!(
        "{}\n{}",
        section("acme", f.provider.address),
        section("backup", backup.address)
    );
    f.config = f.cli.config(&text);
    f.stuck("a").await;
    f.cli.execute("update idempotency set provider = null").await;
    let path = f.cli.dir.path().join("plan.json").to_string_lossy().into_owned();
    let (code, _, output) = f
        .reconcile(&["--expired", "--provider", "acme", "--plan", &path])
        .await;
    assert_eq!(code, 0, "{}", output.transcript());
    assert_eq!(read(&path)["rows"][0]["action"], "release");
    f.provider.book("a", "succeeded");
    let before = f.cli.everything().await;
    let (code, json, output) = f
        .reconcile(&["--apply", &path, "--provider", "backup", "--yes"])
        .await;
    assert_eq!(code, 5, "{}", output.transcript());
    assert_eq!(results(&json), pairs(&[("a", "changed")]));
    assert!(
        !output.stderr.contains("the row moved"),
        "the answer did: {}",
        output.stderr
    );
    assert!(backup.questions().is_empty());
    assert_eq!(f.cli.everything().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_holds_no_card_numbers() {
    let f = fixture().await;
    f.stuck("a").await;
    f.provider.book("a", "refused 4111 1111 1111 1111");
    let path = planned_of(&f, 8, "plan.json").await;
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("4111 1111 1111 1111") && text.contains("411"),
        "{text}"
    );
}

/// What would be ignored is refused.
#[tokio::test(flavor = "multi_thread")]
async fn flags_that_do_not_go_together_are_refused() {
    let f = fixture().await;
    f.stuck("a").await;
    f.provider.book("a", "succeeded");
    let path = planned(&f, "plan.json").await;
    let before = f.cli.everything().await;
    for args in [
        &["--apply", &path, "--client", "shop-1"][..],
        &["--apply", &path, "--limit", "1"],
        &["--apply", &path, "--older-than", "5h"],
        &["--apply", &path, "--plan", "/nonexistent"],
        &["shop-1", "a", "--older-than", "5h"],
        &["shop-1", "a", "--limit", "1"],
        &["shop-1", "a", "--plan", "/nonexistent"],
        &["shop-1", "a", "--reason", " \u{200b}"],
        &["shop-1", "a", "--provider", "nope"],
    ] {
        let (code, _, output) = f.reconcile(&[args, &["--yes"]].concat()).await;
        assert_eq!(code, 2, "{args:?}: {}", output.transcript());
        assert_eq!(f.cli.everything().await, before);
    }
}
