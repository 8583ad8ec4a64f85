//! The examples for Prometheus and Grafana: they hold, and speak of metrics that exist.

use std::collections::BTreeSet;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use regex::Regex;
use serde_json::Value;

use super::http::{SERVED, address, get};
use super::{Place, terminate};
use crate::purge::fixture;
use crate::support::{Run, require_program, until};

fn example(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("examples/monitoring")
        .join(name)
}

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// Every name of a metric of ours in a text.
fn names(text: &str) -> BTreeSet<String> {
    let name = Regex::new(r"\bidemctl_[a-z0-9_]+").unwrap();
    name.find_iter(text)
        .map(|found| found.as_str().to_owned())
        .collect()
}

#[tokio::test]
async fn the_rules_hold() {
    let promtool = require_program("promtool", "prometheus");
    let promtool = promtool.to_str().unwrap();
    for args in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let output = Run::new(promtool, &args).dir(example("")).run().await;
        assert_eq!(output.code, 0, "{}", output.transcript());
    }
    // Every rule has a test that lets it fire.
    let rules = read(&example("alerts.yml"));
    let tests = read(&example("alerts.test.yml"));
    let rules = Regex::new(r"- alert: (\w+)")
        .unwrap()
        .captures_iter(&rules)
        .map(|found| found[1].to_owned())
        .collect::<Vec<_>>();
    assert!(rules.len() >= 8, "{rules:?}");
    for rule in rules {
        let fires = Regex::new(&format!(r"alertname: {rule}\n\s+exp_alerts:")).unwrap();
        assert!(fires.is_match(&tests), "{rule} is never seen to fire");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_that_is_named_exists() {
    let f = fixture().await;
    f.done(1, 48).await;
    f.execute(
        "insert into idempotency (client_id, key, fingerprint, locked_until) values ('s', 'k', '', now() - interval '1 h');
         analyze idempotency",
    )
    .await;
    let place = Place::new(SERVED);
    let mut daemon = place.janitor(&f.db.url).spawn();
    let address = address(&mut daemon).await;
    place.told_until(":00Z; expired: no run yet, next ").await;
    // Before a run there is a backlog, after it a success.
    let (_, mut text) = get(address, "/metrics").await;
    place.write(&SERVED.replace("0 0 1 1 *", "* * * * * *"));
    daemon.signal(Signal::SIGHUP);
    place.told_until("; expired: last ").await;
    until("a success is shown", async || {
        let (_, later) = get(address, "/metrics").await;
        let found = later.contains("idemctl_janitor_last_success");
        text.push_str(&later);
        found
    })
    .await;
    assert_eq!(terminate(daemon).await.code, 0);
    let served: BTreeSet<String> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| match line.split_once(' ').unwrap() {
            (name, "counter") => format!("{name}_total"),
            (name, _) => name.to_owned(),
        })
        .collect();
    let documented = names(&read(
        &PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/protocol/metrics.rs"),
    ));
    let dashboard = read(&example("dashboard.json"));
    for (file, text) in [
        ("alerts.yml", read(&example("alerts.yml"))),
        ("alerts.test.yml", read(&example("alerts.test.yml"))),
        ("dashboard.json", dashboard.clone()),
    ] {
        // The comment of the rules speaks of beginnings of names.
        let text: String = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect::<Vec<_>>()
            .join("\n");
        let found = names(&text);
        assert!(found.len() > 5, "{file}: {found:?}");
        for name in found {
            let base = name.strip_suffix("_bucket").unwrap_or(&name);
            assert!(
                served.contains(base) || documented.contains(base),
                "{file}: nobody has {name}; served: {served:#?}"
            );
        }
    }
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    // And the README names what is served.
    let readme = read(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md"));
    for name in &served {
        assert!(
            readme.contains(name.as_str()),
            "the README does not say what {name} is"
        );
    }
}
