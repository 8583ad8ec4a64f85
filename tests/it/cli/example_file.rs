//! The example of a configuration file: it is true, and complete.

use std::path::Path;

use super::fixture::calm;
use crate::support::{idemctl, temp_dir};

fn example() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/examples/config.toml"))
        .unwrap()
}

/// The example with every key switched on. Of the keys that exclude each other, one stays.
fn everything() -> String {
    let text = example();
    let switched: Vec<&str> = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => key,
            _ => line,
        })
        .filter(|line| {
            !["url_file", "url_credential", "ca_file"]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .collect();
    switched.join("\n")
}

async fn check(text: &str) -> crate::support::Output {
    let dir = temp_dir();
    let path = dir.path().join("config.toml").to_string_lossy().into_owned();
    std::fs::write(&path, text).unwrap();
    calm(idemctl(&["config", "--check", "-c", &path]).run().await)
}

#[tokio::test]
async fn it_can_be_used_as_it_is_and_with_every_key() {
    for text in [example(), everything()] {
        let output = check(&text).await;
        assert_eq!(output.code, 0, "{}", output.transcript());
    }
}

/// What it shows as a default is one.
#[tokio::test]
async fn its_defaults_are_those_in_force() {
    let dir = temp_dir();
    let path = dir.path().join("config.toml").to_string_lossy().into_owned();
    let config = async |text: &str| {
        std::fs::write(&path, text).unwrap();
        let output = idemctl(&["config", "-c", &path, "-o", "json"]).run().await.ok();
        let values: Vec<serde_json::Value> = serde_json::from_str(&output).unwrap();
        let pair = |value: &serde_json::Value| (value["name"].to_string(), value["value"].to_string());
        values.iter().map(pair).collect::<Vec<_>>()
    };
    // Without the keys that have no default, and the providers.
    let (settings, _) = everything().split_once("[providers.acme]").map_or_else(
        || panic!("no provider in the example"),
        |(settings, rest)| (settings.to_owned(), rest.to_owned()),
    );
    let settings: Vec<&str> = settings
        .lines()
        .filter(|line| {
            !["schema", "max_rows", "max_duration", "rps", "mask", "listen ="]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .collect();
    let shown = config(&settings.join("\n")).await;
    let defaults = config(&example()).await;
    assert_eq!(shown, defaults);
}

/// A key that the program knows and the example does not: each section's own message lists them all.
#[tokio::test]
async fn no_key_is_missing() {
    let text = everything();
    let mut sections = vec![String::new()];
    sections.extend(
        text.lines()
            .filter(|line| line.starts_with('['))
            .map(str::to_owned),
    );
    assert!(sections.len() > 8, "{sections:?}");
    for section in sections {
        let wrong = format!("{section}\nno_such_key = 1\n");
        let output = check(&wrong).await;
        assert_eq!(output.code, 2, "{}", output.transcript());
        let (_, list) = output
            .stderr
            .split_once("`, expected ")
            .unwrap_or_else(|| panic!("{section}: {}", output.stderr));
        let list = list.lines().next().unwrap_or_default();
        for key in list.split('`').skip(1).step_by(2) {
            let there = ["", "#"].iter().any(|sign| {
                example().lines().any(|line| {
                    line.starts_with(&format!("{sign}{key} ="))
                        || line.starts_with(&format!("{sign}[{key}]"))
                        || line.starts_with(&format!("{sign}[{key}."))
                        || line.starts_with(&format!("{sign}[janitor.{key}]"))
                })
            });
            assert!(there, "{section}: the example has no {key}");
        }
    }
}
