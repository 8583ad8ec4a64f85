//! What the role may and may not do.

use idemctl::ops::migrate::Options;

use super::{Findings, login, run, sound};
use crate::cli::fixture::{Cli, calm};

/// A database with the four roles, and a login in one of them.
async fn member(of: &str) -> (Cli, String) {
    let cli = sound().await;
    let prefix = format!("p_{}", cli.db.name);
    let script = calm(
        cli.command(&["migrate", "--roles", "--role-prefix", &prefix])
            .run()
            .await,
    )
    .ok();
    cli.execute(&script).await;
    let (login, url) = login(&cli, of).await;
    cli.execute(&format!("grant {prefix}_{of} to {login}")).await;
    (cli, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_group_role_has_what_it_is_for_and_nothing_is_missed_in_it() {
    let _private = crate::support::privately("it makes roles");
    for role in ["app", "viewer", "operator", "janitor"] {
        let (cli, url) = member(role).await;
        for args in [&[][..], &["--role", role]] {
            let findings = Findings::of(run(&cli, args).on(&url).run().await);
            assert_eq!(
                (findings.bad(), findings.code),
                (vec![], 0),
                "{role}: {:#?}",
                findings.checks
            );
        }
        let more = Findings::of(run(&cli, &["--role", "owner"]).on(&url).run().await);
        assert!(
            more.bad().contains(&"privileges.migrate"),
            "{role}: {:?}",
            more.bad()
        );
        assert_eq!(more.code, 4);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_privileges() {
    let _private = crate::support::privately("it makes roles");
    let cli = sound().await;
    let (_, url) = login(&cli, "nobody").await;
    let findings = Findings::of(run(&cli, &[]).on(&url).run().await);
    findings.are(&["privileges.inspect"], 4);
    assert!(
        findings.get("privileges.inspect")["mend"]
            .as_str()
            .unwrap()
            .contains("--roles")
    );
    cli.execute("create schema hidden").await;
    idemctl::ops::migrate::run(&cli.db.settings(), Some("hidden"), &Options::default())
        .await
        .unwrap();
    let output = run(&cli, &["--schema", "hidden"]).on(&url).run().await;
    Findings::of(output).are(&["privileges.inspect"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_by_halves_is_found_before_it_is_needed() {
    let _private = crate::support::privately("it makes roles");
    let cli = sound().await;
    let (login, url) = login(&cli, "half").await;
    cli.execute(&format!(
        "grant select on all tables in schema public to {login};
         grant insert on idempotency_event to {login}"
    ))
    .await;
    let findings = Findings::of(run(&cli, &[]).on(&url).run().await);
    findings.are(&["privileges.release"], 0);
    assert!(
        findings.get("privileges.release")["found"]
            .as_str()
            .unwrap()
            .contains("DELETE on idempotency")
    );
    cli.execute(&format!(
        "grant update, delete on idempotency to {login}; grant insert, update on idempotency_job to {login};
         revoke insert on idempotency_event from {login}"
    ))
    .await;
    Findings::of(run(&cli, &[]).on(&url).run().await).are(&["privileges.purge"], 0);
    let findings = Findings::of(run(&cli, &["--role", "operator"]).on(&url).run().await);
    findings.are(&["privileges.release", "privileges.purge"], 4);
}
