//! What the README promises: its table of exit codes, and every command in it.

use std::path::Path;

use super::fixture::{Cli, SECRET, answering, filled, provider};
use crate::support::Run;

fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_table_of_exit_codes_is_the_one_in_the_code() {
    let readme = file("README.md");
    let (_, table) = readme
        .split_once("| code | meaning |\n| --- | --- |\n")
        .expect("a table `| code | meaning |`");
    let promised: Vec<(u8, String)> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].parse().unwrap(), cells[1].to_lowercase())
        })
        .collect();
    let code = file("src/bin/idemctl/exit.rs");
    let (_, list) = code.split_once("pub(crate) enum Exit {").unwrap();
    let (list, _) = list.split_once("\n}").unwrap();
    let mut defined = Vec::new();
    let mut meaning = String::new();
    for line in list.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            text.trim_end_matches('.').clone_into(&mut meaning);
        } else if let Some((_, code)) = line.trim_end_matches(',').split_once(" = ") {
            defined.push((code.parse::<u8>().unwrap(), meaning.to_lowercase()));
        }
    }
    let codes = |list: &[(u8, String)]| list.iter().map(|(code, _)| *code).collect::<Vec<_>>();
    assert_eq!(codes(&promised), codes(&defined));
    for ((code, promised), (_, defined)) in promised.iter().zip(&defined) {
        let word = |text: &str| {
            text.split([' ', ':', ',', '.'])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        assert_eq!(
            word(promised),
            word(defined),
            "code {code}: {promised:?} against {defined:?}"
        );
    }
}

/// Each line of each block of commands, with the exit code that it promises.
fn lines(readme: &str) -> Vec<(String, i32)> {
    let mut lines = Vec::new();
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside && line.contains("idemctl ") {
            let (command, comment) = line.split_once(" #").unwrap_or((line, ""));
            let exit = comment.trim().strip_prefix("exit ");
            let exit = exit.map_or(0, |exit| exit.split([' ', ':']).next().unwrap().parse().unwrap());
            lines.push((command.trim().to_owned(), exit));
        }
    }
    lines
}

/// Runs the commands of a text one after the other; each has to end as it promises.
async fn run_all(cli: &Cli, text: &str, provider: &str) {
    let config = cli.config(&format!(
        "{provider}response = {{ status_code = 201, body = {{ charge_id = \"{{/id}}\" }} }}\n"
    ));
    let commands = lines(text);
    assert!(commands.len() >= 20, "{commands:?}");
    let bin = Path::new(env!("CARGO_BIN_EXE_idemctl"))
        .parent()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    for (line, exit) in commands {
        let run = Run::new(
            "/bin/bash",
            &["-o", "pipefail", "-c", &format!("PATH={bin}:$PATH; {line}")],
        );
        let output = run
            .on(&cli.db.url)
            .env("IDEMCTL_CONFIG", &config)
            .env("ACME_KEY", SECRET)
            .dir(cli.dir.path())
            .run()
            .await;
        assert_eq!(output.code, exit, "{line}: {}", output.transcript());
        assert!(!output.transcript().contains(SECRET));
    }
}

/// Nobody but acme can be asked about the old keys, and it has not heard of them.
const UNHEARD_OF: &str =
    "update idempotency set order_id = 'unheard-of', provider = 'acme' where client_id = 'shop-9'";

/// The keys are those of the test's fixture; the provider says that `order-1` was charged, and knows of no other.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_in_it_runs() {
    let cli = filled().await;
    cli.execute(UNHEARD_OF).await;
    // What nobody's interface can tell of.
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, locked_until, created_at)
         select 'shop-8', 'cash-' || i, '', now() - interval '30 min', now() - interval '1 h' from generate_series(1, 2) i",
    )
    .await;
    let acme = provider("acme", answering(&[("order-1", "succeeded")]).await);
    run_all(&cli, &file("README.md"), &acme).await;
}

/// The same for the runbook; here the provider has charged `order-4`, too, and fails when asked about `order-5`.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_runbook_runs() {
    let cli = filled().await;
    cli.execute(UNHEARD_OF).await;
    cli.execute(
        "insert into idempotency (client_id, key, fingerprint, locked_until, created_at, provider)
         values ('shop-2', 'order-4', '', now() - interval '30 min', now() - interval '1 h', 'acme'),
                ('shop-3', 'order-5', '', now() - interval '30 min', now() - interval '1 h', 'acme')",
    )
    .await;
    let words = &[
        ("order-1", "succeeded"),
        ("order-4", "succeeded"),
        ("order-5", "500"),
    ];
    let acme = provider("acme", answering(words).await);
    run_all(&cli, &file("src/guide/runbook.md"), &acme).await;
}

/// Whoever is paged finds the alert in the runbook, and the section that it sends him to.
#[test]
fn the_runbook_knows_every_alert_and_every_section() {
    let runbook = file("src/guide/runbook.md");
    let alerts = file("examples/monitoring/alerts.yml");
    let names: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 10, "{names:?}");
    for name in names {
        assert!(
            runbook.contains(&format!("`{name}`")),
            "{name} is not in the runbook"
        );
    }
    let links = regex::Regex::new(r"(?m)^\|.*\| \*([^*]+)\* \|$").unwrap();
    let mut found = 0;
    for link in links.captures_iter(&runbook) {
        found += 1;
        assert!(runbook.contains(&format!("\n## {}\n", &link[1])), "{}", &link[1]);
    }
    assert!(found > 8, "{found}");
}
